"""Files of backups: every backup that is listed can be read, whatever expires, is interrupted or is damaged."""

import os
import random
from dataclasses import replace

import pytest

from gossipkv.backup.archive import (
    MANIFEST,
    OWNER,
    Archive,
    BackupFile,
    BackupOwner,
    SavedPartition,
    SavedTable,
    Unfinished,
    backup_name,
)
from gossipkv.environment.real_files import RealFiles
from gossipkv.environment.seam import WRITE_NEW
from gossipkv.errors import BadRequest, Corrupt, StorageError, UnsupportedFormat
from gossipkv.keyspace.time_key import TimeKey
from tests.unit.backup import made_up
from tests.unit.backup.made_up import archive, begin, build, manifest_of, name_of, names, read, tidy, write
from tests.world.faulty_files import CHANGING, Action, Crash, Fault, FaultyFiles
from tests.world.simulated_files import SimulatedFiles


@pytest.fixture(params=["directory", "file", "memory"])
def place(request, tmp_path):
    """Return a destination on this machine: a directory, its URL, and a remote file system."""
    return {"directory": f"{tmp_path}/b", "file": f"file://{tmp_path}/b", "memory": f"memory://{tmp_path}"}[
        request.param
    ]


def everything(files, place=made_up.PLACE):
    """Return all files below a directory, each with its content."""
    found = {}
    for entry in files.list_directory(place):
        path = f"{place}/{entry.name}"
        if entry.kind == "directory":
            found |= everything(files, path)
        else:
            descriptor = files.open(path)
            found[path] = files.pread(descriptor, 1 << 20, 0)
            files.close(descriptor)
    return found


def test_a_manifest_is_read_as_it_was_written():
    kept = archive()
    name = begin(kept, 1)
    key = TimeKey(0, 8, "ms")
    partitions = tuple(
        SavedPartition(at << 60, bytes([at]) * at, b"\1" * 16, (BackupFile(f"{name}/{at}.gkv", at, 2),))
        for at in range(3)
    )
    timed = SavedTable(
        "t", "0f" * 16, "range", 3, "murmur3", key, smears=True, ttl_ms=5, retention_ms=9, partitions=partitions
    )
    tables = (timed, *manifest_of(name, ()).tables)
    written = manifest_of(name, (), datasets={"geo": {"active": "7", "hold": None}})
    written = type(written)(name, written.began, "c", "n1", name_of(0), tables, written.datasets)
    kept._at(name).put(MANIFEST, written.encode())
    assert kept.manifest(name) == written
    assert (names(kept), kept.newest()) == ([name], written)
    assert written.summary()["new_bytes"] == written.summary()["bytes"] == 3


def test_every_kind_of_destination(place):
    """A directory, its URL and a remote file system hold backups, which share files, and give them back."""
    kept = Archive(place, {}, RealFiles())
    assert names(kept) == []
    with pytest.raises(BadRequest, match="no complete backup is here"):
        kept.newest()
    first = write(kept, 1, {b"a": b"1", b"b": b""})
    second = write(kept, 2, {b"a": None, b"c": b"3"}, base=first)
    write(kept, 3, {b"x": b"y"}, finish=False)
    assert names(kept) == [first.name, second.name]
    assert read(kept, kept.newest()) == [(b"b", b""), (b"c", b"3")]
    tidy(kept)
    assert kept.expire([first.name]) == (0, [])
    assert read(kept, second) == [(b"b", b""), (b"c", b"3")]
    assert kept.expire([second.name]) == (sum(file.size_bytes for file in second.files.values()), [])
    assert kept._root.names() == []


@pytest.mark.parametrize("seed", range(8))
def test_generations_have_what_a_dict_has(seed):
    """Records are put, deleted and put again over generations; any backups may expire, and the others stay whole."""
    chance, kept, manifests, contents, content = random.Random(seed), archive(), [], {}, {}
    for number in range(1, 9):
        base = chance.choice([None, *manifests[-1:] * 3]) if manifests else None
        content = {} if base is None else dict(contents[base.name])
        changed = {b"%d" % chance.randrange(9): chance.choice([None, b"", b"%d" % number]) for _ in range(4)}
        if base is None:
            changed = {key: value for key, value in changed.items() if value is not None}
        content |= changed
        manifests.append(write(kept, number, changed, base=base))
        contents[manifests[-1].name] = {key: value for key, value in content.items() if value is not None}
        if chance.random() < 0.3:
            gone = chance.sample(manifests[:-1], min(2, len(manifests) - 1))
            kept.expire([one.name for one in gone])
            manifests = [one for one in manifests if one not in gone]
        assert [dict(read(kept, one)) for one in manifests] == [contents[one.name] for one in manifests]
        assert [kept.manifest(name) for name in names(kept)] == manifests
        needed = {f"{made_up.PLACE}/{path}" for one in manifests for path in one.files}
        assert {path for path in everything(kept._files) if path.endswith(".gkv")} == needed


@pytest.mark.parametrize("action", [Action.CRASH_BEFORE, Action.CRASH_AFTER])
def test_an_interrupted_expiry_is_finished_by_the_next_one(action):
    """At each step the remaining backups are whole; the next expiry removes all that the first one would have."""

    def begun(disk):
        kept = archive(disk)
        first = write(kept, 1, {b"a": b"1"})
        second = write(kept, 2, {b"b": b"2"}, base=first)
        write(kept, 3, {b"c": b"3"})
        return first, write(kept, 4, {b"a": None}, base=second)

    calm = SimulatedFiles()
    begun(calm)
    archive(calm).expire([name_of(1), name_of(2), name_of(3)])
    for step in range(99):
        disk = SimulatedFiles()
        _, last = begun(disk)
        faulty = FaultyFiles(disk, Fault(step, action, kinds=CHANGING))
        try:
            archive(faulty).expire([name_of(1), name_of(2), name_of(3)])
            break
        except Crash:
            kept = archive(disk)
        assert read(kept, last) == [(b"b", b"2")]
        kept.expire([name for name in names(kept) if name != last.name])
        assert everything(disk) == everything(calm)
    assert step > 4


@pytest.mark.parametrize("action", [Action.CRASH_BEFORE, Action.CRASH_AFTER])
def test_a_backup_that_is_killed_at_any_step_leaves_what_the_next_one_removes(action):
    """A backup's removal may be killed, too."""
    for step in range(99):
        disk = SimulatedFiles()
        faulty = FaultyFiles(disk, Fault(step, action, kinds=CHANGING))
        try:
            write(archive(faulty), 1, {b"a": b"1"}, finish=False)
            archive(faulty).remove(name_of(1))
            break
        except Crash:
            tidy(archive(disk))
        assert archive(disk)._root.names() == [], step
    assert step > 8


def test_unfinished_backups_of_owners_that_may_write_stay():
    """A start of a node that may still write keeps its backup; a complete one only loses its OWNER."""
    kept, asked = archive(), []
    runs, gone = begin(kept, 1, since=name_of(0)), begin(kept, 2, uuid="cd" * 16)
    done = write(kept, 3, {b"a": b"1"})
    kept._at(done.name).put(OWNER, kept._read(runs, OWNER))
    tidy(kept, lambda found: asked.append(found) or found.owner.uuid != made_up.UUID)
    owners = BackupOwner(made_up.UUID, 1, name_of(0)), BackupOwner("cd" * 16, 1, None)
    assert asked == [Unfinished(runs, owners[0], (OWNER,)), Unfinished(gone, owners[1], (OWNER,))]
    assert kept._root.names() == [runs, done.name]
    assert not kept._at(done.name).exists(OWNER)


def test_a_base_in_use_does_not_expire():
    """Neither is it removed, nor its files, if the backup since it begins in the middle of the expiry."""
    kept = archive()
    base, other = write(kept, 1, {b"a": b"1"}), write(kept, 2, {b"b": b"2"})
    begin(kept, 3, since=base.name)
    with pytest.raises(BadRequest, match=f"a backup since {base.name} is being written"):
        kept.expire([other.name, base.name])
    assert names(kept) == [base.name, other.name]
    kept._at(base.name).remove(MANIFEST)  # Another node had passed the check before.
    assert kept.expire([other.name]) == (0, [])
    late = manifest_of(name_of(3), base.files.values(), since=base.name)
    kept.finish(late, BackupOwner(made_up.UUID, 1, None))
    assert read(kept, late) == [(b"a", b"1")]
    assert kept.expire([late.name])[0] > 0
    assert kept._root.names() == []


def test_a_backup_that_is_finished_during_an_expiry_stays(monkeypatch):
    kept = archive()
    write(kept, 1, {b"a": b"1"})
    late = write(kept, 2, {b"b": b"2"}, finish=False)
    contents = kept.contents

    def finishes():
        found = contents()
        if late.name in found.unfinished:
            kept.finish(late, BackupOwner(made_up.UUID, 1, None))
        return found

    monkeypatch.setattr(kept, "contents", finishes)
    kept.expire([name_of(1)])
    monkeypatch.undo()
    assert read(kept, kept.newest()) == [(b"b", b"2")]


def test_other_directories_at_the_destination_stay():
    kept = archive()
    gone = write(kept, 1, {b"a": b"1"})
    for name in ("postgres", "empty"):
        with kept._at(name).workspace():
            pass
    kept._at("postgres").put("dump", b"content")
    tidy(kept)
    kept.expire([gone.name])
    assert kept._root.names() == ["empty", "postgres"]
    assert not kept.has("postgres")


def flip(disk, path):
    descriptor = disk.open(path)
    byte = disk.pread(descriptor, 1, 300)[0]
    disk.pwrite(descriptor, bytes([byte ^ 1]), 300)


def cut(disk, path):
    descriptor = disk.open(path)
    content = disk.pread(descriptor, 300, 0)
    disk.unlink(path)
    disk.pwrite(disk.open(path, WRITE_NEW), content, 0)


def exchange(disk, path):
    """Put another whole file in its place."""
    other = archive(disk)
    file = build(other, name_of(5), "9.gkv", {b"key": bytes(9999)})
    disk.rename(f"{made_up.PLACE}/{file.path}", path)


@pytest.mark.parametrize("harm", [flip, cut, exchange, lambda disk, path: disk.unlink(path)])
def test_a_damaged_file_is_reported_with_its_path(harm):
    kept = archive()
    made = write(kept, 1, {b"%d" % number: bytes(99) for number in range(200)})
    (path,) = (f"{made_up.PLACE}/{path}" for path in made.files)
    harm(kept._files, path)
    with pytest.raises(Corrupt) as caught:
        read(kept, made)
    assert caught.value.details["file"] == path


def test_a_file_with_another_count_is_reported():
    kept = archive()
    made = write(kept, 1, {b"a": b"1"})
    (file,) = made.files.values()
    with pytest.raises(Corrupt, match="must have 2 records, not 1"):
        kept.check(file._replace(records=2))


def test_a_damaged_manifest_is_reported_with_its_path():
    kept = archive()
    made = write(kept, 1, {b"a": b"1"})
    whole, path = made.encode(), f"{made_up.PLACE}/{made.name}/{MANIFEST}"
    foreign = manifest_of(made.name, [BackupFile("../passwd.gkv", 1, 1)]).encode()
    for damaged in (b"", whole[:9], whole[:-9], whole.replace(b"murmur3", b"murmur4"), foreign, b"no document"):
        kept._at(made.name).put(MANIFEST, damaged)
        with pytest.raises((Corrupt, UnsupportedFormat), match=path):
            kept.manifest(made.name)


@pytest.mark.parametrize("name", ["", "..", "../b", "no-backup", name_of(8)])
def test_there_is_no_such_backup(name):
    kept = archive()
    write(kept, 1, {b"a": b"1"})
    with pytest.raises(BadRequest, match=f"no complete backup .*the last backups are: {name_of(1)}"):
        kept.manifest(name)
    with pytest.raises(BadRequest):
        kept.expire([name_of(1), name])
    assert names(kept) == [name_of(1)]


def test_names_sort_by_time():
    """Backups of one second have their order, since the newest one is restored and the oldest ones expire."""
    names = [backup_name(1_700_000_000_000 + ms, number) for ms in range(0, 2000, 7) for number in (0, 63)]
    assert names == sorted(names)
    assert len({*names}) == len(names)


@pytest.mark.parametrize("trick", ["link", "pipe", "linked directory"])
def test_nothing_is_read_through_links_or_from_pipes(tmp_path, trick):
    """Those of an author who can write at the destination: the backup is damaged, and the others are listed."""
    kept = Archive(str(tmp_path / "b"), {}, RealFiles())
    good, bad = write(kept, 1, {b"a": b"1"}), write(kept, 2, {b"a": b"2"})
    place = tmp_path / "b" / bad.name
    if trick == "linked directory":
        place.rename(tmp_path / "elsewhere")
        place.symlink_to(tmp_path / "elsewhere")
    elif trick == "pipe":
        (place / MANIFEST).unlink()
        os.mkfifo(place / MANIFEST)
    else:
        (place / MANIFEST).rename(tmp_path / MANIFEST)
        (place / MANIFEST).symlink_to(tmp_path / MANIFEST)
    found = kept.contents()
    assert [*found.complete] == [good.name]
    assert "no link, pipe or device" in found.damaged[bad.name]
    kept.expire([bad.name])
    assert [*kept.contents().complete] == [good.name]
    assert kept._root.names() == [good.name]
    assert (tmp_path / "elsewhere" / MANIFEST).exists() is (trick == "linked directory")


def test_a_backup_that_lost_a_file_is_not_finished():
    """Another node removed it, or a part of it, while it was written."""
    mine = BackupOwner(made_up.UUID, 1, None)
    for lose, error in (
        (lambda kept, name: kept._at(name).remove("0.gkv"), "a file of the backup is missing"),
        (lambda kept, name: kept._root.remove(name), "another node removed this backup"),
        (lambda kept, name: kept.own(name, replace(mine, epoch=2)), "another node removed this backup"),
        (lambda kept, name: flip(kept._files, f"{kept.place}/{name}/0.gkv"), "damaged"),
    ):
        kept = archive()
        late = write(kept, 1, {b"a": b"1"}, finish=False)
        lose(kept, late.name)
        with pytest.raises((Corrupt, StorageError), match=error):
            kept.finish(late, mine)
        assert names(kept) == []
