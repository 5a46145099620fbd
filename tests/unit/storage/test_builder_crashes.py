"""A build that spills runs, struck at every operation, leaves the whole old file or the whole new one, and no other."""

from __future__ import annotations

import contextlib
import errno
import random
from collections import Counter
from functools import cache
from typing import TYPE_CHECKING

import pytest

from gossipkv.environment.real_files import RealFiles
from gossipkv.errors import StorageError
from gossipkv.storage import builder
from gossipkv.storage.sorted_file import SortedFile
from tests.world import sorted_files
from tests.world.faulty_files import CHANGING, Action, Fault, FaultyFiles

if TYPE_CHECKING:
    import os
    from pathlib import Path

    from gossipkv.environment.seam import Files


OLD = [(b"old", b"file")]
KINDS = CHANGING - {"allocate", "copy_range", "link", "make_directory", "remove_directory"}


class Unsynced(RealFiles):
    """A killed process leaves its writes, synced or not; without syncs the test takes a tenth of the time."""

    def sync(self, descriptor: int) -> None:
        """Do nothing."""

    def sync_directory(self, path: str | os.PathLike[str]) -> None:
        """Do nothing."""


@cache
def records() -> list[tuple[bytes, bytes]]:
    source = random.Random(36)
    return [(source.randbytes(6), source.randbytes(1_000)) for _ in range(4_000)]


def build(path: Path, files: Files) -> None:
    sorted_files.build(path, records(), files=files, memory_bytes=builder.MIN_MEMORY_BYTES)


def content(path: Path) -> list[tuple[bytes, bytes]]:
    """Return all records of a verified file."""
    with SortedFile(path) as file:
        file.verify()
        return list(file.scan())


def operations(path: Path) -> Counter[str]:
    """Count the build's operations that change the disk, by kind."""
    calm = FaultyFiles(Unsynced())
    build(path, calm)
    path.unlink()
    return Counter({kind: calm.counts[kind] for kind in KINDS})


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC, errno.EMFILE])
def test_a_failure_at_every_operation(tmp_path: Path, error: int) -> None:
    """One error names the directory; the old file stays alone, unless it was already replaced."""
    new = sorted(dict(records()).items())
    path = tmp_path / "a.gkv"
    expected = operations(path)
    struck: Counter[str] = Counter()
    for at in range(expected.total()):
        sorted_files.build(path, OLD, files=Unsynced())
        faulty = FaultyFiles(Unsynced(), Fault(at, Action.FAIL_HALFWAY, kinds=KINDS, error=error))
        with pytest.raises(StorageError, match=r"cannot build sorted files") as refusal:
            build(path, faulty)
        assert str(tmp_path) in refusal.value.message
        kind = faulty.struck[0].split()[0]
        struck[kind] += 1
        assert content(path) == (new if kind == "sync_directory" else OLD)
        left = {entry.name for entry in tmp_path.iterdir()} - {"a.gkv"}
        assert len(left) <= (kind == "unlink"), "only what could not be removed is left"
        with contextlib.suppress(FileNotFoundError):
            for name in left:
                (tmp_path / name).unlink()
    assert struck == expected


def test_a_run_that_cannot_be_put_aside_while_adding(tmp_path: Path) -> None:
    """`add` raises the same error as `finish`, with the directory's name."""
    faulty = FaultyFiles(RealFiles(), Fault(0, Action.FAIL, kinds={"pwrite"}, error=errno.ENOSPC))
    with builder.SortedFileBuilder(
        tmp_path, ["a.gkv"], files=faulty, memory_bytes=builder.MIN_MEMORY_BYTES
    ) as building:

        def add_all_one_by_one() -> None:
            for key, value in records():
                building.add(key, value)

        with pytest.raises(StorageError, match=r"cannot build sorted files: No space left"):
            add_all_one_by_one()
    assert list(tmp_path.iterdir()) == []
