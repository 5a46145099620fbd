"""Ranges of old times are retired: one operation replaces them by an empty one, and their hosts drop the replicas."""

from __future__ import annotations

import random
from types import SimpleNamespace

import pytest
import trio

from gossipkv.keyspace.time_key import TimeKey
from gossipkv.placement.partition import AssignmentState
from gossipkv.register.metadata.operations import Operation, OperationOutcome
from gossipkv.register.metadata.partitions import RANGE, decode_partition
from gossipkv.replication.shell import Measured
from gossipkv.settings.tables import TableSettings
from gossipkv.table.controllers.splitter import LOOK_S, TURN_S, Splitter
from tests.unit.table.edited_maps import edited, judged
from tests.unit.table.local_tables import local_tables
from tests.unit.table.record_nodes import Records

HOUR_S, SKEW_S = 3600, 60
TIMES = TimeKey(0, 8, "ms")


def at(hour):
    return TIMES.key_time(hour * HOUR_S * 1000)


class Series:
    """A time series on some nodes, with a range for each of four hours, and a retention of one hour."""

    def __init__(self, nodes=3):
        self.records = Records(nodes)
        self.nodes = self.records.nodes
        self.table = self.records.make(
            "t", RANGE, firsts=[b"", at(2), at(3), at(4)], holders=lambda _: self.nodes, time_key=TIMES, smears=False,
            retention_ms=HOUR_S * 1000,
        )  # fmt: skip
        self.judged = []
        self.splitters = [self._splitter(node) for node in self.nodes]
        for hour in (1, 2, 3, 4):
            self.put(hour)

    def put(self, hour):
        """Put a record at each node, which is not sent: nothing runs that would."""
        for node in self.nodes:
            node.call("put", "t", at(hour) + b"x", b"%d" % hour, {"level": "one"})

    def get(self, hour, **options):
        return [node.call("get", "t", at(hour) + b"x", {"local": True, **options})[0] for node in self.nodes]

    def _splitter(self, node):
        node.measure = lambda copy: Measured(
            0, len(node.scan(copy.space, *copy.bounds.records, reverse=False, limit=9)[0])
        )
        catalogue = SimpleNamespace(
            tables=lambda: {"t": SimpleNamespace(id=self.table, kind=RANGE)}, transact=self.transact
        )
        return Splitter(
            local_tables(
                metadata=self, catalogue=catalogue, replication=node, random=random.Random(node.number),
                alive=lambda: [one.uuid for one in self.nodes if not one.is_lost],
                settings=TableSettings(split_bytes=0, split_rows=0, max_clock_skew=SKEW_S * 1000),
            )
        )  # fmt: skip

    @property
    def known(self):
        return self.records.known

    def view(self, table):
        return self.records.view(table)

    async def transact(self, table, operations, _timeout_s):
        return self.judge(*operations)

    def judge(self, *operations):
        base, answers = judged(self.records.bases[self.table], operations)
        self.judged += [(one.argument, answer.outcome) for one, answer in zip(operations, answers, strict=True)]
        self.records.tell(self.table, base)
        return answers

    async def looks(self, hour, late_s=SKEW_S + 1, nodes=None):
        """Let splitters and reconcilers look several times, from so many seconds after a full hour on."""
        self.records.now = hour * HOUR_S + late_s
        for _ in range(4):
            for splitter in self.splitters:
                await splitter.look()
            for node in nodes or self.nodes:
                await node.holding().look()
                self.records.run()
            await trio.sleep(max(LOOK_S, TURN_S))

    @property
    def firsts(self):
        return [entry.key for entry in self.view(self.table).scan()]

    @property
    def partitions(self):
        return [decode_partition(entry.record) for entry in self.view(self.table).scan()]


@pytest.fixture
def series():
    return Series()


async def test_ranges_go_with_their_time(series, autojump_clock):
    """Each range goes in one operation; the ranges before the retention become one; younger ones stay."""
    await series.looks(2, late_s=SKEW_S - 1)
    assert series.judged == [], "the slowest clock has not reached the end of the retention"
    for hour, firsts in ((3, [b"", at(2), at(3), at(4)]), (4, [b"", at(3), at(4)]), (5, [b"", at(4)])):
        await series.looks(hour)
        assert series.firsts == firsts
        gone = range(1, hour - 1)
        assert [series.get(one) for one in (1, 2, 3, 4)] == [
            [None] * 3 if one in gone else [b"%d" % one] * 3 for one in (1, 2, 3, 4)
        ]
    assert [outcome for _, outcome in series.judged] == [OperationOutcome.DONE] * 3
    await series.looks(99)
    assert series.firsts == [b"", at(4)], "the last range has no end"
    assert len(series.judged) == 3


async def test_replicas_are_dropped_unread(series, autojump_clock):
    """The hosts drop whole spaces and read no record; nothing is quarantined."""
    before = [{copy.space for copy in node.replicas.by_partition.values()} for node in series.nodes]
    for node in series.nodes:
        node.scan = None
        node.measure = lambda _: Measured(0, 1)
    await series.looks(3)
    for node, spaces in zip(series.nodes, before, strict=True):
        assert len(spaces - node.spaces.keys()) == 1
        assert [*node.replicas.spaces.all_quarantined()] == []
        assert len(node.replicas.by_partition) == 4


async def test_late_writes_are_retired_again(series, autojump_clock):
    """The range of old times takes writes, and is replaced again; without writes it stays as it is."""
    await series.looks(3)
    await series.looks(3.1)
    assert len(series.judged) == 1
    series.put(1)
    assert series.get(1) == [b"1"] * 3
    await series.looks(3.2)
    assert series.get(1) == [None] * 3
    assert len(series.judged) == 2


async def test_sessions_read_absence(series, autojump_clock):
    """A session that wrote a retired record reads its absence."""
    _, token = series.nodes[0].call("get", "t", at(1) + b"x")
    assert token
    await series.looks(3)
    assert series.get(1, token=token) == [None] * 3


async def test_a_late_adopter(series, autojump_clock):
    """A host that adopts several retirements at once drops all the replicas."""
    for hour in (3, 4, 5):
        await series.looks(hour, nodes=series.nodes[:2])
    await series.looks(5)
    late = series.nodes[2]
    assert len(late.replicas.by_partition) == len(late.spaces) == 2
    assert [*late.replicas.spaces.all_quarantined()] == []


async def test_moving_ranges_wait(series, autojump_clock):
    """A range is not retired while it moves."""
    first = series.partitions[0]
    moving = first.assignments[0]._replace(id=77, node=bytes(16), state=AssignmentState.PROPOSED)
    assignments = tuple(sorted((*first.assignments, moving), key=lambda one: (one.slot, one.id)))
    base = series.records.bases[series.table]
    series.records.tell(series.table, edited(base, {b"": first._replace(assignments=assignments)}))
    await series.looks(3)
    assert series.judged == []


@pytest.mark.parametrize(
    "change",
    [
        lambda key, ids, new, own: (key, (), new, own),
        lambda key, ids, new, own: (key, ids[::-1], new, own),
        lambda key, ids, new, own: (key, (ids[0], ids[2]), new, own),
        lambda key, ids, new, own: (at(2), ids, new, own),
        lambda key, ids, new, own: (key, ids, ids[1], own),
        lambda key, ids, new, own: (key, ids, new, own[1:]),
        lambda key, ids, new, own: (key, ids, new, (own[0], *own[:-1])),
        lambda key, ids, new, own: (key, ids, new, (1, *own[1:])),
        lambda key, ids, new, own: (key, ids * 30, new, own),
        lambda key, ids, new, own: (key, ids, -1, own),
    ],
)
def test_operations_that_are_refused(series, change):
    """Ranges must be neighbours in order, and ids new; the map stays."""
    ids, own, before = tuple(one.id for one in series.partitions[:3]), (71, 72, 73), series.firsts
    config = series.known[series.table].config
    good = Operation(bytes(20), config, "retire", 1, (b"", ids, 70, own))
    bad = good._replace(id=b"1" * 20, argument=change(*good.argument))
    (answer,) = series.judge(bad)
    assert answer.outcome is OperationOutcome.REFUSED
    assert series.firsts == before
    again = good._replace(id=b"2" * 20)
    assert [one.outcome for one in series.judge(good, again)] == [OperationOutcome.DONE] * 2
    assert series.firsts == [b"", at(4)]
    assert [one.node for one in series.partitions[0].assignments] == [node.uuid for node in series.nodes]


async def test_a_change_feed_goes_on_in_the_new_range(autojump_clock):
    """Also from a token of long ago; it gives the present records of the range that replaced the retired ones."""
    series = Series(nodes=1)
    (node,) = series.nodes

    def changes(token):
        found = []
        for _ in range(4):
            answer = node.outcome("changes", "t", {"token": token})
            assert not isinstance(answer, Exception), answer
            page, token = answer
            found += [key for key, _, _ in page]
        return sorted(found), token

    first = token = node.call("changes", "t", {})[1]
    for hour in (3, 4, 5):
        await series.looks(hour)
        written = [at(1) + b"%d" % hour, at(4) + b"%d" % hour]
        for key in written:
            node.call("put", "t", key, b"", {"level": "one"})
        found, token = changes(token)
        assert found == written
    assert changes(first)[0] == [at(1) + b"5", at(4) + b"3", at(4) + b"4", at(4) + b"5"]
