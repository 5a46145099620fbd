"""The fate of a replica that left the map: it is dropped or quarantined."""

from __future__ import annotations

import itertools
import random
from types import SimpleNamespace

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from gossipkv.register.metadata.partitions import shard_key
from gossipkv.replication.deadlines import ParkedRequests
from gossipkv.replication.ports import ReplicationLimits
from gossipkv.replication.replica.keys import RECORD
from gossipkv.replication.replica.record import RecordWrite
from gossipkv.replication.shell import Replication
from gossipkv.storage.engine.shell import DELETE, PUT, operations
from gossipkv.table.controllers.reconciler import Reconciler
from gossipkv.table.controllers.write_stats import WriteStats
from tests.unit.table.local_tables import local_tables
from tests.unit.table.moved_map import FORCED, TABLE, MovedMap, node

ME = 3  # The node and its first assignment have this number; `OTHER` replaces that assignment.
OTHER = 4
KEY = b"k"


class Store:
    """An in-memory store that soon syncs appended batches."""

    first_space = refusal = None
    synced_position = 1  # The replica starts after this position and so counts as new.

    def __init__(self):
        self.records = {}
        self._positions, self._numbers = itertools.count(1), itertools.count(1)

    def append(self, batch, told):
        trio.lowlevel.current_trio_token().run_sync_soon(self._sync, operations(batch.payload), batch.dropped, told)
        return next(self._positions)

    def extend(self, batch, more):
        """Return False: no batch is open here."""

    def expire_by(self, rule):
        """Keep everything: nothing is merged here."""

    def _sync(self, changes, dropped, told):
        for kind, space, key, value in changes:
            if kind == PUT:
                self.records.setdefault(space, {})[key] = value
            elif kind == DELETE:
                self.records[space].pop(key, None)
        for space in dropped:
            del self.records[space]
        told(None)

    def get(self, space, key):
        return self.records[space].get(key)

    def scan(self, space, start, end):
        return sorted(row for row in self.records[space].items() if start <= row[0] < end), None

    def size_bytes(self, space, start=b"", end=None):
        if space not in self.records:
            raise ValueError(f"there is no space {space}")
        return sum(map(len, self.records[space].values()))

    def spaces(self):
        return [*self.records]

    def reserve_space(self):
        return next(self._numbers)


class Node:
    """A node that holds the replicas of a given map."""

    def __init__(self):
        self.map = MovedMap()
        self.map.me = SimpleNamespace(node=node(ME))
        self.store = Store()
        self.begin()

    def begin(self):
        environment = SimpleNamespace(clock=SimpleNamespace(wall_ms=lambda: 1), random=random.Random(1))
        self.replication = Replication(
            self.store,
            lambda *_: None,
            environment,
            node(ME),
            ReplicationLimits(relay_s=0.2),
            waiting=ParkedRequests(1),
        )
        self.holding = Reconciler(
            local_tables(metadata=self.map, catalogue=self.map, replication=self.replication), WriteStats()
        )

    async def look(self, *steps):
        """Apply the steps to the map, and reconcile."""
        for step in steps:
            self.map.have(*step)
            self.holding.edited(TABLE, [shard_key(0)])
        await self.holding.look()
        await wait_all_tasks_blocked()

    async def restart(self):
        self.begin()
        await self.replication._find()

    async def write(self):
        (copy,) = self.replication.replicas.by_partition.values()
        self.replication.replicas.originate({copy: [RecordWrite(KEY, b"v")]})
        await wait_all_tasks_blocked()
        return copy

    def has(self, copy):
        """Return True if the record is in the replica's space."""
        return RECORD + KEY in self.store.records[copy.space]

    @property
    def copies(self):
        """Return the assignments of the active replicas."""
        return [copy.assignment for copy in self.replication.replicas.by_partition.values()]

    @property
    def aside(self):
        return [one.identity.assignment for one in self.replication.replicas.spaces.all_quarantined()]

    @property
    def departed(self):
        return [copy.assignment for copy in self.replication.departed]


COMES = (("assign", OTHER, node(OTHER), ME - 1), ("advance", OTHER, 2), ("advance", OTHER, 3))
GOES = ("unassign", ME)
FORCE = (FORCED, ME)


@pytest.mark.parametrize(
    ("seen", "missed"),
    [
        ([], [*COMES, GOES]),
        ([], [*COMES, GOES, ("settle", ((ME, 1),))]),
        ([], [FORCE]),
        (COMES, [FORCE]),
    ],
    ids=["away", "away until it is settled", "by force", "LEAVING, by force"],
)
async def test_what_others_may_lack_is_set_aside(seen, missed):
    """The replica takes no part in this life or a later one, and its records stay until operators drop them."""
    one = Node()
    await one.look()
    copy = await one.write()
    await one.look(*seen)
    await one.look(*missed)
    assert (one.copies, one.departed, one.aside) == ([], [], [ME])
    await one.restart()
    assert (one.copies, one.aside, one.has(copy)) == ([], [ME], True)
    await one.look()
    assert (one.copies, one.departed, one.aside) == ([], [], [ME])
    await one.replication.drop_quarantined(*one.replication.replicas.spaces.all_quarantined())
    await one.restart()
    await one.look()
    assert (one.copies, one.departed, one.aside) == ([], [], [])


async def test_what_others_have_is_to_be_dropped():
    """A replica last seen as LEAVING stays active until it is dropped, in later lives too."""
    one = Node()
    await one.look()
    await one.look(*COMES)
    await one.look(GOES)
    for _ in range(2):
        assert (one.copies, one.departed, one.aside) == ([ME], [ME], [])
        await one.restart()
        await one.look()
    (copy,) = one.replication.departed
    one.holding.drop(copy)
    await one.look()
    assert (one.copies, one.departed, one.store.records) == ([], [], {})


async def test_who_never_was_available_is_to_be_dropped():
    """No write depended on this replica alone."""
    one = Node()
    await one.look(FORCE, ("assign", OTHER, node(ME), ME - 1))
    assert one.copies == [OTHER]
    await one.look(("unassign", OTHER))
    for _ in range(2):
        assert (one.copies, one.departed, one.aside) == ([OTHER], [OTHER], [])
        await one.restart()
        await one.look()


async def test_who_comes_anew_begins_from_nothing():
    """Otherwise old values could win under new times; the quarantined replica stays beside the new one."""
    one = Node()
    await one.look()
    old = await one.write()
    await one.look(FORCE, ("assign", OTHER, node(ME), ME - 1))
    (new,) = one.replication.replicas.by_partition.values()
    assert (new.partition, new.assignment, one.aside) == (old.partition, OTHER, [ME])
    assert (one.has(old), one.has(new)) == (True, False)


async def test_who_comes_anew_waits_until_what_has_departed_is_dropped():
    """Other replicas may still lack some of its records."""
    one = Node()
    await one.look()
    await one.look(*COMES)
    await one.look(GOES, ("assign", 5, node(ME), 1))
    assert (one.copies, one.departed) == ([ME], [ME])
    await one.restart()
    await one.look()
    (copy,) = one.replication.departed
    one.holding.drop(copy)
    await one.look()
    assert (one.copies, one.departed, one.aside) == ([5], [], [])


async def test_what_has_departed_is_forgotten_with_its_table():
    """The end of another table changes nothing."""
    one = Node()
    await one.look()
    await one.look(*COMES)
    await one.look(GOES)
    one.map.on_forgotten(b"another")
    assert one.departed == [ME]
    one.map.on_forgotten(TABLE)
    assert (one.departed, one.replication.maps) == ([], {})


async def test_a_map_that_has_ended_is_not_taken_up():
    one = Node()
    one.map.known[TABLE].ended = True
    await one.look()
    assert one.copies == []


async def test_what_was_held_is_dropped_once_its_map_has_ended_and_is_forgotten():
    """The replica is neither kept for other nodes nor quarantined."""
    one = Node()
    await one.look()
    await one.write()
    one.map.known[TABLE].ended = True
    await one.look()
    assert one.copies == [ME]
    del one.map.known[TABLE]
    one.map.on_forgotten(TABLE)
    await one.look()
    assert (one.copies, one.departed, one.aside, one.store.records) == ([], [], [], {})


async def test_a_space_that_is_not_synced_yet_takes_nothing():
    """A request for sizes may come as a load begins."""
    one = Node()
    await one.look()
    copy = await one.write()
    assert one.replication.size_bytes(copy.space, copy.bounds) > 0
    assert one.replication.size_bytes(one.store.reserve_space(), copy.bounds) == 0
