"""Aimed runs of moves: no promise is broken, and all heals."""

from __future__ import annotations

import pytest
import trio

from gossipkv.errors import Unavailable
from gossipkv.placement.partition import AssignmentState
from gossipkv.replication.replica.acks import ALL, LEVELS, MAJORITY, ONE
from gossipkv.replication.replica.keys import RECORD
from gossipkv.replication.replica.record import RecordWrite
from tests.simulation.staged_copies import FIRST, KEY, put, staged, ways
from tests.simulation.test_replication_aimed import answered, fill
from tests.world.replication.clients import Answer, Asked
from tests.world.replication.world import SHORT_BYTES

# The operation to withhold so that a target stays in a state; the last state withholds nothing.
BEFORE = {
    AssignmentState.PROPOSED: ("advance", 2),
    AssignmentState.INITIALIZING: ("advance", 3),
    AssignmentState.LEAVING: ("unassign", None),
    AssignmentState.AVAILABLE: None,
}


WAYS = ("wrongly dead", "paused", "old map")  # The ways to strike a node.


def withhold(cluster, state):
    """Keep the first partition's target, or source, in a state."""
    name, to = BEFORE[state] or ("", None)

    def withholds(operation):
        argument = operation.argument
        return operation.name == name and argument[1] == FIRST and to in {None, argument[-1]}

    cluster.register.withholds = withholds


def states(cluster, at):
    """Return the states of a node's assignments of the first partition."""
    uuid = cluster.nodes[at].uuid
    return [one.state for one in cluster.partitions[FIRST].assignments if one.node == uuid]


async def begun(cluster, state):
    """Replace the first node by the fourth, up to a state of the target, or LEAVING of the source."""
    withhold(cluster, state)
    assert await cluster.operator.replace(cluster.nodes[0], cluster.nodes[3])
    at, to = (0, [AssignmentState.LEAVING]) if state is AssignmentState.LEAVING else (3, [state])
    await cluster.until(lambda: states(cluster, at) == to, 20.0)


async def left(cluster):
    cluster.register.withholds = lambda _: False
    source = cluster.witness.models[1]
    await cluster.until(lambda: source.left, 30.0)


def strike(cluster, how, at):
    """Mark a node as dead, pause it, or hide new maps from it; return a function that ends the fault."""
    uuid = cluster.nodes[at].uuid
    if how == "paused":
        others = [other for other in range(len(cluster.nodes)) if other != at]
        cuts = ways(cluster, *((at, other) for other in others), *((other, at) for other in others))
        return lambda: cluster.network.heal(cuts)
    struck = cluster.network.wrongly_dead if how == "wrongly dead" else cluster.register.deaf
    struck.add(uuid)
    return lambda: struck.discard(uuid)


def lose(cluster, at):
    """Lose a node for good, with its disk."""
    node = cluster.nodes[at]
    cluster.lost.add(node.uuid)
    node.is_lost = True
    node.stop(power=True)


# Each state, fault and node occurs once; `test_moves_aimed_slow.py` has all combinations.
STRUCK = [(state, how, 1 + at % 3) for at, (state, how) in enumerate(zip(BEFORE, [*WAYS, WAYS[0]], strict=True))]


@pytest.mark.parametrize(("state", "how", "killed"), STRUCK)
def test_an_origin_that_is_struck_amid_a_move(state, how, killed):
    """Writes acknowledged at a majority survive, whichever node is killed after the source has dropped."""

    async def play(cluster):
        await answered(cluster, put(cluster, 1, b"before", ALL))
        await begun(cluster, state)
        heal = strike(cluster, how, 1)
        for number in range(12):
            for at in range(4):
                value, level = b"%d by %d" % (number, at), LEVELS[number % 3]
                cluster.have(cluster.nodes[at], FIRST, [RecordWrite(b"key%d" % at, value)], level, 1.0)
            await trio.sleep(0.1)
        heal()
        await left(cluster)
        lose(cluster, killed)

    witness = staged(play, slots=3, spare=1)
    assert {one.by_one for one in witness.acknowledged} == {False, True}
    assert how != "old map" or witness.counts["done"] > 12


@pytest.mark.parametrize(("who", "at"), [("target", 1), ("hosts", 3), ("logs", 6)])
def test_a_target_is_fed_by_three_while_its_load_is_torn(who, at):
    """The bulk load restarts after each crash at a send, a sync or a log trim, and finally has all records."""

    async def play(cluster):
        for number in range(6):
            await answered(cluster, put(cluster, number % 3, b"old", ALL, b"key%d" % number))
        await fill(*cluster.nodes[:3])
        await begun(cluster, AssignmentState.PROPOSED)
        withhold(cluster, AssignmentState.INITIALIZING)
        await cluster.until(lambda: states(cluster, 3) == [AssignmentState.INITIALIZING])
        for number, node in enumerate(cluster.nodes):
            is_struck = {"target": number == 3, "hosts": number < 3}.get(who, False)
            node.crashes_at = node.strikes + at if is_struck else 0
        for number in range(10):
            for node in cluster.nodes[:3]:
                cluster.have(node, FIRST, [RecordWrite(b"key%d" % (number % 3), b"meanwhile")], ONE, 1.0)
            if who == "logs" and number == at:
                await fill(*(node for node in cluster.nodes[:3] if node.life))
            await trio.sleep(0.01)
        cluster.register.withholds = lambda _: False

    witness = staged(play, at, spare=1, tail_bytes=SHORT_BYTES)
    assert witness.counts["joined"] >= 3
    assert who == "logs" or witness.counts["crashes around a sync or a send"]


def test_a_tombstone_is_collected_just_before_adoption():
    """The adopting node has the put in its log; it does not feed the put, and the key stays deleted."""

    async def play(cluster):
        await answered(cluster, put(cluster, 1, b"put", ALL))
        await answered(cluster, put(cluster, 2, None, ALL))
        await cluster.until(lambda: cluster.witness.counts["collected"] >= 3)
        for node in cluster.nodes[:3]:
            batches, _ = node.life.store.opened.read_log(node.life.store.spaces(), 0)
            assert any(key == RECORD + KEY and b"put" in value for _, all_ in batches for _, _, key, value in all_)
        await begun(cluster, AssignmentState.AVAILABLE)
        await left(cluster)
        for host in cluster.map[FIRST].hosts:
            node = next(node for node in cluster.nodes if node.uuid == host.node)
            copy = node.life.replication.replicas.by_partition[cluster.table, FIRST]
            assert node.life.store.get(copy.space, RECORD + KEY) is None

    staged(play, spare=1)


@pytest.mark.parametrize("state", [*BEFORE][:2])
def test_two_slots_and_most_metadata_servers_are_down(state):
    """Reads continue, also in sessions. Majority writes are refused with a reason; writes at `one` succeed."""

    async def play(cluster):
        await answered(cluster, put(cluster, 2, b"before", ALL))
        await begun(cluster, state)
        await answered(cluster, put(cluster, 2, b"amid", MAJORITY))
        for at in (0, 1, 3):
            cluster.nodes[at].stop(power=True)
        await trio.sleep(0.5)
        node = cluster.nodes[2]
        answer = Answer()
        node.life.serving.read(Asked(FIRST, KEY, b"", 0.0), answer)
        assert answer.value == b"amid"
        with pytest.raises(Unavailable, match="connected"):
            node.life.write(cluster.number(), FIRST, [RecordWrite(KEY, b"refused")], MAJORITY, 1.0)
        await answered(cluster, put(cluster, 2, b"one"))
        answer = Answer()
        node.life.serving.read(Asked(FIRST, KEY, answer.token, 0.0), answer)
        assert answer.value == b"one"

    staged(play, spare=1)


def test_one_of_two_replicas_is_replaced_by_force():
    """The newcomer has all majority writes, even if the other replica is lost, too."""

    async def play(cluster):
        for number in range(8):
            await answered(cluster, put(cluster, number % 2, b"%d" % number, MAJORITY, b"key%d" % number))
        put(cluster, 0, b"alone", ONE)
        lose(cluster, 0)
        assert await cluster.operator.replace(cluster.nodes[0], cluster.nodes[3], is_gone=True)
        await cluster.until(lambda: cluster.is_placed and cluster.is_caught_up, 40.0)
        assert states(cluster, 3) == [AssignmentState.AVAILABLE]
        cluster.register.serve([cluster.nodes[2].uuid])  # One metadata server is left.
        lose(cluster, 1)

    witness = staged(play, slots=2, spare=1)
    assert witness.moves.forced
    assert sum(not one.by_one for one in witness.acknowledged) >= 8


def test_who_replaced_another_is_lost_before_that_has_gone():
    """The replaced node becomes AVAILABLE again in its slot and takes writes, with all its records."""

    async def play(cluster):
        def originates(node):
            return node.life.replication.replicas.by_partition[cluster.table, FIRST].originates

        source, target = cluster.nodes[0], cluster.nodes[3]
        await begun(cluster, AssignmentState.LEAVING)
        await cluster.until(lambda: originates(target))
        await answered(cluster, put(cluster, 3, b"handed over", MAJORITY))
        cluster.register.withholds = lambda operation: (operation.name, operation.version) == ("unassign", 1)
        lose(cluster, 3)
        assert await cluster.operator.replace(cluster.nodes[3], source, is_gone=True)
        await cluster.until(lambda: states(cluster, 0) == [AssignmentState.AVAILABLE], 20.0)
        cluster.register.withholds = lambda _: False
        await cluster.until(lambda: originates(source))
        await answered(cluster, put(cluster, 0, b"after", ALL))

    assert staged(play, slots=3, spare=1).moves.forced
