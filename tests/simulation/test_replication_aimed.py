"""Aimed runs of replication: no promise is broken, and all heals."""

from __future__ import annotations

import pytest
import trio

from gossipkv.replication.replica.acks import ALL, MAJORITY, ONE
from gossipkv.replication.replica.record import RecordWrite
from tests.simulation.staged_copies import FIRST, KEY, put, staged, ways
from tests.world.logs import capture_logs
from tests.world.replication.world import SHORT_BYTES


async def answered(cluster, number):
    await cluster.until(lambda: number in cluster.witness.answered)


@pytest.mark.parametrize("at", range(1, 13, 3))
def test_power_lost_around_a_push(at):
    """Crashes before or after a send or sync lose no acknowledged write and reuse no dot."""

    async def play(cluster):
        for number, node in enumerate(cluster.nodes):
            node.crashes_at = node.strikes + at + number
        for value in range(12):
            for node in cluster.nodes:
                cluster.have(node, FIRST, [RecordWrite(KEY, b"%d" % value)], MAJORITY, 1.0)
            await trio.sleep(0.01)

    witness = staged(play, at)
    assert witness.counts["crashes around a sync or a send"]


def test_a_delete_against_an_older_write_that_comes_late():
    """A late write that lost to a delete does not bring the key back, even where the delete arrived first."""

    async def play(cluster):
        cuts = ways(cluster, (0, 1), (0, 2))
        await answered(cluster, put(cluster, 0))
        await trio.sleep(0.1)
        await answered(cluster, put(cluster, 1, None, MAJORITY))
        cluster.network.heal(cuts)
        await cluster.until(lambda: cluster.is_caught_up)
        newest = cluster.newest(FIRST, KEY)
        assert newest[0] == newest[1] == newest[2]
        assert int.from_bytes(newest[0][8:16], "big") == cluster.map[FIRST].hosts[1].assignment

    staged(play)


def test_the_origin_is_killed_after_one_target_synced():
    """The second replica relays the majority write to the third; the origin loses its disk."""

    async def play(cluster):
        ways(cluster, (0, 1), (1, 0))
        await answered(cluster, put(cluster, 0, level=MAJORITY))
        origin = cluster.nodes[0]
        origin.stop(power=True)
        origin.start = lambda: None
        cluster.lost.add(origin.uuid)
        await cluster.until(lambda: cluster.newest(FIRST, KEY)[1] is not None, 1.0)

    assert len(staged(play).acknowledged) == 1


def test_an_older_copy_of_a_disk():
    """An older copy reuses no known counter, reports itself, and gets its own records from other replicas."""

    async def play(cluster):
        node = cluster.nodes[0]
        await answered(cluster, put(cluster, 0, level=ALL))
        older = node.disk.files.copied()
        for value in range(3):
            await answered(cluster, put(cluster, 0, b"%d" % value, ALL, b"key%d" % (value % 2)))
        node.stop(power=True)
        await cluster.until(lambda: node.life is None)
        node.put_back(older)
        with capture_logs() as logs:
            node.start()
            await cluster.until(lambda: node.life is not None and node.uuid in cluster.network.lives)
            assert cluster.have(node, FIRST, [RecordWrite(KEY, b"other")], ONE, 1.0) is None
            await trio.sleep(2.0)
        copies = node.life.replication.replicas.by_partition.values()
        assert [copy.identity.partition for copy in copies if copy.barred] == [FIRST]
        assert "copy_set_aside" in str(logs)
        assert cluster.have(node, FIRST, [RecordWrite(KEY, b"other")], ONE, 1.0) is None
        await answered(cluster, put(cluster, 1, level=ALL))
        await cluster.until(lambda: cluster.is_caught_up)
        await _restart(cluster, node)

    staged(play)


async def _restart(cluster, node):
    """Restart a node while the others have lost the order of its records; its log has the merged records."""
    node.stop()
    await cluster.until(lambda: node.life is None)
    node.start()
    await cluster.until(lambda: cluster.is_ready or node.life is not None)


def test_a_merge_between_append_and_sync_of_a_later_record():
    """An older record that is merged in between does not hide the later record."""

    async def play(cluster):
        cluster.nodes[1].skew_ms = -5000
        cluster.nodes[0].mood.sync_s = (0.3, 0.3)
        put(cluster, 0, b"later")
        put(cluster, 1, b"older")
        await trio.sleep(0.5)

    witness = staged(play)
    assert witness.counts["records"] == 2


@pytest.mark.parametrize("seed", range(2))
def test_times_a_year_ahead(seed):
    """Writes win over all seen records after a clock was a year ahead and then corrected by a restart."""

    async def play(cluster):
        cluster.nodes[0].skew_ms = 365 * 86400 * 1000
        cluster.nodes[0].life.replication.replicas.skew.most_ms = 2 * cluster.nodes[0].skew_ms
        await answered(cluster, put(cluster, 0, b"ahead", ALL))
        for node in cluster.nodes:
            node.skew_ms = 0
            node.stop(power=seed == 1)
        await cluster.until(lambda: all(node.life is None for node in cluster.nodes))
        for node in cluster.nodes:
            node.start()
        await cluster.until(lambda: cluster.is_ready)
        for at in (1, 2, 0):
            await answered(cluster, put(cluster, at, b"by %d" % at, ALL))
            newest = cluster.newest(FIRST, KEY)
            assert [data.endswith(b"by %d" % at) for data in newest] == [True] * 3

    staged(play)


def test_a_record_travels_twice():
    """With three undisturbed origins, each record travels once to each of the other two replicas."""

    async def play(cluster):
        for number in range(100):
            put(cluster, number % 3, b"%d" % number, key=b"%d" % (number % 7))
            await trio.sleep(0.003)
        await cluster.until(lambda: cluster.is_caught_up)
        cluster.witness.check_travel()

    assert staged(play).travelled == 2.0


async def fill(*nodes):
    for node in nodes:
        node.life.fill()
    await trio.sleep(0.2)


async def left_behind(cluster):
    """Return the third node, restarted after the logs of the others have passed its position."""
    *others, away = cluster.nodes
    await answered(cluster, put(cluster, 2, b"old", ALL, b"key1"))
    away.stop()
    await cluster.until(lambda: away.life is None)
    for number in range(6):
        await answered(cluster, put(cluster, number % 2, b"new", MAJORITY, b"key%d" % number))
    await answered(cluster, put(cluster, 0, None, MAJORITY, b"key1"))
    await fill(*others)
    asked = cluster.witness.counts["replica_load"]
    away.start()
    await cluster.until(lambda: cluster.witness.counts["replica_load"] > asked)
    return away


@pytest.mark.parametrize("at", [1, 4, 8])
@pytest.mark.parametrize("who", ["loader", "source", "log"])
def test_a_load_that_is_torn(who, at):
    """A crash at each send and sync of loader and sources, or a log trim, only restarts the load."""

    async def play(cluster):
        away = await left_behind(cluster)
        for node in cluster.nodes if who != "log" else ():
            node.crashes_at = node.strikes + at if (node is away) == (who == "loader") else 0
        for number in range(10):
            for node in cluster.nodes:
                cluster.have(node, FIRST, [RecordWrite(b"key%d" % (number % 3), b"meanwhile")], ONE, 1.0)
            if who == "log" and number == at:
                await fill(*(node for node in cluster.nodes if node is not away and node.life))
            await trio.sleep(0.002)

    witness = staged(play, at, tail_bytes=SHORT_BYTES)
    assert witness.counts["loads"]
    assert who == "log" or witness.counts["crashes around a sync or a send"]


@pytest.mark.parametrize("seed", range(1))
def test_all_load_from_each_other_and_again(seed):
    """Each replica lacks records that no log has any more; the loads end, and all replicas have all records."""

    async def play(cluster):
        for turn in range(2):
            cuts = ways(cluster, *((one, other) for one in range(3) for other in range(3) if one != other))
            for link in [*cluster.network.links.values()]:
                cluster.network.breaks(link)
            for at in range(3):
                for number in range(at, 6):
                    put(cluster, at, b"%d by %d" % (turn, at), key=b"key%d" % number)
            await trio.sleep(0.2)
            await fill(*cluster.nodes)
            cluster.network.heal(cuts)
            await cluster.until(lambda: cluster.is_caught_up and cluster.is_ready, 12.0)

    assert staged(play, seed, tail_bytes=SHORT_BYTES).counts["loads"] > 2
