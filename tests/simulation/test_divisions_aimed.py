"""Aimed runs of splits: no promise is broken, and all heals."""

from __future__ import annotations

import pytest
import trio

from gossipkv.errors import NotReady
from gossipkv.placement.partition import AssignmentState
from gossipkv.replication.replica.acks import ALL, LEVELS, MAJORITY, ONE
from gossipkv.replication.replica.record import RecordWrite
from tests.simulation.staged_copies import staged, ways
from tests.simulation.test_moves_aimed import begun
from tests.simulation.test_replication_aimed import answered, fill
from tests.world.replication.clients import Answer, Asked
from tests.world.replication.world import SHORT_BYTES

WHOLE = 0  # The initial range; nodes that have split it route requests for it by key.
LOW, HIGH = b"01", b"81"


def put(cluster, at, key, value=b"value", level=ONE):
    """Write at node `at`; return the number of the write, or None."""
    return cluster.have(cluster.nodes[at], WHOLE, [RecordWrite(key, value)], level, 1.0)


async def divide(cluster, at, *firsts):
    """Split ranges, by the map of node `at`."""
    assert await cluster.operator.divide(cluster.nodes[at], firsts)


def copy_at(cluster, at, key):
    """Return the replica of a key at node `at`."""
    return cluster.nodes[at].life.replication.replicas.spaces.at(cluster.table, key)


async def adopted(cluster, *numbers):
    """Wait until these nodes have adopted the current map."""

    def is_so(replicas):
        due = {id_ for id_, one in cluster.partitions.items() if replicas.me in {host.node for host in one.assignments}}
        return due == {copy.partition[1] for copy in replicas.by_partition.values()}

    lives = [cluster.nodes[number].life for number in numbers]
    await cluster.until(lambda: all(is_so(life.replication.replicas) for life in lives))


async def asked(cluster, at, key, token=b"", **write):
    """Return the answer of node `at` to a session's read, or to a write of `value`."""
    answer, serving = Answer(), cluster.nodes[at].life.serving
    question = Asked(WHOLE, key, token, 0.0, **write)
    if write:
        serving.write(cluster.number(), question, answer)
    else:
        serving.read(question, answer)
    await cluster.until(lambda: answer.is_there)
    return answer


def test_origins_that_have_not_heard_of_splits_of_splits():
    """Two origins that have not heard of splits acknowledge with each other; the third node refuses their records."""

    async def play(cluster):
        cluster.register.deaf |= {node.uuid for node in cluster.nodes[:2]}
        ways(cluster, (0, 2))
        for number in range(1, 9):
            await divide(cluster, 2, b"%d" % number)
            for at in (0, 1):
                for key in (LOW, HIGH, b"%d1" % number):
                    put(cluster, at, key, b"%d by %d" % (number, at), LEVELS[number % 2])
            await trio.sleep(0.2)
        assert len(cluster.nodes[0].life.replication.replicas.by_partition) == 1
        assert len(cluster.nodes[2].life.replication.replicas.by_partition) == len(cluster.partitions)

    witness = staged(play, ranges=1)
    assert {one.by_one for one in witness.acknowledged} == {False, True}
    assert witness.counts["told, not heard of a division"] > 10
    assert witness.counts["skipped a division"] > 10


def test_a_host_that_skips_three_divisions():
    """A node that missed three splits adopts the last one directly and keeps all records."""

    async def play(cluster):
        deaf = {cluster.nodes[2].uuid}
        cluster.register.deaf |= deaf
        for number in (2, 4, 6):
            await divide(cluster, 0, b"%d" % number)
            await adopted(cluster, 0, 1)
            await answered(cluster, put(cluster, 2, b"%d1" % number, b"not heard"))
            await answered(cluster, put(cluster, 0, b"%d2" % number, b"heard", MAJORITY))
        cluster.register.deaf -= deaf
        await adopted(cluster, 2)
        await cluster.until(lambda: cluster.is_caught_up)
        assert all(copy_at(cluster, at, b"61").bounds.first == b"6" for at in range(3))

    witness = staged(play, ranges=1)
    assert witness.counts["written, not heard of a division"] == 3
    assert witness.counts["skipped a division"] == 3


@pytest.mark.parametrize("at", [1, 4, 7])
def test_power_is_lost_around_the_adopting_batch(at):
    """After power loss around the adopting batch, older records are fed from the log to the children that lack them."""

    async def play(cluster):
        node, cuts = cluster.nodes[2], ways(cluster, (2, 0), (2, 1))
        for key in (LOW, b"41", HIGH):
            await answered(cluster, put(cluster, 2, key))
        await divide(cluster, 0, b"3", b"6")
        await adopted(cluster, 0, 1)
        node.crashes_at = node.strikes + at
        cluster.network.heal(cuts)
        await cluster.until(lambda: node.strikes >= node.crashes_at)
        await cluster.until(lambda: cluster.is_caught_up, 20.0)
        assert all(copy_at(cluster, 0, key).synced for key in (LOW, b"41", HIGH))

    witness = staged(play, at, ranges=1, tail_bytes=SHORT_BYTES)
    assert witness.counts["crashes around a sync or a send"]
    assert witness.counts["adopted a division"] == 9
    assert not witness.counts["loads"]


async def below(cluster):
    """Build a split range whose first child at the third node is too old for the others' logs."""
    await divide(cluster, 0, b"4")
    await adopted(cluster, 0, 1, 2)
    for key in (LOW, HIGH):
        await answered(cluster, put(cluster, 0, key, level=ALL))
    *others, away = cluster.nodes
    away.stop()
    await cluster.until(lambda: away.life is None)
    for number in range(6):
        await answered(cluster, put(cluster, 0, b"%d2" % (number % 3), level=MAJORITY))
    await fill(*others)
    asked = cluster.witness.counts["replica_load"]
    away.start()
    await cluster.until(lambda: cluster.witness.counts["replica_load"] > asked)


def test_a_copy_leaves_a_shared_space_while_its_sibling_is_written():
    """A bulk load beside a sibling deletes only its own old records, not the sibling's."""

    async def play(cluster):
        await below(cluster)
        assert copy_at(cluster, 2, LOW) in cluster.nodes[2].life.replication.replicas.loader.loads
        space = copy_at(cluster, 2, HIGH).space
        for number in range(40):
            put(cluster, 2, b"8%d" % (number % 3), b"%d" % number)
            await trio.sleep(0.05)
        await cluster.until(lambda: copy_at(cluster, 2, LOW).space != space, 10.0)
        assert copy_at(cluster, 2, HIGH).space == space

    witness = staged(play, ranges=1, tail_bytes=SHORT_BYTES)
    assert witness.counts["loads beside a sibling"] == witness.counts["what was left is cleared"] == 1


def test_a_load_while_its_partition_is_divided():
    """The load is aborted, and the children load by themselves."""

    async def play(cluster):
        await below(cluster)
        loading = cluster.nodes[2].life.replication.replicas.loader
        (before,) = loading.loads
        await divide(cluster, 0, b"1")
        await adopted(cluster, 0, 1, 2)
        await cluster.until(lambda: cluster.is_caught_up, 20.0)
        assert before.children

    witness = staged(play, ranges=1, tail_bytes=SHORT_BYTES)
    assert witness.counts["loads beside a sibling"] == 2


def test_a_range_is_divided_that_a_copy_has_just_left():
    """The replica was LEAVING, so it is dropped and not quarantined once other replicas have all its records."""

    async def play(cluster):
        source, late = cluster.nodes[0], {cluster.nodes[1].uuid}
        await answered(cluster, put(cluster, 0, LOW, level=ALL))
        await begun(cluster, AssignmentState.LEAVING)
        version = cluster.map[WHOLE].version
        await cluster.until(lambda: all(model.config == version for model in cluster.witness.models.values()))
        cluster.register.deaf |= late
        cluster.register.withholds = lambda _: False
        await cluster.until(lambda: source.life.replication.departed, 10.0)
        await cluster.until(lambda: not cluster.nodes[2].life.maps.behind())
        await divide(cluster, 2, b"4")
        await adopted(cluster, 2, 3)
        await trio.sleep(2.0)
        assert [copy.partition[1] for copy in source.life.replication.departed] == [WHOLE]
        cluster.register.deaf -= late
        await cluster.until(lambda: not source.life.replication.replicas.by_partition, 10.0)

    assert not staged(play, ranges=1, spare=1).counts["set aside"]


def test_two_who_divide_at_once():
    """Only one of two concurrent splits succeeds; the other one is told of the conflict."""

    async def play(cluster):
        done = []

        async def one(at, first):
            done.append(await cluster.operator.divide(cluster.nodes[at], (first,)))

        for number in range(3):
            await adopted(cluster, 0, 1, 2)
            async with trio.open_nursery() as dividers:
                for at in range(2):
                    dividers.start_soon(one, at, b"%d%d" % (2 * number + 1, at))
            put(cluster, 2, b"%d1" % (2 * number), b"meanwhile", MAJORITY)
        assert sorted(done) == [False] * 3 + [True] * 3
        assert len(cluster.partitions) == 4

    assert staged(play, ranges=1).counts["divide CONFLICT"] == 3


def test_a_token_of_a_parent_at_a_grandchild():
    """A grandchild serves a parent's token only when it has the records that the session has seen there."""

    async def play(cluster):
        cluster.nodes[2].stop()
        await cluster.until(lambda: cluster.nodes[2].life is None)
        wrote = await asked(cluster, 0, LOW, value=b"seen")
        assert wrote.error is None
        for first in (b"4", b"2"):
            await divide(cluster, 0, first)
            await adopted(cluster, 0, 1)
        cuts = ways(cluster, (0, 2), (1, 2))  # Hold back the feed.
        cluster.register.deaf.add(cluster.nodes[2].uuid)
        cluster.nodes[2].start()
        await cluster.until(lambda: cluster.nodes[2].uuid in cluster.network.lives)
        stale = await asked(cluster, 2, LOW, wrote.token)
        assert isinstance(stale.error, NotReady)
        cluster.register.deaf.clear()
        cluster.network.heal(cuts)
        await cluster.until(lambda: cluster.is_caught_up)
        assert copy_at(cluster, 2, LOW).bounds.end == b"2"
        assert (await asked(cluster, 2, LOW, wrote.token)).value == b"seen"

    staged(play, ranges=1)


def test_a_stale_reader_with_a_token_of_a_child():
    """A node that has not heard of the split refuses the token of a child."""

    async def play(cluster):
        deaf = {cluster.nodes[2].uuid}
        cluster.register.deaf |= deaf
        await answered(cluster, put(cluster, 2, LOW, b"before", ALL))
        await divide(cluster, 0, b"4")
        await adopted(cluster, 0, 1)
        wrote = await asked(cluster, 0, LOW, value=b"after", level=MAJORITY)
        assert wrote.error is None
        stale = await asked(cluster, 2, LOW, wrote.token)
        assert isinstance(stale.error, NotReady)
        assert (await asked(cluster, 2, LOW)).value == b"before"
        cluster.register.deaf -= deaf
        await adopted(cluster, 2)
        await cluster.until(lambda: cluster.is_caught_up)
        assert (await asked(cluster, 2, LOW, wrote.token)).value == b"after"

    staged(play, ranges=1)
