"""The opening of a store: refusals and their reasons, crashes while a store is made, and the start of a new life."""

from __future__ import annotations

import errno
import os
import random
from dataclasses import replace

import pytest

from gossipkv.environment.real_files import RealFiles
from gossipkv.environment.seam import WRITE_NEW
from gossipkv.errors import Corrupt, Overloaded, StorageError, UnsupportedFormat
from gossipkv.storage.engine import opening, works
from gossipkv.storage.engine._engine import BEGIN, Batch, Memtable
from gossipkv.storage.engine.manifest import LOCK, MANIFEST, read_manifest, segment_path, write_manifest
from gossipkv.storage.engine.opening import open_store
from gossipkv.storage.engine.options import EngineOptions
from gossipkv.storage.engine.segments import SegmentReader
from tests.unit.storage.engine.shell_world import DIRECTORY, TINY, put
from tests.world.blocking_store import Store
from tests.world.faulty_files import CHANGING, Action, Crash, Fault, FaultyFiles
from tests.world.simulated_files import SimulatedFiles


def opened(files, options=TINY, **more):
    return Store.open(DIRECTORY, files=files, random=random.Random(5), options=options, **more)


def filled(files, options=TINY, count=30, **more):
    """Return an open store with space 1 and records in some segments."""
    store = opened(files, options, **more)
    batch = Batch()
    batch.new_space(store.reserve_space())
    store.write(batch)
    for number in range(count):
        store.write(put(1, b"%d" % number, b"%04d" % number * 500))
    return store


def holds(store, count=30):
    return [store.get(1, b"%d" % number) for number in range(count)] == [b"%04d" % at * 500 for at in range(count)]


def killed(store, files):
    store._let_go()
    files.close_all()


def test_each_opening_is_a_life():
    """The manifest has the life first; the life's first frame names it, far above the last position."""
    files = SimulatedFiles()
    before = 0
    for life in range(1, 5):
        store = opened(files)
        assert read_manifest(files, DIRECTORY).life == store.manifest.life == life
        assert store.engine.synced_position > before
        with SegmentReader(files, segment_path(DIRECTORY, store.engine.unmerged()[-1].name.number)) as reader:
            begins = [frame for frame in reader.frames() if frame.kind == BEGIN]
        assert int.from_bytes(begins[-1].payload, "little") == life
        assert begins[-1].position == (1 if life == 1 else before + (1 << 32))
        before = store.engine.position
        store.close()


@pytest.mark.parametrize(
    ("other", "remembered", "reason"),
    [(0, 3, None), (0, 2, None), (0, 1, "a newer copy"), (0, 4, "an older copy"), (1, 3, "another store")],
)
def test_only_what_is_expected_is_opened(other, remembered, reason):
    """The remembered life or its successor is opened; a refusal changes nothing."""
    files = SimulatedFiles()
    filled(files).close()
    opened(files).close()
    opened(files).close()
    known = read_manifest(files, DIRECTORY)
    assert known.life == 3
    expected = (known.store + other, remembered)
    if reason is None:
        with opened(files, expected=expected) as store:
            assert holds(store)
    else:
        with pytest.raises(UnsupportedFormat, match=reason):
            opened(files, expected=expected)
        assert read_manifest(files, DIRECTORY) == known


def test_none_is_made_where_one_is_expected():
    """Nor is a store made with `create=False`; not even a directory is."""
    files = SimulatedFiles()
    for more in ({"expected": (1, 1)}, {"create": False}):
        with pytest.raises(StorageError):
            opened(files, **more)
        assert files.list_directory("/") == []
    files.make_directory(DIRECTORY)
    with pytest.raises(StorageError, match="this directory has no store"):
        opened(files, create=False)


def test_remains_of_a_store_without_its_manifest():
    """With segments or files of runs left, no store is made in their place, and nothing is removed."""
    files = SimulatedFiles()
    filled(files).close()
    files.unlink(DIRECTORY / MANIFEST)
    for part in ("runs", "log"):
        names = files.list_directory(DIRECTORY / part)
        with pytest.raises(Corrupt, match=f"{part}/.*MANIFEST is missing"):
            opened(files)
        assert files.list_directory(DIRECTORY / part) == names
        for entry in names:
            files.unlink(DIRECTORY / part / entry.name)
    opened(files).close()


@pytest.mark.parametrize("action", [Action.CRASH_BEFORE, Action.CRASH_HALFWAY, Action.CRASH_AFTER])
def test_a_crash_while_it_is_made(action):
    """The next start finishes or finds the store, even after a loss of power."""
    calm = FaultyFiles(SimulatedFiles())
    opened(calm).close()
    for at in range(sum(calm.counts[kind] for kind in CHANGING)):
        for power in (None, 1, 2, 3):
            disk = SimulatedFiles()
            faulty = FaultyFiles(disk, Fault(at, action, kinds=CHANGING))
            with pytest.raises(Crash):
                opened(faulty).close()
            disk.close_all()
            if power is not None:
                disk = disk.power_loss(power)
            filled(disk, count=1).close()
            with opened(disk) as store:
                assert holds(store, 1)


def test_a_disk_that_refuses_leaves_no_lock():
    """After any failure the next attempt can take the lock."""
    files = SimulatedFiles()
    filled(files).close()
    kinds = CHANGING | {"open", "pread", "map", "size", "lock", "list_directory"}
    calm = FaultyFiles(files.copied())
    opened(calm).close()
    for at in range(0, sum(calm.counts[kind] for kind in kinds), 3):
        disk = files.copied()
        faulty = FaultyFiles(disk, Fault(at, Action.FAIL, kinds=kinds, error=errno.EMFILE))
        try:
            opened(faulty).close()
        except (StorageError, OSError):
            faulty.strike()
            with opened(faulty) as store:
                assert holds(store)


def test_a_directory_that_was_copied():
    """A copy is the same store; an older copy is refused by a node that remembers the newer life."""
    files = SimulatedFiles()
    filled(files).close()
    copy = files.copied()
    with opened(copy) as store:
        assert holds(store)
        assert store.manifest.store == read_manifest(files, DIRECTORY).store
    opened(copy).close()
    ahead = read_manifest(copy, DIRECTORY)
    with pytest.raises(UnsupportedFormat, match="older"):
        opened(files, expected=(ahead.store, ahead.life))


def test_a_directory_that_was_copied_while_it_was_written():
    """A copy taken file by file is right up to some position, or refused."""
    outcomes = set()
    for skew in range(12):
        files = SimulatedFiles()
        store = filled(files, count=4)
        copy = SimulatedFiles()
        for place in (DIRECTORY, DIRECTORY / "log", DIRECTORY / "runs"):
            copy.make_directory(place)
        count = 4
        for place in (DIRECTORY, DIRECTORY / "runs", DIRECTORY / "log"):
            for entry in files.list_directory(place):
                if entry.kind == "file":
                    take(files, copy, place / entry.name)
            for _ in range(skew):
                store.write(put(1, b"%d" % count, b"%04d" % count * 500))
                count += 1
        store.close()
        try:
            with opened(copy) as found:
                there = [found.get(1, b"%d" % number) for number in range(count)]
                whole = there.index(None) if None in there else count
                assert whole >= 4
                assert there == [*(b"%04d" % at * 500 for at in range(whole)), *[None] * (count - whole)]
                outcomes.add("right")
        except Corrupt:
            outcomes.add("refused")
    assert "right" in outcomes


def take(files, copy, path):
    source, target = files.open(path), copy.open(path, WRITE_NEW)
    copy.pwrite(target, files.pread(source, files.size(source), 0), 0)
    files.close(source)
    copy.close(target)


def test_an_older_manifest_of_the_same_life():
    """The files exist but are no longer the store's, so the opening is refused with the reason."""
    files = SimulatedFiles()
    options = replace(TINY, table_log=1 << 20)
    store = filled(files, options, count=2)
    older = store.manifest
    assert older.life == 1
    for number in range(40):
        store.write(put(1, b"%d" % number, bytes(2000)))
    assert store.manifest.recovery_floor.number > older.recovery_floor.number + 1
    store.close()
    write_manifest(files, DIRECTORY, older)
    with pytest.raises(Corrupt, match=r"MANIFEST.*the manifest is too old"):
        opened(files, options)


def test_the_clock_says_nothing(monkeypatch):
    files = SimulatedFiles()
    filled(files).close()
    for now in (0.0, 1e12, -5.0):
        monkeypatch.setattr("time.time", lambda now=now: now)
        with opened(files) as store:
            assert holds(store)


def test_what_nobody_names_is_removed_and_told():
    """An unfinished merge's files and unnamed segments are removed; a failed removal does not stop the others."""
    files = SimulatedFiles()
    filled(files).close()
    names = [DIRECTORY / "log" / f"{9999:016d}.log", *(DIRECTORY / "runs" / name for name in ("a.gkv", "b.gkv.tmp"))]
    for path in names:
        files.close(files.open(path, WRITE_NEW))
    files.make_directory(DIRECTORY / "runs" / "a directory")
    with opened(FaultyFiles(files, Fault(0, Action.FAIL, kinds={"unlink"}))) as store:
        # The first file to be removed stays until the next start.
        assert set(store.removed) == set(map(str, names))
        assert holds(store)
    assert sum(is_there(files, path) for path in names) <= 1
    with opened(files) as store:
        assert len(store.removed) <= 1
    assert not any(is_there(files, path) for path in names)
    assert len(files.list_directory(DIRECTORY / "log")) == len(store.engine.log())


def is_there(files, path):
    try:
        files.stat(path)
    except FileNotFoundError:
        return False
    return True


def test_a_full_disk_that_a_crash_has_filled():
    """Leftovers of an unfinished merge are removed before the start needs room."""
    files = SimulatedFiles()
    filled(files).close()
    descriptor = files.open(DIRECTORY / "runs" / "00000099-0001.gkv.tmp", WRITE_NEW)
    files.allocate(descriptor, 0, 1 << 20)
    files.close(descriptor)
    files.capacity_bytes = files.capacity_bytes - files.free_bytes("/")
    with opened(files) as store:
        assert holds(store)


def test_a_full_disk_ends_no_reads_at_a_start():
    """The log is readable with room for its present records only; writes are refused until there is more."""
    files = SimulatedFiles()
    options = replace(TINY, segment_bytes=1 << 20)
    filled(files, options, count=3).close()
    works.reserve(files, DIRECTORY, 0)
    files.capacity_bytes = files.capacity_bytes - files.free_bytes("/") + (64 << 10)
    with opened(files, options) as store:
        assert holds(store, 3)
        with pytest.raises(Overloaded, match="the store takes no writes now"):
            store.write(put(1, b"a", bytes(10_000)))
        files.capacity_bytes += 64 << 20
        store.maintain()
        store.write(put(1, b"a", bytes(10_000)))
    with opened(files, options) as store:
        assert holds(store, 3)
        assert store.get(1, b"a") == bytes(10_000)


def test_debt_of_a_drop_that_only_the_log_has():
    """The start counts a dropped space's bytes in runs as the drop itself did."""
    files = SimulatedFiles()
    options = replace(TINY, file_bytes=1 << 20)
    store = filled(files, options, count=60)
    assert store.manifest.young or store.manifest.oldest.files
    batch = Batch()
    batch.drop_space(1)
    store.append(batch)
    store.commit()
    owed = store.engine.upkeep.dropped_bytes
    assert owed > 10_000
    killed(store, files)
    with opened(files, options, maintains=False) as store:
        assert 1 not in store.engine.spaces
        assert store.engine.upkeep.dropped_bytes > owed / 2


def test_other_sizes_than_before():
    """The segments may be longer or shorter than before."""
    files = SimulatedFiles()
    store = filled(files, replace(TINY, segment_bytes=1 << 20), count=30)
    killed(store, files)
    for segment_bytes in (24 << 10, 48 << 10, 16 << 10, 1 << 20):
        with opened(files, replace(TINY, segment_bytes=segment_bytes)) as store:
            assert holds(store)
            store.write(put(1, b"%d" % segment_bytes, bytes(2000)))
    with opened(files) as store:
        assert store.get(1, b"%d" % (16 << 10)) == bytes(2000)


def test_what_is_opened_has_a_lock_that_is_whose_it_is(tmp_path):
    """`open_store` hands over the lock, which excludes others until it is closed."""
    files = RealFiles()
    found = open_store(files, tmp_path / "store", TINY, random.Random(1))
    other = os.open(tmp_path / "store" / LOCK, os.O_RDWR)
    with pytest.raises(BlockingIOError):
        files.lock(other)
    for descriptor in (found.lock, *found.engine.descriptors):
        files.close(descriptor)
    files.lock(other)
    os.close(other)


def test_a_memtable_is_made_for_a_segment_and_not_for_a_batch(monkeypatch):
    """An opening that applies many batches makes one memtable."""
    files = SimulatedFiles()
    killed(filled(files, EngineOptions()), files)
    made = []

    def make(most_bytes):
        made.append(most_bytes)
        return Memtable(most_bytes)

    monkeypatch.setattr(opening, "Memtable", make)
    store = opened(files, EngineOptions())
    assert holds(store)
    assert len(made) == 1
    store.close()
