"""Mapped files that are truncated, or whose disk fails, give no wrong answer, and the process survives.

A disk failure is simulated by one page of this process's map that cannot be read.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gossipkv.environment.real_files import RealFiles
from gossipkv.errors import Corrupt, UnsupportedFormat
from gossipkv.storage import sigbus
from gossipkv.storage.sorted_file import SortedFile
from tests.oracle import sorted_file as oracle
from tests.unit.storage.lost_pages import PAGE, lose_page

if TYPE_CHECKING:
    from collections.abc import Callable

    from _typeshed import ReadableBuffer as Buffer


RECORDS = {b"key%04d" % number: (b"%04d" % number) * (number % 60) for number in range(0, 600, 2)} | {
    b"long": bytes(range(256)) * 40
}
KEYS = sorted(RECORDS)
ABSENT = [b"key%04d" % number for number in range(1, 600, 2)]
METADATA = b"what is kept with the file"

QUESTIONS: dict[str, Callable[[SortedFile], object]] = {
    "lookups": lambda file: [file.get(key) for key in KEYS],
    "misses": lambda file: [file.get(key) for key in ABSENT],
    "membership": lambda file: [key in file for key in (*KEYS, *ABSENT)],
    "get_many": lambda file: file.get_many([*KEYS, *ABSENT]),
    "scan": lambda file: list(file.scan()),
    "scan backwards": lambda file: list(file.scan(reverse=True)),
    "scan of a range": lambda file: list(file.scan(b"key0101", b"key0301")),
    "metadata": lambda file: file.metadata,
}
ASKED = pytest.mark.parametrize("ask", QUESTIONS.values(), ids=QUESTIONS)


@pytest.fixture(autouse=True)
def _outlive() -> None:
    """Install the handler, so that lost maps do not end this process."""
    sigbus.install()


@pytest.fixture
def path(tmp_path: Path, way: str) -> Path:
    """Write a file of some twenty pages, of each compression."""
    made = tmp_path / "f.gkv"
    compression = oracle.NONE if way == "none" else oracle.LZ4
    made.write_bytes(oracle.write(RECORDS.items(), compression=compression, metadata=METADATA))
    return made


@ASKED
def test_a_file_cut_short_answers_nothing(path: Path, ask: Callable[[SortedFile], object]) -> None:
    """The cut may lie within a page, and every page was checked before."""
    image = path.read_bytes()
    for size in (*range(0, len(image), 1_021), len(image) - 1):
        path.write_bytes(image)
        with SortedFile(path) as file:
            ask(file)
            os.truncate(path, size)
            with pytest.raises(Corrupt, match=r"f\.gkv: damaged at byte \d+: the file was cut short") as refused:
                ask(file)
            assert size // PAGE * PAGE <= refused.value.offset < len(image)
            path.write_bytes(image)  # Too late for this map.
            with pytest.raises(Corrupt):
                ask(file)
    with SortedFile(path) as file:
        assert file.get(b"long") == RECORDS[b"long"]


def test_a_scan_under_way_meets_the_cut(path: Path) -> None:
    """The records before the cut were right; the next step raises and releases the file."""
    with SortedFile(path) as file:
        scan = file.scan()
        assert next(scan) == (KEYS[0], RECORDS[KEYS[0]])
        os.truncate(path, path.stat().st_size - 1)
        with pytest.raises(Corrupt):
            next(scan)
        assert list(scan) == []


def test_a_scan_that_ends_meets_the_cut(path: Path) -> None:
    """The end of a scan is an answer, too."""
    with SortedFile(path) as file:
        scan = file.scan(limit=1)
        next(scan)
        os.truncate(path, path.stat().st_size - 1)
        with pytest.raises(Corrupt):
            next(scan)


def test_other_maps_go_on(path: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.gkv"
    other.write_bytes(path.read_bytes())
    with SortedFile(path) as file, SortedFile(other) as whole:
        os.truncate(path, 0)
        with pytest.raises(Corrupt):
            file.get(b"long")
        assert dict(whole.scan()) == RECORDS
        assert (file.lost_at is None, whole.lost_at) == (False, None)


@pytest.mark.parametrize("behind", ["size", "map"])
def test_a_file_that_is_cut_while_it_is_opened(path: Path, behind: str) -> None:
    """The cut comes after the size was read, or after the file was mapped."""

    class Cutting(RealFiles):
        def __init__(self, left: int) -> None:
            self.left = left

        def size(self, descriptor: int) -> int:
            found = super().size(descriptor)
            if behind == "size":
                os.truncate(path, self.left)
            return found

        def map(self, descriptor: int, size_bytes: int) -> Buffer:
            found = super().map(descriptor, size_bytes)
            os.truncate(path, self.left)
            return found

    image = path.read_bytes()
    for left in (1, PAGE, len(image) // 2, len(image) - 1):
        path.write_bytes(image)
        with pytest.raises((Corrupt, UnsupportedFormat), match=r"f\.gkv"):
            SortedFile(path, files=Cutting(left))


def test_a_file_whose_header_cannot_be_read(path: Path) -> None:
    """The file is not taken for another kind."""

    class Failing(RealFiles):
        def map(self, descriptor: int, size_bytes: int) -> Buffer:
            """Map the file, and lose its first page."""
            found = super().map(descriptor, size_bytes)
            lose_page(path, 0)
            return found

    with pytest.raises(
        Corrupt, match="damaged at byte 0: the file was cut short while it was mapped, or its disk failed"
    ):
        SortedFile(path, files=Failing())


def test_a_lost_map_is_unmapped_as_others_are(path: Path) -> None:
    """Closing unmaps the replacement, which has the address of the lost map."""
    with SortedFile(path) as file:
        start = map_of(path)
        lose_page(path, 1)
        with pytest.raises(Corrupt):
            list(file.scan())
        assert map_of(path) is None
        assert any(line.startswith(start) for line in maps())
    assert not any(line.startswith(start) for line in maps())


def maps() -> list[str]:
    return Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()


def map_of(path: Path) -> str | None:
    """Return the first address of a file's map; parts with other advice stand in lines of their own."""
    return next((line.partition("-")[0] + "-" for line in maps() if line.endswith(str(path))), None)
