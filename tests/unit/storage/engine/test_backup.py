"""Backups of a store that goes on, and stores restored from them, with all records up to the backup."""

from __future__ import annotations

import errno
import random
from pathlib import PurePosixPath

import pytest
import trio

from gossipkv.environment.real_files import RealFiles
from gossipkv.errors import Corrupt, StorageError
from gossipkv.storage.engine._engine import Batch
from gossipkv.storage.engine.backup import back_up, restore
from gossipkv.storage.engine.manifest import LOG, MANIFEST, RUNS, read_manifest, segment_path
from gossipkv.storage.engine.segments import WRITE
from tests.conformance.store import whole_log
from tests.unit.storage.engine.shell_world import DIRECTORY, TINY, World, made_space, put
from tests.world.blocking_store import Store
from tests.world.faulty_files import CHANGING, Action, Crash, Fault, FaultyFiles
from tests.world.simulated_files import SimulatedFiles

BACKUP = PurePosixPath("/backup")
ANOTHER = PurePosixPath("/another")


def filled(files, count=30):
    """Return an open store with space 1 and records in runs and in the log."""
    store = Store.open(DIRECTORY, files=files, random=random.Random(5), options=TINY)
    batch = Batch()
    batch.new_space(store.reserve_space())
    store.write(batch)
    for number in range(count):
        store.write(put(1, b"%d" % number, b"%04d" % number * 500))
    return store


def kept(store):
    engine = store.engine
    return back_up(store.files, engine.directory, engine.manifest, engine.unmerged(), BACKUP)


def restored(files, seed=8, place=ANOTHER):
    restore(files, BACKUP, place, random.Random(seed), segment_bytes=TINY.segment_bytes)
    return Store.open(place, files=files, random=random.Random(6), options=TINY)


def content(store, space=1):
    return dict(store.scan(space, most_bytes=1 << 30)[0])


def test_a_backup_is_another_store_with_the_same_records():
    """The new store has another id and its first life; positions continue, and no number of a space is reused."""
    files = SimulatedFiles()
    store = filled(files)
    assert store.manifest.young or store.manifest.oldest.files
    told = kept(store)
    assert told.position == store.engine.synced_position
    assert told.linked_bytes == sum(file.size_bytes for file in store.manifest.run_files)
    expected, log = content(store), whole_log(store, {1}, store.engine.log_floor)
    with restored(files) as another:
        assert another.manifest.store != store.manifest.store
        assert content(another) == expected
        assert another.reserve_space() == 2
        assert another.put(1, b"new", b"1") > told.position
        found = whole_log(another, {1}, another.engine.log_floor)
        assert found[:-1] == [one for one in log if one.position > another.engine.log_floor]
    store.put(1, b"on", b"1")
    store.close()


def test_two_of_one_backup_are_two_stores():
    """Two stores with one id and one life would use the same positions twice."""
    files = SimulatedFiles()
    store = filled(files)
    kept(store)
    store.close()
    with restored(files, 8) as one, restored(files, 9, PurePosixPath("/third")) as other:
        assert len({one.manifest.store, other.manifest.store, store.manifest.store}) == 3
        one.put(1, b"0", b"one")
        other.put(1, b"0", b"other")
        assert (one.get(1, b"0"), other.get(1, b"0")) == (b"one", b"other")


def test_a_backup_between_two_segments():
    """The first segment is full and names the second, which has no frame yet, so the backup has both."""
    files = SimulatedFiles()
    store = filled(files, count=4)
    expected = content(store)
    for number in range(100):
        store.engine.append(put(1, b"more %d" % number, bytes(2000)))
        group = store.engine.group()
        files.pwrite(group.descriptor, group.data, group.offset)
        files.sync(group.descriptor)
        store.engine.synced(group.position)
        if group.ends:
            break
        expected[b"more %d" % number] = bytes(2000)
    assert store.engine.upkeep.closed
    kept(store)
    store._let_go()
    with restored(files) as another:
        assert content(another) == expected


@pytest.mark.parametrize("number", [errno.EXDEV, errno.EPERM, errno.EMLINK])
def test_runs_are_copied_where_they_cannot_be_linked(number):
    """The target is another file system, or one without links."""
    disk = SimulatedFiles()
    store = filled(disk)
    store.files = FaultyFiles(disk, Fault(0, Action.FAIL, kinds={"link"}, error=number, lasting=True))
    told = kept(store)
    run_bytes = sum(file.size_bytes for file in store.manifest.run_files)
    assert told.linked_bytes == 0
    assert told.copied_bytes > run_bytes > 0
    expected = content(store)
    store.close()
    with restored(disk) as another:
        assert content(another) == expected


@pytest.mark.parametrize("target", ["backup", "another"])
def test_a_crash_at_every_step(target):
    """An unfinished backup or store is refused, and the source is unchanged."""
    disk = SimulatedFiles()
    store = filled(disk, count=12)
    expected = content(store)
    store.close()

    def run(files):
        manifest = read_manifest(files, DIRECTORY)
        with Store.open(DIRECTORY, files=disk_of(files), options=TINY, maintains=False) as source:
            manifest = source.manifest
            back_up(files if target == "backup" else files.inner, DIRECTORY, manifest, source.engine.unmerged(), BACKUP)
        if target == "another":
            restore(files, BACKUP, ANOTHER, random.Random(3), segment_bytes=TINY.segment_bytes)

    calm = FaultyFiles(disk.copied())
    run(calm)
    steps = sum(calm.counts[kind] for kind in CHANGING)
    assert steps > 10
    unfinished = 0
    for at in range(steps):
        for action in (Action.CRASH_BEFORE, Action.CRASH_AFTER):
            files = disk.copied()
            with pytest.raises(Crash):
                run(FaultyFiles(files, Fault(at, action, kinds=CHANGING)))
            files.close_all()
            files = files.power_loss(at)
            try:
                if target == "backup":
                    found = restored(files)
                else:
                    found = Store.open(ANOTHER, files=files, options=TINY, create=False)
            except StorageError:
                unfinished += 1
            else:
                assert content(found) == expected
                found.close()
            with Store.open(DIRECTORY, files=files, options=TINY) as source:
                assert content(source) == expected
    assert steps < unfinished < 2 * steps


def disk_of(files):
    return files.inner


def test_what_is_no_backup_is_not_put_back():
    """The backup is missing or unfinished, or the target is not empty."""
    files = SimulatedFiles()
    store = filled(files)
    with pytest.raises(StorageError, match="no backup here"):
        restored(files)
    kept(store)
    with pytest.raises(StorageError, match="not empty"):
        kept(store)
    with pytest.raises(StorageError, match="not empty"):
        restored(files, place=DIRECTORY)
    files.unlink(BACKUP / MANIFEST)
    with pytest.raises(StorageError, match="not finished"):
        restored(files)
    store.close()


def test_a_damaged_log_is_not_copied():
    """The copy stops, and the backup stays unfinished."""
    files = SimulatedFiles()
    store = filled(files, count=4)
    active = store.engine.unmerged()[-1]
    descriptor = files.open(segment_path(DIRECTORY, active.name.number), WRITE)
    files.pwrite(descriptor, b"?", active.end - 100)
    files.close(descriptor)
    with pytest.raises(Corrupt, match=r"\.log"):
        kept(store)
    with pytest.raises(StorageError, match="not finished"):
        restored(files)


def test_a_damaged_log_of_a_backup_is_refused():
    """A changed byte of a frame that was synced: the file is named, and no store is made."""
    files = SimulatedFiles()
    store = filled(files, count=4)
    kept(store)
    store.close()
    (segment, *_) = files.list_directory(BACKUP / LOG)
    path = BACKUP / LOG / segment.name
    descriptor = files.open(path, WRITE)
    files.pwrite(descriptor, b"?", segment.size_bytes // 8)
    files.close(descriptor)
    with pytest.raises(Corrupt, match=path.name):
        restored(files)
    with pytest.raises(StorageError):
        Store.open(ANOTHER, files=files, create=False)


def test_a_backup_that_lacks_files_is_refused():
    """A missing run or segment is refused with the file's name."""
    files = SimulatedFiles()
    store = filled(files)
    kept(store)
    store.close()
    (run, *_), (segment, *_) = files.list_directory(BACKUP / RUNS), files.list_directory(BACKUP / LOG)
    for path in (BACKUP / RUNS / run.name, BACKUP / LOG / segment.name):
        damaged = files.copied()
        damaged.unlink(path)
        with pytest.raises(Corrupt, match=path.name):
            restored(damaged)
        with pytest.raises(StorageError):
            Store.open(ANOTHER, files=damaged, create=False)


async def test_a_backup_while_writers_write(autojump_clock):
    """A backup at any moment has every write that was acknowledged before it began."""
    world = World()
    async with world.open() as store:
        space = await made_space(store)
        acknowledged = []

        async def write(first):
            for number in range(first, 120, 4):
                await store.write(put(space, b"%d" % number, b"%04d" % number * 300))
                acknowledged.append(number)
                await trio.sleep(0.01)

        backups = []
        async with trio.open_nursery() as nursery:
            for first in range(4):
                nursery.start_soon(write, first)
            while len(acknowledged) < 110:
                before = list(acknowledged)
                place = PurePosixPath(f"/backup {len(backups)}")
                told = await store.backup(place)
                backups.append((place, before, told.position))
                await trio.sleep(0.03)
        assert store.describe()["switches"] > 2
    assert len(backups) > 3
    for number, (place, before, position) in enumerate(backups):
        another = PurePosixPath(f"/another {number}")
        restore(world.files, place, another, random.Random(number), segment_bytes=TINY.segment_bytes)
        with Store.open(another, files=world.files, options=TINY) as found:
            there = content(found, space)
            assert set(before) <= set(map(int, there))
            assert all(value == b"%04d" % int(key) * 300 for key, value in there.items())
            assert found.put(space, b"on", b"1") > position


async def test_files_are_held_while_they_are_copied(autojump_clock):
    """Files that merges supersede during a backup are removed only afterwards."""
    world = World()
    async with world.open() as store:
        space = await made_space(store)
        for number in range(12):
            await store.write(put(space, b"%d" % number, bytes(2000)))
        await trio.sleep(1)
        upkeep = store.engine.upkeep
        upkeep.hold()
        names = {entry.name for part in (LOG, RUNS) for entry in world.files.list_directory(DIRECTORY / part)}
        for number in range(100):
            await store.write(put(space, b"%d" % number, bytes(2000)))
        await trio.sleep(10)
        assert names <= {entry.name for part in (LOG, RUNS) for entry in world.files.list_directory(DIRECTORY / part)}
        upkeep.release()
        await trio.sleep(20)
        left = {entry.name for entry in world.files.list_directory(DIRECTORY / RUNS)}
        assert left == {file.name for file in store.manifest.run_files}


async def test_a_backup_that_the_system_refuses(autojump_clock):
    """The error is raised, the store goes on, and files are no longer held."""
    faulty = FaultyFiles(SimulatedFiles())
    world = World(faulty)
    async with world.open() as store:
        space = await made_space(store)
        await store.write(put(space, b"a", b"1"))
        await trio.sleep(3)
        faulty.strike(Fault(0, Action.FAIL, kinds={"make_directory"}, error=errno.EROFS))
        with pytest.raises(OSError, match="Read-only"):
            await store.backup("/backup")
        assert store.engine.upkeep._holds == 0
        await store.write(put(space, b"b", b"1"))
        await store.backup("/backup")


def test_a_backup_on_a_real_disk(tmp_path):
    """Runs are hard links, and the backup stays when the store has moved on."""
    store = Store.open(tmp_path / "store", options=TINY)
    batch = Batch()
    batch.new_space(store.reserve_space())
    store.write(batch)
    for number in range(30):
        store.write(put(1, b"%d" % number, bytes(2000)))
    expected = content(store)
    back_up(RealFiles(), tmp_path / "store", store.manifest, store.engine.unmerged(), tmp_path / "backup")
    for file in store.manifest.run_files:
        assert (tmp_path / "backup" / RUNS / file.name).stat().st_nlink == 2
    for number in range(60):
        store.write(put(1, b"%d" % number, b"later"))
    store.close()
    restore(RealFiles(), tmp_path / "backup", tmp_path / "another", random.Random(1), segment_bytes=TINY.segment_bytes)
    with Store.open(tmp_path / "another", options=TINY) as another:
        assert content(another) == expected
