"""Expired records leave a store with its merges: its sizes and answers over hours of a virtual clock."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import PurePosixPath

import msgpack
import pytest

from gossipkv.replication._replication import ExpiryFilter
from gossipkv.replication.replica import record
from gossipkv.storage.engine._engine import Batch
from gossipkv.storage.engine.merge import ExpiryRule
from gossipkv.storage.engine.options import EngineOptions
from tests.unit.storage.engine import merge_world
from tests.world.blocking_store import Store
from tests.world.simulated_files import SimulatedFiles

OPTIONS = EngineOptions(segment_bytes=32 << 10, table_log=1, file_bytes=32 << 10, stretch_bytes=64 << 10)
HOUR_MS = 3_600_000
MINUTE_MS = 60_000
SKEW_MS = MINUTE_MS
BATCH = 20
ORIGIN = 7


class World:
    """A store of one replica, whose records up to counter `settled` all replicas have."""

    def __init__(self):
        files = SimulatedFiles()
        files.make_directory("/data")
        self.now_ms = 1 << 40
        self.settled = 1 << 40
        self.count = 0
        self.random = random.Random(1)
        self.store = Store.open(PurePosixPath("/data/store"), files=files, random=self.random, options=OPTIONS)
        self.space = self.store.reserve_space()
        batch = Batch()
        batch.new_space(self.space)
        self.store.write(batch)
        rule = ExpiryRule(ExpiryFilter.__module__, ExpiryFilter.__name__, lambda: self.now_ms, self.rows)
        self.store.engine.expiry = rule
        self.live = {}  # The expiry of each key; 0: none.

    def rows(self, keys):
        horizon_ms = self.now_ms - SKEW_MS
        yield msgpack.packb((b"", b"", b"", None, horizon_ms))
        if keys is not None:
            space = self.space.to_bytes(4, "big")
            settled = ORIGIN.to_bytes(8, "big") + self.settled.to_bytes(8, "big")
            yield msgpack.packb((space + b"\1", space + b"\2", settled, None, horizon_ms))

    def put(self, keys, ttl_ms):
        """Put records; `ttl_ms` returns the lifetime of each, 0 without an end."""
        batch = Batch()
        for key in keys:
            self.count += 1
            ttl = ttl_ms()
            kind, expiry = (record.EXPIRING, self.now_ms + ttl) if ttl else (record.PUT, 0)
            head = (self.now_ms << 16, ORIGIN, self.count, kind, b"")
            batch.put(self.space, b"\1" + key, record.encode(*head, self.random.randbytes(100), expiry))
            self.live[key] = expiry
        self.store.write(batch)

    def fill(self, count, ttl_ms):
        for at in range(0, count, BATCH):
            self.put([b"%016x" % self.random.getrandbits(64) for _ in range(min(BATCH, count - at))], ttl_ms)

    def pass_ms(self, ms):
        self.now_ms += ms
        self.store.maintain()

    @property
    def present(self):
        """The keys that have not expired."""
        self.live = {key: expiry for key, expiry in self.live.items() if not 0 < expiry <= self.now_ms}
        return self.live.keys()

    @property
    def read(self):
        """The keys that a reader sees."""
        found, start = set(), b"\1"
        while start is not None:
            rows, start = self.store.scan(self.space, start, b"\2")
            found |= {key[1:] for key, data in rows if record.value(data, self.now_ms) is not None}
        return found

    @property
    def amplification(self):
        """The bytes of the runs to those of the records that are present, without what the memtables have."""
        manifest = self.store.manifest
        size_bytes = sum(file.size_bytes for file in manifest.run_files)
        return size_bytes / (len(self.present) * RECORD_BYTES)


RECORD_BYTES = 160  # A record, with its share of the index of a file without expired records.


def half_life(world):
    """Return lifetimes by which half of all records expire each hour."""
    return lambda: int(world.random.expovariate(0.693) * HOUR_MS) + 1


@pytest.mark.parametrize("writes", [0, 1500], ids=["without new records", "with as many new ones"])
def test_the_space_of_a_table_of_which_half_expires_each_hour(writes):
    """It stays below 1.6 times that of the records that are present, and nothing else ever vanishes."""
    world = World()
    world.fill(3000, half_life(world))
    seen = []
    for _ in range(24):
        world.fill(writes // 12, half_life(world))
        world.pass_ms(5 * MINUTE_MS)
        seen.append(world.amplification)
    assert max(seen) <= 1.6
    assert world.read == world.present
    assert world.store.engine.counts.merged_bytes <= 6 * world.count * RECORD_BYTES, "the flush is one of six"


def test_all_of_an_idle_table_leaves_in_the_end():
    """Tombstones of young runs leave as well, even though nothing is written any more."""
    world = World()
    world.fill(3000, half_life(world))
    for _ in range(20):
        world.pass_ms(HOUR_MS)
    assert sum(file.records for file in world.store.manifest.run_files) == 0


def test_a_record_that_a_replica_lacks_stays():
    """Files with expired records that are still needed are rewritten every ten minutes at most."""
    world = World()
    world.settled = 0
    world.fill(3000, lambda: HOUR_MS)
    world.pass_ms(2 * HOUR_MS)
    merged_bytes = world.store.engine.counts.merged_bytes
    for _ in range(9):
        world.pass_ms(MINUTE_MS)
    assert world.store.engine.counts.merged_bytes == merged_bytes
    records = sum(file.records for file in world.store.manifest.run_files)
    world.settled = world.count
    world.pass_ms(2 * MINUTE_MS)
    assert sum(file.records - file.tombstones for file in world.store.manifest.run_files) < records / 10


def test_an_older_record_without_an_expiry_does_not_return():
    """A tombstone takes the place of an expired record in a young run, and hides the record in the oldest run."""
    world = World()
    keys = [b"%016x" % number for number in range(2000)]
    for at in range(0, len(keys), BATCH):
        world.put(keys[at : at + BATCH], lambda: 0)
    while world.store.manifest.young:  # Grow the oldest run until it is much larger than the expiring records.
        world.fill(BATCH, lambda: 0)
    for at in range(0, 200, BATCH):
        world.put(keys[at : at + BATCH], lambda: MINUTE_MS)
    assert world.store.manifest.young
    world.pass_ms(HOUR_MS)
    assert sum(file.tombstones for run in world.store.manifest.young for file in run.files)
    assert world.read == world.present


def expiring(number, expiry):
    return b"\1" + record.encode(0, ORIGIN, number + 1, record.EXPIRING if expiry else record.PUT, b"", b"v", expiry)


def third_ms(records):
    """Return the time by which a third of the bytes of records has expired; 0: never."""
    ends = sorted((record.expires_ms(value[1:]) or 1 << 60, len(key) + len(value)) for key, value in records.items())
    left = sum(size for _, size in ends) / 3
    for end, size in ends:
        left -= size
        if left <= 0:
            return end % (1 << 60)
    raise AssertionError(records)


@pytest.mark.parametrize("share", [0, 2, 4, 5, 10])
def test_the_time_by_which_a_third_of_a_file_has_expired(share):
    """The time is found from samples, to a few hundredths; 0 means that fewer records have an expiry."""
    world = merge_world.World(SimulatedFiles(), "/store")
    world.files.make_directory("/store")
    world.files.make_directory("/store/runs")
    records = {
        b"\0\0\0\1\1%06d" % number: expiring(number, number % 97 * 10 + 1 if number % 10 < share else 0)
        for number in range(5000)
    }
    for part in (0, 1):
        world.add_young([{key: value for key, value in records.items() if key[-1] % 2 == part}])
    rule = ExpiryRule(ExpiryFilter.__module__, ExpiryFilter.__name__, lambda: 0, lambda _: ())
    order = world.order(world.young, {1}).with_expiry(rule, [msgpack.packb((b"", b"", b"", None, 0))])
    (file,) = world.merge(order)[0].files
    assert file.expiring == 500 * share
    assert file.stale_ms == pytest.approx(third_ms(records), abs=30)


def test_a_sweep_rewrites_stale_files_alone():
    """Files between them stay as they are; a file without any record left vanishes."""
    world = merge_world.World(SimulatedFiles(), "/store")
    world.files.make_directory("/store")
    world.files.make_directory("/store/runs")
    files = [
        [(file * 10 + at, MINUTE_MS if at < lost else 0) for at in range(10)]
        for file, lost in enumerate((0, 10, 5, 0, 5))
    ]
    world.add_oldest(
        [{b"\0\0\0\1\1%03d" % number: expiring(number, expiry) for number, expiry in one} for one in files]
    )
    stale = [file._replace(stale_ms=int(at in {1, 2, 4})) for at, file in enumerate(world.oldest)]
    space = (1).to_bytes(4, "big")
    settled = ORIGIN.to_bytes(8, "big") + (1000).to_bytes(8, "big")
    rows = [(b"", b"", b"", None, HOUR_MS), (space + b"\1", space + b"\2", settled, None, HOUR_MS)]
    rule = ExpiryRule(ExpiryFilter.__module__, ExpiryFilter.__name__, lambda: HOUR_MS, lambda _: ())
    order = replace(world.order_into_oldest({1}), runs=(tuple(stale),), sweeps=True)
    (output,) = world.merge(order.with_expiry(rule, map(msgpack.packb, rows)))
    assert output.replaced == tuple(stale[at].name for at in (1, 2, 4))
    assert [(file.records, file.first[-3:], file.last[-3:]) for file in output.files] == [
        (5, b"025", b"029"),
        (5, b"045", b"049"),
    ]
