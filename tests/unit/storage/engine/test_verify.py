"""A store is checked without being opened: flipped bytes are named, and a growing log is no damage."""

from __future__ import annotations

import zlib
from dataclasses import replace

import pytest

from gossipkv.environment.seam import WRITE_NEW
from gossipkv.errors import Corrupt, StorageError
from gossipkv.storage.builder import SortedFileBuilder
from gossipkv.storage.engine import verify
from gossipkv.storage.engine.manifest import RunFile, SortedRun, segment_path, write_manifest
from gossipkv.storage.engine.verify import verify_store
from tests.unit.storage.engine.logs import ROOT, Log


def made(**options) -> Log:
    """Return a store of three segments, in its second life."""
    log = Log.made(**options)
    for number in range(60):
        log.put(200)
        if number % 7 == 0:
            log.mark()
    log.mark()
    log = log.reopened()
    for _ in range(5):
        log.put()
    log.mark()
    write_manifest(log.files, ROOT, log.manifest)
    return log


def checked(log: Log) -> dict[str, str | None]:
    """Return the damage of each file, by its name."""
    return {one.path.name: one.trouble and str(one.trouble) for one in verify_store(log.files, ROOT, lambda _: None)}


def test_a_whole_store():
    """The manifest and each segment are checked, and the checked bytes reported."""
    log = made()
    seen = []
    found = verify_store(log.files, ROOT, seen.append)
    assert [one.trouble for one in found] == [None] * len(found)
    assert len(found) > 3
    assert sum(seen) == sum(one.size_bytes for one in found) > 10_000


def test_any_flipped_byte_of_the_log():
    """Damage to the manifest, or to a segment up to the last mark, is named, and nothing is changed."""
    log = made()
    ends = {one.path: one.size_bytes for one in verify_store(log.files, ROOT, lambda _: None)}
    for path, end in ends.items():
        for at in [*range(0, 62, 3), *range(4096 + 1, end, 331)]:
            descriptor = log.files.open(path, 2)
            (byte,) = log.files.pread(descriptor, 1, at) or b"\0"
            if at < end and not (62 < at < 4096 and path.suffix == ".log"):
                log.files.pwrite(descriptor, bytes([byte ^ 4]), at)
                troubled = [name for name, trouble in checked(log).items() if trouble]
                assert troubled == [path.name], (path, at)
                log.files.pwrite(descriptor, bytes([byte]), at)
            log.files.close(descriptor)
    assert not any(checked(log).values())


def test_what_is_missing():
    log = made()
    log.files.unlink(segment_path(ROOT, log.manifest.log_floor.number))
    assert checked(log)["0000000000000001.log"] is not None
    log.files.unlink(ROOT / "MANIFEST")
    assert checked(log) == {"MANIFEST": f"{ROOT}/MANIFEST: damaged at byte 0: the manifest of the store is missing"}


def test_a_log_that_is_written_meanwhile(monkeypatch):
    """Damage that a second look does not find at the same place is the end of a growing log."""
    log = made()
    read, looks = verify._read_log, []

    def look(files, directory, manifest):
        looks.append(None)
        if len(looks) < 4:
            raise Corrupt(str(segment_path(ROOT, 3)), 4096 + len(looks), "the end, a moment ago")
        return read(files, directory, manifest)

    monkeypatch.setattr(verify, "_read_log", look)
    assert not any(checked(log).values())
    assert len(looks) == 4
    monkeypatch.setattr(verify, "_read_log", lambda *_: (_ for _ in ()).throw(Corrupt(f"{ROOT}/log/x", 7, "torn")))
    assert checked(log)["x"] == f"{ROOT}/log/x: damaged at byte 7: torn"


@pytest.fixture
def with_run(tmp_path) -> Log:
    """Return a store with a run of one file."""
    log = made()
    with SortedFileBuilder(str(tmp_path), ["a.gkv"]) as builder:
        for number in range(500):
            builder.add(b"%08d" % number, b"\1value", 0)
        builder.finish()
    data = (tmp_path / "a.gkv").read_bytes()
    log.files.make_directory(ROOT / "runs")
    descriptor = log.files.open(ROOT / "runs" / "a.gkv", WRITE_NEW)
    log.files.pwrite(descriptor, data, 0)
    log.files.close(descriptor)
    file = RunFile("a.gkv", 500, len(data), zlib.crc32(data[-256:]), b"00000000", b"00000499")
    log.manifest = replace(log.manifest, oldest=SortedRun((file,)))
    write_manifest(log.files, ROOT, log.manifest)
    return log


def test_a_run(with_run):
    """Damaged bytes, a wrong size, and a missing file are found."""
    log, path = with_run, ROOT / "runs" / "a.gkv"
    assert not any(checked(log).values())
    descriptor = log.files.open(path, 2)
    size_bytes = log.files.size(descriptor)
    for at in range(5, size_bytes, 701):
        (byte,) = log.files.pread(descriptor, 1, at)
        log.files.pwrite(descriptor, bytes([byte ^ 4]), at)
        assert [name for name, trouble in checked(log).items() if trouble] == ["a.gkv"], at
        log.files.pwrite(descriptor, bytes([byte]), at)
    log.files.pwrite(descriptor, b"?", size_bytes)
    log.files.close(descriptor)
    assert "the size does not match the manifest" in str(checked(log)["a.gkv"])
    log.files.unlink(path)
    assert "the file is missing" in str(checked(log)["a.gkv"])


def test_a_file_that_was_merged_meanwhile(with_run, monkeypatch):
    """The file is gone, and the newer manifest does not name it."""
    log, check = with_run, verify._check_run

    def merge_first(files, *rest):
        write_manifest(files, ROOT, replace(log.manifest, oldest=SortedRun(())))
        files.unlink(ROOT / "runs" / "a.gkv")
        return check(files, *rest)

    monkeypatch.setattr(verify, "_check_run", merge_first)
    found = checked(log)
    assert "a.gkv" not in found
    assert not any(found.values())


def test_a_disk_that_refuses(with_run, monkeypatch):
    """The error is reported for the file, and the other files are checked."""
    log = with_run
    opened = log.files.open

    def refuse(path, *rest):
        if str(path).endswith("a.gkv"):
            raise OSError(5, "Input/output error", str(path))
        return opened(path, *rest)

    monkeypatch.setattr(log.files, "open", refuse)
    troubles = [one.trouble for one in verify_store(log.files, ROOT, lambda _: None) if one.trouble]
    assert [type(trouble) for trouble in troubles] == [StorageError]
    assert "Input/output error" in str(troubles[0])
