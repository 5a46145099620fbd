"""The core of the splitter: its splits, their times and its log messages, from a given map and sizes."""

from __future__ import annotations

from itertools import pairwise
from types import SimpleNamespace

import pytest
import trio

from gossipkv.errors import Corrupt, NotServed, Unavailable
from gossipkv.placement.measures import MeasureLimits
from gossipkv.placement.partition import MAX_FORMER, Assignment, AssignmentState, Partition
from gossipkv.register.metadata.operations import Operation
from gossipkv.register.metadata.partitions import HASH, RANGE, TableMeta
from gossipkv.replication._replication import encode_state
from gossipkv.replication.replica.replica import Replica, ReplicaIdentity
from gossipkv.settings.tables import TableSettings
from gossipkv.table.controllers.reconciler import hosts_of, rules_of
from gossipkv.table.controllers.splitter import FEW_MEASURED, LOOK_S, MAX_MEASURED, RETRY_S, TURN_S, Splitter
from tests.unit.table.edited_maps import judged
from tests.unit.table.local_tables import local_tables
from tests.unit.table.moved_map import TABLE, MovedMap, node
from tests.world.logs import capture_logs

SMALL, LARGE = (100, 10), (101, 10)
LIMITS = MeasureLimits(100, 10)


class Ranges(MovedMap):
    """A range table on three nodes, one of whose ranges ends at `m`."""

    def __init__(self):
        super().__init__()
        self.kind = RANGE
        self.build()

    def build(self, former=()):
        """Build the map, with former assignments in its first range."""
        ranges = {
            key: Partition.of(
                id_, [Assignment(10 * id_ + at, node(at + 1), at, AssignmentState.AVAILABLE) for at in range(3)]
            )
            for key, id_ in ((b"", 7), (b"m", 8))
        }
        ranges[b""] = ranges[b""]._replace(former=former)
        self._begin(TableMeta(TABLE, "t", RANGE, 3, 0), ranges)

    def tables(self):
        return {"t": SimpleNamespace(id=TABLE, kind=self.kind)}

    async def transact(self, table, operations, timeout_s):
        self.asked += [(one.name, one.version, one.argument) for one in operations]
        base, answers = judged(self._base, operations)
        self._take(base)
        return answers

    def ask(self, name, *argument):
        """Apply another operation to the first range."""
        self._judge([Operation(b"%020d" % self.config, self.config, name, 1, (b"", 7, *argument))])

    @property
    def firsts(self):
        return {entry.key: one.id for entry, one in zip(self.view(TABLE).scan(), self.partitions, strict=True)}


class Sizes:
    def __init__(self, **of):
        self.of = {7: SMALL, 8: SMALL} | of
        self.middles = {7: b"f", 8: b"s"}
        self.measured = []

    def measure(self, copy):
        self.measured.append(copy.partition[1])
        found = self.of[copy.partition[1]]
        if isinstance(found, Exception):
            raise found
        return found

    def middle_of(self, copy):
        return self.middles[copy.partition[1]]


class SplitterOfOneNode:
    """The splitter of one node, which holds both ranges."""

    def __init__(self, world, number=1, *, alive=(1, 2, 3), limits=LIMITS, metadata=None):
        self.world, self.number, self.alive = world, number, alive
        self.sizes = Sizes()
        self.sizes.replicas = self.replicas = SimpleNamespace(by_partition={})
        self.adopt()
        self.looked_at = []
        tables = local_tables(
            metadata=metadata or world, catalogue=world, replication=self.sizes, random=world.random,
            alive=lambda: [*map(node, self.alive)], look_at=self.looked_at.append,
            settings=TableSettings(split_bytes=limits.size_bytes, split_rows=limits.rows),
        )  # fmt: skip
        self.splitting = Splitter(tables)

    def adopt(self):
        copies = {}
        for partition in self.world.partitions:
            own = next((one.id for one in partition.assignments if one.node == node(self.number)), None)
            if own is not None:
                copy = Replica(1, ReplicaIdentity(TABLE, partition.id, own), encode_state(0, 0, b"", b""))
                copy.adopts(self.world.config, hosts_of(partition), rules_of(partition, 3, own))
                copies[copy.partition] = copy
        self.replicas.by_partition = copies

    async def looks(self, times=1):
        for _ in range(times):
            await self.splitting.look()
            await trio.sleep(LOOK_S)


@pytest.fixture
def world():
    return Ranges()


@pytest.fixture
def said():
    """Return a function that lists the events and partitions logged so far."""
    with capture_logs() as lines:
        yield lambda: [(line["event"], line["partition"]) for line in lines]


@pytest.mark.parametrize("size", [SMALL, LARGE, (0, 11)])
async def test_a_range_is_divided_beyond_either_limit(world, size, said, autojump_clock):
    """A range beyond a limit is split once at its middle key on the same nodes; a range at the limit stays."""
    splitter = SplitterOfOneNode(world)
    splitter.sizes.of[8] = size
    is_divided = size != SMALL
    await splitter.looks(10)  # The node has adopted only the parent so far.
    assert [*world.firsts] == ([b"", b"m", b"s"] if is_divided else [b"", b"m"])
    assert len(world.asked) == is_divided
    splitter.sizes.of |= dict.fromkeys(world.firsts.values(), SMALL)
    splitter.adopt()
    await splitter.looks(10)
    assert said() == [("range_divided", 8)] * is_divided
    assert len(world.asked) == is_divided
    assert splitter.looked_at == [TABLE] * is_divided
    for one in world.partitions[1:] if is_divided else ():
        assert ([seat.node for seat in one.assignments], one.former) == ([*map(node, (1, 2, 3))], (80, 81, 82))


def test_limits_that_are_off():
    """A limit of zero is ignored; if both are zero, and no table has a retention, nothing is measured."""
    for limits, measured, expected in (
        (MeasureLimits(0, 10), (1 << 60, 10), False), (MeasureLimits(0, 10), (0, 11), True),
        (MeasureLimits(10, 0), (10, 1 << 60), False), (MeasureLimits(10, 0), (11, 0), True),
    ):  # fmt: skip
        assert limits.are_exceeded(measured) == expected
    splitter = SplitterOfOneNode(Ranges(), limits=MeasureLimits(0, 0))
    trio.run(splitter.splitting.look)
    assert splitter.sizes.measured == []


@pytest.mark.parametrize(
    ("host", "turn"), [((1, (1, 2, 3)), 0), ((2, (1, 2, 3)), 1), ((3, (1, 2, 3)), 2), ((3, (3,)), 0)]
)
async def test_one_host_after_the_other(world, host, turn, said, autojump_clock):
    """The first live node in the order of slots begins at once."""
    number, alive = host
    splitter = SplitterOfOneNode(world, number, alive=alive)
    splitter.sizes.of[7] = LARGE
    began = trio.current_time()
    while len(world.firsts) == 2:
        await splitter.looks()
    assert turn * TURN_S <= trio.current_time() - began - LOOK_S < turn * TURN_S + LOOK_S


async def test_two_that_divide_at_once(world, said, autojump_clock):
    """The second split fails silently, because its map is old."""
    view = world.view(TABLE)
    before = SimpleNamespace(known=world.known, view=lambda _: view)
    one, other = SplitterOfOneNode(world), SplitterOfOneNode(world, 2, alive=(2, 3), metadata=before)
    one.sizes.of[7] = other.sizes.of[7] = LARGE
    await one.looks()
    await other.looks(10)
    assert said() == [("range_divided", 7)]
    assert len(world.asked) > 1
    assert [*world.firsts] == [b"", b"f", b"m"]


async def test_what_another_change_outran_is_divided_by_the_next_map(world, said, autojump_clock):
    """A move may have begun and ended since this node read its map."""
    view = world.view(TABLE)
    read = SimpleNamespace(known=world.known, view=lambda _: view)
    splitter = SplitterOfOneNode(world, metadata=read)
    splitter.sizes.of[7] = LARGE
    world.ask("assign", 99, node(4), 2)
    world.ask("unassign", 99)
    await splitter.looks()
    assert len(world.asked) == 1
    assert said() == []
    read.known, read.view = world.known, world.view
    await splitter.looks()
    assert said() == [("range_divided", 7)]


async def test_what_is_not_divided_now(world, said, autojump_clock):
    """A moving range, a hash table and an ended table are not split, neither by a host nor by the target."""

    async def asks_for(number=1):
        splitter = SplitterOfOneNode(world, number)
        splitter.sizes.of[7] = LARGE
        await splitter.looks(10)
        return len(world.asked)

    world.kind = HASH
    assert await asks_for() == 0
    world.kind, world.known[TABLE].ended = RANGE, True
    assert await asks_for() == 0
    world.known[TABLE].ended = False
    world.ask("assign", 99, node(4), 2)
    for number in (1, 4):
        assert await asks_for(number) == 0
    world.ask("unassign", 99)
    assert await asks_for() == 1


async def test_a_range_of_one_key(world, said, autojump_clock):
    """A range of one key is logged once and served; with two keys it is split."""
    splitter = SplitterOfOneNode(world)
    splitter.sizes.of |= {7: LARGE, 8: LARGE}
    splitter.sizes.middles = {7: None, 8: b"m"}  # Partition 8: two keys, the first is its bound.
    await splitter.looks(20)
    assert world.asked == []
    splitter.sizes.middles = {7: b"f", 8: b"m" * 300}
    await splitter.looks(20)
    told = said()
    assert sorted(told[:2]) == [("range_not_divided", 7), ("range_not_divided", 8)]
    assert sorted(told[2:]) == [("range_divided", 7), ("range_divided", 8)]
    assert [*world.firsts] == [b"", b"f", b"m", b"m" * 255]


async def test_who_is_not_settled_is_waited_for(world, said, autojump_clock):
    """A partition names at most 64 former assignments; the wait is logged once."""
    world.build(former=tuple(range(1000, 1000 + MAX_FORMER - 2)))
    splitter = SplitterOfOneNode(world)
    splitter.sizes.of[7] = LARGE
    await splitter.looks(20)
    assert world.asked == []
    world.ask("settle", ((1000, 5),))
    await splitter.looks(20)
    assert said() == [("division_waits", 7), ("range_divided", 7)]


async def test_a_copy_that_cannot_be_read_holds_up_no_other(world, said, autojump_clock):
    """The failure is logged once."""
    splitter = SplitterOfOneNode(world)
    splitter.sizes.of |= {7: LARGE, 8: Corrupt("f", 1, "damaged")}
    async with trio.open_nursery() as nursery:
        nursery.start_soon(splitter.splitting.run)
        await trio.sleep(20 * LOOK_S)
        nursery.cancel_scope.cancel()
    assert said() == [("division_waits", 8), ("range_divided", 7)]
    assert len(world.asked) == 1


async def test_what_was_not_done_is_asked_for_again(world, said, autojump_clock):
    """The retry waits, since no majority of the servers has answered."""
    splitter, transact = SplitterOfOneNode(world), world.transact
    splitter.sizes.of[7] = LARGE
    times = []

    async def refuses(table, operations, timeout_s):
        times.append(trio.current_time())
        raise Unavailable("no majority answers")

    world.transact = refuses
    await splitter.looks(20)
    world.transact = transact
    await splitter.looks(10)
    assert said() == [("range_divided", 7)]
    assert min(later - at for at, later in pairwise(times)) >= RETRY_S


async def test_a_range_is_divided_that_another_node_asks_for(world, said, autojump_clock):
    """A split on request works for a small range and out of turn; a range of other nodes is refused."""
    splitter, other = SplitterOfOneNode(world, 2), SplitterOfOneNode(world, 4)
    for which, partition in ((splitter, 9), (other, 7)):
        with pytest.raises(NotServed):
            await which.splitting.divide(TABLE, partition)
    assert await splitter.splitting.divide(TABLE, 7)
    assert not await splitter.splitting.divide(TABLE, 7)  # The node has not adopted the split yet.
    assert said() == [("range_divided", 7)]
    assert [*world.firsts] == [b"", b"f", b"m"]


async def test_many_copies_have_their_turns(world, autojump_clock):
    """One look measures only some replicas."""
    splitter = SplitterOfOneNode(world)
    one = splitter.replicas.by_partition[TABLE, 7]
    for number in range(100, 100 + MAX_MEASURED):
        copy = Replica(1, ReplicaIdentity(TABLE, number, one.assignment), encode_state(0, 0, b"", b""))
        copy.rules, copy.hosts = one.rules, one.hosts
        splitter.replicas.by_partition[TABLE, number] = copy
        splitter.sizes.of[number] = SMALL
    await splitter.looks()
    assert len(splitter.sizes.measured) == MAX_MEASURED
    await splitter.looks()
    assert {*splitter.sizes.measured} == {id_ for _, id_ in splitter.replicas.by_partition}


async def test_many_maps_in_a_short_time_make_a_node_measure_no_more(world, autojump_clock):
    splitter = SplitterOfOneNode(world)
    one = splitter.replicas.by_partition[TABLE, 7]
    splitter.splitting._round = [one] * 10 * MAX_MEASURED
    await splitter.splitting.look()
    splitter.sizes.measured.clear()
    for _ in range(10):
        await trio.sleep(LOOK_S / 10)
        await splitter.splitting.look()
    assert len(splitter.sizes.measured) <= MAX_MEASURED
    splitter.sizes.measured.clear()
    await splitter.splitting.look()
    assert len(splitter.sizes.measured) == FEW_MEASURED
