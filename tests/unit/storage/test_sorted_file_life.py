"""The life of an open file: pins, scans, closing, invalid sources, and the end of the process."""

from __future__ import annotations

import errno
import gc
import os
import stat
import sys
import weakref
from pathlib import Path

import pytest

from gossipkv.environment.real_files import RealFiles
from gossipkv.errors import Corrupt, StorageError, UnsupportedFormat
from gossipkv.storage.builder import SortedFileBuilder
from gossipkv.storage.sorted_file import SortedFile
from tests.oracle import sorted_file as oracle
from tests.unit.storage.memory_files import MemoryFiles

RECORDS = [(b"%03d" % number, b"v" * number) for number in range(300)]
IMAGE = oracle.write(RECORDS)
WAYS = pytest.mark.parametrize("way", [{}, {"reverse": True}], ids=["forwards", "backwards"])


def maps_of(path: Path) -> int:
    """Count the maps of a file in this process."""
    return sum(os.fspath(path) in line for line in Path("/proc/self/maps").read_text().splitlines())


def descriptors_open() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


@pytest.fixture
def file():
    """Open a file of 300 records; the close at the end fails if anything holds the file."""
    with SortedFile(IMAGE, name="f.gkv") as opened:
        yield opened


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Write the same file to disk."""
    found = tmp_path / "f.gkv"
    found.write_bytes(IMAGE)
    return found


def test_a_pinned_file_does_not_close(file: SortedFile) -> None:
    """Each pin holds the file until its own unpin; a refused close changes nothing."""
    file.pin()
    file.pin()
    for pins in (2, 1):
        with pytest.raises(BufferError, match=rf"f\.gkv: {pins} readers use"):
            file.close()
        assert file.get(b"007") == b"v" * 7
        file.unpin()
    file.close()


def test_unpin_needs_a_pin(file: SortedFile) -> None:
    with pytest.raises(ValueError, match=r"f\.gkv: the sorted file has no pin"):
        file.unpin()
    file.pin()
    file.unpin()
    with pytest.raises(ValueError, match="no pin to remove"):
        file.unpin()


@WAYS
def test_a_scan_holds_the_file(file: SortedFile, way: dict[str, bool]) -> None:
    """A scan holds the file from its creation, before the first step, until its end."""
    walk = file.scan(limit=3, **way)
    for _ in range(3):
        with pytest.raises(BufferError):
            file.close()
        next(walk)
    with pytest.raises(BufferError):
        file.close()
    assert next(walk, None) is None
    file.close()
    assert next(walk, None) is None, "an ended scan stays ended"


@WAYS
@pytest.mark.parametrize("question", [{"limit": 0}, {"start": b"9"}, {"end": b""}, {"prefix": b"x"}, {}])
def test_every_end_lets_go(file: SortedFile, question, way: dict[str, bool]) -> None:
    """Scans that end at once, by their bounds or by their limit, hold nothing afterwards."""
    list(file.scan(**question, **way))
    file.close()


def test_a_scan_closed_early_lets_go(file: SortedFile) -> None:
    """Closing and dropping a scan in the middle both let go; closing twice is harmless."""
    walk, other = file.scan(), file.scan(reverse=True)
    assert next(walk) == RECORDS[0]
    assert next(other) == RECORDS[-1]
    walk.close()
    walk.close()
    assert list(walk) == []
    with pytest.raises(BufferError, match="1 readers"):
        file.close()
    del other
    gc.collect()
    file.close()


def test_a_scan_that_meets_damage_lets_go() -> None:
    damaged = bytearray(oracle.write([(b"%03d" % number, b"v" * 100) for number in range(300)]))
    damaged[20_000] ^= 1
    file = SortedFile(damaged, name="f.gkv")
    for reverse in (False, True):
        walk = file.scan(reverse=reverse)
        with pytest.raises(Corrupt):
            list(walk)
        assert list(walk) == []
    file.close()


USES = {
    "get": lambda file: file.get(b"k"),
    "get_many": lambda file: file.get_many([]),
    "in": lambda file: b"k" in file,
    "len": len,
    "scan": lambda file: file.scan(),
    "verify": lambda file: file.verify(),
    "describe": lambda file: file.describe(),
    "metadata": lambda file: file.metadata,
    "pin": lambda file: file.pin(),
}


@pytest.mark.parametrize("use", USES)
def test_nothing_works_after_close(file: SortedFile, path: Path, use: str) -> None:
    """Every use of a closed file raises an error with its name; a second close does nothing."""
    for closed in (file, SortedFile(path, name="f.gkv")):
        closed.close()
        closed.close()
        with pytest.raises(ValueError, match=r"f\.gkv: the sorted file is closed"):
            USES[use](closed)


def test_closing_unmaps(path: Path) -> None:
    """The map ends with `close`, with the last reference, and with a failed opening; no descriptor stays."""
    gc.collect()  # Collect the garbage of other tests.
    descriptors = descriptors_open()
    with SortedFile(path) as file:
        file.get(b"007")
        assert maps_of(path) == 1
        assert descriptors_open() <= descriptors + 2  # The file's, and before Python 3.13 the map's own.
    assert maps_of(path) == 0
    file = SortedFile(path)
    walk = file.scan()
    del file
    gc.collect()
    assert maps_of(path) == 1, "the scan holds the file"
    assert next(walk) == RECORDS[0]
    del walk
    gc.collect()
    assert maps_of(path) == 0
    path.write_bytes(IMAGE[:-1])
    with pytest.raises(Corrupt):
        SortedFile(path)
    assert maps_of(path) == 0
    assert descriptors_open() == descriptors


def test_a_buffer_is_held_as_long_as_it_is_read() -> None:
    """The buffer's owner cannot resize it before the file is closed or its opening has failed."""
    held = bytearray(IMAGE)
    file = SortedFile(held)
    with pytest.raises(BufferError):
        held.append(0)
    file.close()
    held.append(0)
    with pytest.raises(Corrupt):
        SortedFile(held)
    held.append(0)


def test_with_closes_after_an_error(path: Path) -> None:
    """Leaving by an exception closes; leaving while a scan holds the file raises."""
    with pytest.raises(KeyError), SortedFile(path) as file:
        raise KeyError
    with pytest.raises(ValueError, match="closed"):
        file.get(b"k")
    with pytest.raises(BufferError), SortedFile(path) as file:
        walk = file.scan()
    walk.close()
    file.close()


def test_missing_file(tmp_path: Path) -> None:
    path = tmp_path / "missing.gkv"
    with pytest.raises(StorageError, match=r"missing\.gkv: cannot open the sorted file: No such file") as refusal:
        SortedFile(path)
    assert refusal.value.details == {"file": os.fspath(path)}
    with pytest.raises(StorageError, match=r"^mine: cannot open"):
        SortedFile(path, name="mine")


def test_directory(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="cannot open the sorted file"):
        SortedFile(tmp_path)


def test_unreadable_file(path: Path) -> None:
    """The system refuses, and under root a fake does, because root can read everything."""

    class Forbidding(RealFiles):
        def open(self, path, *_: object):
            raise PermissionError(errno.EACCES, "Permission denied", os.fspath(path))

    with pytest.raises(StorageError, match=r"f\.gkv: cannot open the sorted file: Permission denied"):
        SortedFile(path, files=Forbidding())
    if os.geteuid() != 0:
        path.chmod(stat.S_IWUSR)
        with pytest.raises(StorageError, match=r"f\.gkv: cannot open the sorted file: Permission denied"):
            SortedFile(path)


@pytest.mark.parametrize("step", ["size", "map"])
def test_files_that_fail_while_opening(path: Path, step: str) -> None:
    """An I/O error names the file, and the descriptor is closed."""

    def fail(*_: object) -> int:
        raise OSError(errno.EIO, "Input/output error")

    files = MemoryFiles()
    files.named[os.fspath(path)] = bytearray(IMAGE)
    setattr(files, step, fail)
    with pytest.raises(StorageError, match=r"f\.gkv: cannot open the sorted file: Input/output error"):
        SortedFile(path, files=files)
    assert not files.opened


@pytest.mark.parametrize("empty", [b"", "path"])
def test_empty_file(tmp_path: Path, empty) -> None:
    path = tmp_path / "e.gkv"
    path.touch()
    with pytest.raises(Corrupt, match=r"e\.gkv: damaged at byte 0: the file is empty"):
        SortedFile(path if empty else b"", name=os.fspath(path))


@pytest.mark.parametrize("wrong", [None, 5, memoryview(IMAGE)[::2]])
def test_what_is_no_source(wrong) -> None:
    with pytest.raises((TypeError, BufferError)):
        SortedFile(wrong)


def test_many_files_open_and_close(path: Path) -> None:
    """Thousands of openings, also those that fail, leave no maps, descriptors or references."""
    descriptors = descriptors_open()
    files = [SortedFile(path, name=str(number)) for number in range(200)]
    assert all(file.get(b"003") == b"vvv" for file in files)
    for file in files:
        file.close()
    assert maps_of(path) == 0
    assert descriptors_open() == descriptors
    source, refused, name = IMAGE + b"", bytes(14), str(path)
    references = [sys.getrefcount(one) for one in (source, refused, name)]
    for _ in range(2000):
        with SortedFile(source, name=name) as file:
            assert file.get(b"003") == b"vvv"
        with pytest.raises(UnsupportedFormat):
            SortedFile(refused, name=name)
    del file
    assert [sys.getrefcount(one) for one in (source, refused, name)] == references


def test_no_reference_cycles() -> None:
    """The last reference frees the file at once, without the collector: a scan refers to its file, not the reverse."""

    class Held(bytearray):
        pass

    held = Held(IMAGE)
    gone = weakref.ref(held)
    gc.disable()
    try:
        file = SortedFile(held)
        walk = file.scan()
        next(walk)
        del held, file
        assert gone() is not None
        del walk
        assert gone() is None
    finally:
        gc.enable()


def test_a_file_outlives_its_builder(tmp_path: Path) -> None:
    """A map of the old file goes on answering when a new one takes its name."""
    for word in (b"old", b"new"):
        with SortedFileBuilder(tmp_path, ["a.gkv"]) as building:
            building.add(b"k", word)
            building.finish()
        if word == b"old":
            before = SortedFile(tmp_path / "a.gkv")
    with SortedFile(tmp_path / "a.gkv") as after:
        assert (before.get(b"k"), after.get(b"k")) == (b"old", b"new")
    before.close()


def test_an_unknown_option_is_refused(path: Path) -> None:
    with pytest.raises(TypeError, match="cache"):
        SortedFile(path, cache=1)


def test_a_pipe_is_refused_at_once(tmp_path: Path) -> None:
    """A named pipe without a writer is refused without waiting for a writer."""
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(Corrupt, match=r"pipe.*empty"):
        SortedFile(tmp_path / "pipe")
