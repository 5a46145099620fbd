"""The real files do more than pass system calls on."""

import errno
import os
import threading
import time

import pytest

from gossipkv.environment import seam
from gossipkv.environment.real_files import SYNCS_AT_ONCE, BuildFiles, RealClock, RealFiles
from gossipkv.environment.seam import READ_WRITE_NEW


def test_a_short_write_is_continued(tmp_path, monkeypatch):
    """The system may write only a part."""
    sizes = []

    def short(descriptor, data, offset, write=os.pwrite):
        sizes.append(len(data))
        return write(descriptor, data[:3], offset)

    monkeypatch.setattr(seam.os, "pwrite", short)
    files = RealFiles()
    descriptor = files.open(tmp_path / "a", READ_WRITE_NEW)
    files.pwrite(descriptor, memoryview(b"0123456789").cast("H"), 1)
    files.close(descriptor)
    assert (tmp_path / "a").read_bytes() == b"\x000123456789"
    assert sizes == [10, 7, 4, 1]


def test_a_short_read_is_continued(tmp_path, monkeypatch):
    (tmp_path / "a").write_bytes(b"0123456789")
    monkeypatch.setattr(
        seam.os, "pread", lambda descriptor, size, offset, read=os.pread: read(descriptor, min(size, 3), offset)
    )
    files = RealFiles()
    descriptor = files.open(tmp_path / "a")
    assert files.pread(descriptor, 8, 1) == b"12345678"
    assert files.pread(descriptor, 100, 8) == b"89"
    assert files.pread(descriptor, 100, 10) == b""
    files.close(descriptor)


def test_what_is_allocated_has_room(tmp_path):
    """The file has blocks, and no hole."""
    files = RealFiles()
    descriptor = files.open(tmp_path / "a", READ_WRITE_NEW)
    files.allocate(descriptor, 0, 1 << 20)
    assert os.fstat(descriptor).st_blocks * 512 >= 1 << 20
    files.close(descriptor)


@pytest.mark.parametrize("error", [None, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL, errno.EPERM])
def test_a_file_system_that_cannot_allocate_gets_zeros(tmp_path, monkeypatch, error):
    """The space is written behind the bytes that are there, so that later writes need no room."""

    def refuses(*_):
        raise OSError(error, os.strerror(error))

    if error is None:
        monkeypatch.delattr(seam.os, "posix_fallocate")
    else:
        monkeypatch.setattr(seam.os, "posix_fallocate", refuses)
    files = RealFiles()
    descriptor = files.open(tmp_path / "a", READ_WRITE_NEW)
    files.pwrite(descriptor, b"hello", 0)
    files.allocate(descriptor, 2, 3 << 20)
    assert files.size(descriptor) == 2 + (3 << 20)
    assert os.fstat(descriptor).st_blocks * 512 >= 3 << 20
    assert files.pread(descriptor, 6, 0) == b"hello\0"
    files.close(descriptor)


def test_an_allocation_beyond_the_disk_is_not_tried(tmp_path, monkeypatch):
    """The system would fill the disk first, and refuse then."""
    monkeypatch.setattr(seam.os, "posix_fallocate", lambda *_: pytest.fail("the system was asked"))
    files = RealFiles()
    descriptor = files.open(tmp_path / "a", READ_WRITE_NEW)
    with pytest.raises(OSError, match="space") as caught:
        files.allocate(descriptor, 0, files.free_bytes(tmp_path) + (1 << 40))
    assert caught.value.errno == errno.ENOSPC
    files.close(descriptor)


def test_a_refused_allocation_leaves_nothing(tmp_path, monkeypatch):
    """The partial allocation is given back, and earlier bytes stay."""

    def fills_up(descriptor, offset, size_bytes, allocate=os.posix_fallocate):
        allocate(descriptor, offset, size_bytes // 2)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(seam.os, "posix_fallocate", fills_up)
    files = RealFiles()
    descriptor = files.open(tmp_path / "a", READ_WRITE_NEW)
    files.pwrite(descriptor, b"hello", 0)
    with pytest.raises(OSError, match="space"):
        files.allocate(descriptor, 2, 1 << 20)
    assert os.fstat(descriptor).st_blocks * 512 < 1 << 19
    assert files.pread(descriptor, 100, 0) == b"hello"
    files.close(descriptor)


def test_descriptors_are_not_inherited(tmp_path):
    """A child of a node holds none of its files, and not its lock."""
    files = RealFiles()
    descriptor = files.open(tmp_path / "a", READ_WRITE_NEW)
    assert not os.get_inheritable(descriptor)
    files.close(descriptor)


def test_a_map_outlives_its_descriptor(tmp_path):
    """The map also outlives its file's name."""
    (tmp_path / "a").write_bytes(b"hello world")
    files = RealFiles()
    descriptor = files.open(tmp_path / "a")
    mapped = files.map(descriptor, 5)
    files.close(descriptor)
    files.unlink(tmp_path / "a")
    with memoryview(mapped) as view:
        assert view.readonly
        assert bytes(view) == b"hello"


def test_an_entry_that_goes_while_it_is_listed_is_passed_over(tmp_path, monkeypatch):
    for name in ("a", "b"):
        (tmp_path / name).touch()

    class Gone:
        name = "gone"

        def stat(self, *, follow_symlinks):
            raise FileNotFoundError

    class Listing(list):
        def __enter__(self):
            return self

        def __exit__(self, *_):
            return None

    with os.scandir(tmp_path) as found:
        entries = Listing([*found, Gone()])
    monkeypatch.setattr(seam.os, "scandir", lambda _: entries)
    assert [entry.name for entry in RealFiles().list_directory(tmp_path)] == ["a", "b"]


def test_kinds_are_told_apart(tmp_path):
    """Links are not followed."""
    (tmp_path / "file").touch()
    (tmp_path / "directory").mkdir()
    (tmp_path / "link").symlink_to("file")
    os.mkfifo(tmp_path / "other")
    entries = RealFiles().list_directory(tmp_path)
    assert [entry.kind for entry in entries] == [entry.name for entry in entries]
    assert [RealFiles().stat(tmp_path / entry.name) for entry in entries] == entries


def test_the_clocks_are_the_systems():
    """One clock only goes forward, the other one is wall time."""
    clock = RealClock()
    assert clock.monotonic_ns() <= clock.monotonic_ns()
    assert abs(clock.wall_ms() - time.time() * 1000) < 60_000


def synced(files, directory, count):
    """Write and sync files that are called by their numbers."""
    for number in range(count):
        descriptor = files.open(directory / str(number), READ_WRITE_NEW)
        files.sync(descriptor)
        files.close(descriptor)


def test_a_rename_waits_for_syncs_that_run_side_by_side(tmp_path, monkeypatch):
    """Each sync goes on only when as many are under way as may be."""
    together = threading.Barrier(SYNCS_AT_ONCE, timeout=20)
    done = []

    def fdatasync(descriptor):
        together.wait()
        done.append(os.fstat(descriptor).st_ino)

    monkeypatch.setattr(os, "fdatasync", fdatasync)
    files = BuildFiles()
    synced(files, tmp_path, 2 * SYNCS_AT_ONCE)
    files.rename(tmp_path / "0", tmp_path / "a")
    assert len(set(done)) == 2 * SYNCS_AT_ONCE


def test_a_sync_that_failed_fails_every_rename(tmp_path, monkeypatch):
    def fdatasync(descriptor):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fdatasync", fdatasync)
    files = BuildFiles()
    synced(files, tmp_path, 1)
    for refused in (lambda: files.rename(tmp_path / "0", tmp_path / "a"), lambda: files.sync_directory(tmp_path)) * 2:
        with pytest.raises(OSError, match="Input/output error"):
            refused()
    assert (tmp_path / "0").exists()
