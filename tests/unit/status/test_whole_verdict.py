"""The verdict of whole nodes on a simulated network follows placement and links, not memory."""

from __future__ import annotations

import pytest

from tests.world.nodes.phases import begin
from tests.world.nodes.whole_cluster import simulated

TABLE = {"kind": "hash", "partitions": 8, "replication": 3}
TWO = {**TABLE, "replication": 2}


async def texts(cluster, machine):
    """Return all texts that deserve attention, and their advice."""
    told = await cluster.ask(machine, "verdict", timeout_s=20)
    reasons = [one for one in told["reasons"] if one["level"] != "well"]
    return [one["text"] for one in reasons], [one["advice"] for one in reasons if one.get("advice")]


async def say(cluster, machines, *texts_wanted, within_s=60):
    """Wait until all of these machines report exactly these texts."""
    for machine in machines:

        async def holds(machine=machine):
            """The verdict has exactly the wanted texts."""
            said, _ = await texts(cluster, machine)
            return sorted(said) == sorted(texts_wanted)

        await cluster.until(holds, within_s=within_s)


@pytest.mark.parametrize("ends", ["killed", "stopped"])
@simulated(3, seed=2)
async def test_a_replica_that_is_lacking_is_told_by_placement(cluster, ends):
    """No node remembers the third one after a restart of two, or the third one has left."""
    await begin(cluster)
    await cluster.ask(cluster.machines[0], "create_table", "carts", TABLE, timeout_s=30)
    *others, third = cluster.machines
    await say(cluster, cluster.machines)
    if ends == "killed":
        for machine in cluster.machines:
            machine.kill()
        for machine in others:
            await machine.start()
    else:
        await third.stop()
    state = "not known to any node" if ends == "killed" else "stopped"
    lacking = f"carts: 8 of 8 partitions lack their replica on {third.name}"
    registers = f"({'gone' if ends == 'killed' else 'left'}) is an acceptor of the catalogue and carts"
    voter = f"{third.name} {registers}: the others are a majority, and still decide"
    await say(cluster, others, f"{third.name} is {state}, although tables have partitions there", lacking, voter)
    _, (advice, to_replace) = await texts(cluster, others[0])
    assert f"gossipkv metadata replace {third.name} NEW" in to_replace
    assert f"gossipkv metadata leave {third.name}`" in to_replace
    assert f"gossipkv node replace {third.name} {third.name} --force --yes" in advice
    assert "shard_id" not in advice
    told = await cluster.ask(others[0], "partition_map", "carts")
    names = {one["node"] for part in told["partitions"] for one in part["assignments"]}
    assert names == {machine.name for machine in cluster.machines}, "a node that nobody remembers is told by its name"
    await third.start()
    await say(cluster, cluster.machines)


@simulated(3, seed=2)
async def test_a_link_that_is_cut_is_told_by_all_three(cluster):
    """No node claims that a replica lacks records which it has from the third node."""
    await begin(cluster)
    one, other, _ = cluster.machines
    await cluster.ask(one, "create_table", "carts", TABLE, timeout_s=30)
    await say(cluster, cluster.machines)
    cluster.network.partition([one.host], [other.host])
    for number in range(50):
        await cluster.ask(one, "put", "carts", b"k%d" % number, b"v", timeout_s=30)

    async def told(machine):
        said, advice = await texts(cluster, machine)
        words = f"{one.name} and {other.name} do not reach each other, though other nodes reach both: "
        return any(text.startswith(words) for text in said), said, advice

    for machine in cluster.machines:

        async def holds(machine=machine):
            """The verdict names both ends of the link."""
            return (await told(machine))[0]

        await cluster.until(holds, within_s=60)
        _, said, advice = await told(machine)
        assert not any("lacks" in text for text in said), said
        assert advice == [f"Check the network between {one.name} and {other.name}."]
    cluster.network.heal()
    await say(cluster, cluster.machines)


@simulated(2, seed=1)  # The surviving node is the acceptor of the table.
async def test_of_two_nodes_the_one_that_died_is_named(cluster):
    """The survivor does not report isolation; it names the dead node and the undecidable table."""
    await begin(cluster)
    one, other = cluster.machines
    await cluster.ask(one, "create_table", "carts", TWO, timeout_s=30)
    await say(cluster, cluster.machines)
    other.kill()
    wanted = {
        f"{other.name} is dead",
        "carts: 8 partitions: 1 of 2 replicas can confirm a write, but a majority is 2",
        f"carts: 8 of 8 partitions lack their replica on {other.name}",
    }

    async def holds():
        """The verdict names the dead node and all consequences."""
        said, _ = await texts(cluster, one)
        assert not any("cut off" in text for text in said), said
        # The acceptor of the table is drawn.
        undecided = "carts: 0 of the 1 nodes that decide on its partitions answer: none can move or split"
        return {*said} - {undecided} == wanted

    await cluster.until(holds, within_s=60)
