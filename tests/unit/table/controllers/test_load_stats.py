"""Sizes and request rates of replicas: counted at hosts, smoothed, reported and merged."""

from __future__ import annotations

from math import exp, inf, nan

import pytest
import trio
from msgpack import packb
from trio.testing import MockClock

from gossipkv.environment.ticks import LONGEST
from gossipkv.errors import StorageError, Unavailable
from gossipkv.placement.measures import RangeMeasure
from gossipkv.replication._replication import encode_state
from gossipkv.replication.replica.replica import Lineage, Replica, ReplicaIdentity
from gossipkv.table.controllers.load_stats import COUNT_S, FEW_MEASURED, FRESH_S, SMOOTHED_S, LoadStats, take
from gossipkv.table.controllers.write_stats import WriteStats
from tests.unit.table.local_tables import local_tables
from tests.unit.table.record_nodes import Records

TABLE = bytes(16)


def copy_of(partition):
    return Replica(1, ReplicaIdentity(TABLE, partition, 1), encode_state(0, 0, b"", b""))


class Host:
    """A node's replicas and their contents."""

    def __init__(self, *partitions, answers=None):
        self.me = b"me"
        self.by_partition = {(TABLE, one): copy_of(one) for one in partitions}
        self.answers = answers or {}
        self.measured = []
        self.replicas, self.measuring = self, LoadStats(local_tables(replication=self, ask=self._ask), WriteStats())

    def keep_places(self, *, is_read):
        assert is_read, "only a node that is read saves its time of expiry"

    def measure(self, copy):
        self.measured.append(copy.partition[1])
        if copy.partition[1] == 13:
            raise StorageError("a page")
        return 100 * copy.partition[1], copy.partition[1]

    async def _ask(self, node, method, params, timeout_s):
        assert (method, params) == ("table_sizes", [TABLE])
        answer = self.answers[node]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def count(self, times=1, **requests):
        for _ in range(times):
            for name, number in requests.items():
                self.by_partition[TABLE, int(name[1:])].requests += number
            trio.run(self.measuring.count, COUNT_S)
        return {row[0]: row[3] for row in trio.run(self.measuring.rows, TABLE)}


def test_requests_of_clients_are_counted_where_they_are_answered():
    """Each read or written key and each scanned page counts; replication does not."""
    records = Records(3)
    records.make("t", firsts=1, holders=lambda _: records.nodes[:2])
    one, two, other = records.nodes
    (copies,) = ([*node.replicas.by_partition.values()] for node in (one,))

    def counted(do):
        for node in (one, two):
            for copy in node.replicas.by_partition.values():
                copy.requests = 0
        do()
        return [sum(copy.requests for copy in node.replicas.by_partition.values()) for node in (one, two)]

    assert len(copies) == 1
    assert counted(lambda: one.call("put", "t", b"a", b"x", {"level": "one"})) == [1, 0]
    assert counted(lambda: one.call("put_many", "t", [[b"b", b"x"], [b"c", b"x"]], {"level": "one"})) == [2, 0]
    assert counted(lambda: one.call("get", "t", b"a")) == [1, 0]
    assert sum(counted(lambda: other.call("get_many", "t", [b"a", b"b", b"c"]))) == 3
    assert sum(counted(lambda: other.call("scan", "t"))) == 1


def test_rates_are_smoothed():
    """Rates are smoothed over five minutes: a steady rate is reached, a burst fades, and idle ranges have none."""
    host = Host(1, 2)
    kept = exp(-COUNT_S / SMOOTHED_S)
    assert host.count(p1=100) == {1: round(10 * (1 - kept), 2), 2: 0.0}
    assert host.count(times=200, p1=100) == {1: pytest.approx(10, abs=0.05), 2: 0.0}
    assert host.count(times=30)[1] == pytest.approx(10 / 2.718, abs=0.1)
    assert host.count(times=400) == {1: 0.0, 2: 0.0}


def test_the_heirs_of_a_busy_copy_are_busy():
    """Children and grandchildren share the rate of the parent."""
    host = Host(1)
    host.count(times=200, p1=100)
    parent, (child, other, *grand) = host.by_partition.pop((TABLE, 1)), map(copy_of, range(2, 6))
    parent.lineage, child.lineage = Lineage(children=(child, other)), Lineage(children=tuple(grand))
    host.by_partition |= {one.partition: one for one in (other, *grand)}
    rates = host.count()
    assert rates[3] == pytest.approx(5, abs=0.3)
    assert rates[4] == rates[5] == pytest.approx(2.5, abs=0.2)


def test_others_have_their_turn_while_copies_are_measured():
    """Sizes are measured a few at a time, and unreadable replicas are left out."""
    host = Host(*range(FEW_MEASURED * 4))
    seen = []

    async def scenario():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch)
            rows = await host.measuring.rows(TABLE)
            assert await host.measuring.rows(bytes([1]) * 16) == []
            nursery.cancel_scope.cancel()
        return rows

    async def watch():
        while True:
            seen.append(len(host.measured))
            await trio.lowlevel.checkpoint()

    rows = trio.run(scenario)
    assert {row[0] for row in rows} == {*range(FEW_MEASURED * 4)} - {13}
    assert rows[2] == [2, 200, 2, 0.0]
    assert any(0 < number < FEW_MEASURED * 4 for number in seen)


def test_what_nodes_say_is_put_together():
    """The largest size and the sum of rates count; failed and invalid answers are ignored."""
    host = Host(1, 2)
    host.answers = {
        b"new": packb([[1, 150, 7, 2.5, "more"], [3, 30, 3, 1]]),
        b"other": packb([[2, 900, 0, 0], [4, 40, 0, 0]]),
        b"silent": Unavailable("it is down"),
        b"odd": packb([[1], [1, 2], ["x", 1], 5, [1, 2, 3], [9, "y", 0, 0]]),
        b"false": packb([[9, -1], [9, 1, -1, 0], [9, 1, 1, nan], [9, 1, 1, inf]]),
        b"odder": b"\xc1",
    }
    found = trio.run(host.measuring.of, TABLE, [b"me", *host.answers])
    assert found.measures == {
        1: RangeMeasure(150, 7, 2.5),
        2: RangeMeasure(900, 2, 0.0),
        3: RangeMeasure(30, 3, 1),
        4: RangeMeasure(40),
    }
    found = {}
    for _ in range(2):
        take(found, [1, 100, 5, 2.0])
    assert found == {1: RangeMeasure(100, 5, 4.0)}


def test_it_counts_now_and_then():
    """Counting runs by itself and uses the elapsed time."""
    host = Host(1)

    async def scenario():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(host.measuring.run)
            host.by_partition[TABLE, 1].requests = 1000
            await trio.sleep(COUNT_S * LONGEST + 1)
            nursery.cancel_scope.cancel()
        return await host.measuring.rows(TABLE)

    ((_, _, _, rate),) = trio.run(scenario, clock=MockClock(autojump_threshold=0))
    within_s = COUNT_S * LONGEST
    assert rate == round(1000 / within_s * (1 - exp(-within_s / SMOOTHED_S)), 2)
    assert host.by_partition[TABLE, 1].requests == 0


async def test_what_was_said_counts_for_a_while(autojump_clock):
    """Within that time no node is asked twice, even concurrently; later, or for another table, all are asked."""
    host = Host()
    host.answers = {b"a": packb([[1, 100, 1, 1.0]]), b"b": packb([[1, 90, 3, 1.5], [2, 5, 1, 0.0]])}
    asked, ask = [], host._ask

    async def noted(node, *rest):
        asked.append(node)
        await trio.lowlevel.checkpoint()
        return await ask(node, *rest)

    host.measuring._ask = noted
    lately = host.measuring.lately
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lately, TABLE, {b"a", b"b"})
        nursery.start_soon(lately, TABLE, {b"a", b"b"})
    assert await lately(TABLE, {b"b"}) == {1: RangeMeasure(100, 3, 2.5), 2: RangeMeasure(5, 1, 0.0)}
    assert sorted(asked) == [b"a", b"b"]
    await trio.sleep(FRESH_S)
    host.answers[b"a"] = packb([[1, 200, 1, 0.0]])
    assert await lately(TABLE, {b"a"}) == {1: RangeMeasure(200, 1, 0.0)}
    assert sorted(asked) == [b"a", b"a", b"b"]
