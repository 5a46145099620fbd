"""Building sorted files from records in any order, larger than memory.

One external sort serves all files of a build: records carry the number of the file they belong to, and come out
file by file, key by key (`_record_sorter`), straight into a writer (`_sorted_file_writer`).  So memory is bounded once,
however many partitions a version has.

A build is all or nothing: files are written beside their names, synced, and renamed when all are whole.  One that
is cut off leaves nothing but temporary files of its own names, which the next build in the same directory removes.
"""

from __future__ import annotations

import contextlib
import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from gossipkv.environment import RealFiles
from gossipkv.errors import StorageError
from gossipkv.storage import compression as _compression  # noqa: F401  Installs the lz4 functions.
from gossipkv.storage._record_sorter import RecordSorter
from gossipkv.storage._scratch import Scratch
from gossipkv.storage._sorted_file_writer import SortedFileWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from types import TracebackType

    from gossipkv.environment import Files
    from gossipkv.storage.batch import Batch

COMPRESSIONS = {"none": 0, "lz4": 1}
TEMPORARY_SUFFIX = ".tmp"

# Every name that a build gives before it is done, and none that it does not.
_LEFTOVER = re.compile(r"(run-\d+|.+\.gkv(\.tmp\.\d+)?)\.tmp")

DEFAULT_MEMORY_BYTES = 256 << 20
MIN_MEMORY_BYTES = 8 << 20  # Below this the fixed buffers (pages, parts, things put aside) outweigh the records.

# How a budget is divided: the writer's pages, parts and spools are fixed; of the rest, 16 bytes a record for the index
# stand against some 130 for a small record and its item.
_FIXED_BYTES = 6 << 20
_INDEX_SHARE = 0.2

_STEP_RECORDS = 65_536  # Between two reports of progress: some 20 ms.


@dataclass(frozen=True, slots=True)
class BuildReport:
    """What became of one file of a build."""

    records: int
    duplicates: int  # Records that a later one with the same key replaced.
    size_bytes: int


class SortedFileBuilder:
    """Builds the sorted files `names` in `directory`, which exists; group `g` of the records becomes `names[g]`.

    Use it as a context manager: leaving it before `finish` has returned, or by an exception, removes what was written.

    Args:
        directory: where the files go; scratch files lie there meanwhile, up to the size of the records.
        names: one name a file.
        files: the file operations to use.
        memory_bytes: bounds what the builder holds, from 8 MiB; three times the longest record where that is more.
        compression: "none" or "lz4" (4 KiB blocks; for data larger than memory).
        metadata: bytes kept with every file, or for each file its own.
        on_progress: called with (records written, records added) now and then during `finish`.

    Raises:
        StorageError: the file system refuses; names the path.
        LimitExceeded: a key, a value or a file is over the format's limits.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        names: Sequence[str],
        *,
        files: Files | None = None,
        memory_bytes: int = DEFAULT_MEMORY_BYTES,
        compression: str = "none",
        metadata: bytes | Sequence[bytes] = b"",
        on_progress: Callable[[int, int], None] | None = None,
    ) -> None:
        if compression not in COMPRESSIONS:
            raise ValueError(f"compression must be one of {', '.join(COMPRESSIONS)}, got {compression!r}")
        if memory_bytes < MIN_MEMORY_BYTES:
            raise ValueError(f"memory_bytes must be at least {MIN_MEMORY_BYTES}, got {memory_bytes}")
        self._directory = os.fspath(directory)
        self._names = list(names)
        self._files: Files = RealFiles() if files is None else files
        self._compression = COMPRESSIONS[compression]
        self._metadata = metadata
        self._on_progress = on_progress
        self._scratch_number = 0
        self._finished: list[str] = []
        self._writer: SortedFileWriter | None = None
        self._index_bytes = int((memory_bytes - _FIXED_BYTES) * _INDEX_SHARE)
        with self._refusals():
            self._remove_leftovers()
        self._sorter = RecordSorter(
            self._make_scratch, memory_bytes - _FIXED_BYTES - self._index_bytes, len(self._names)
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.abort()

    @property
    def added(self) -> int:
        """How many records were added so far, replaced ones among them."""
        return self._sorter.added

    def add(self, key: bytes, value: bytes, group: int = 0) -> None:
        """Add one record; a later one with the same key replaces it."""
        try:
            self._sorter.add(key, value, group)
        except OSError as error:  # A run that could not be put aside.
            raise self._refusal(error) from error

    def add_all(self, records: Iterable[tuple[bytes, bytes]], group: int = 0) -> None:
        """Add many records without a call for each."""
        with self._refusals():
            self._sorter.add_all(records, group)

    def add_batch(self, batch: Batch) -> None:
        """Add the records of a batch, each to its group."""
        with self._refusals():
            self._sorter.add_batch(batch)

    def finish(self) -> list[BuildReport]:
        """Sort, merge and write every file, sync them, and rename them into place; a report for each."""
        reports = []
        with self._refusals():
            self._sorter.finish_adding()
            done = 0
            for group in range(len(self._names)):
                report = self._write(group, done)
                done += report.records + report.duplicates
                reports.append(report)
            self._sorter.close()
            for name in self._names:
                self._files.rename(self._path(name) + TEMPORARY_SUFFIX, self._path(name))
            self._finished.clear()
            self._files.sync_directory(self._directory)
        return reports

    def abort(self) -> None:
        """Remove everything that is not in place yet; harmless after `finish`."""
        self._sorter.close()
        with contextlib.suppress(OSError):
            if self._writer is not None:
                self._writer.abort()
                self._writer = None
            while self._finished:
                self._files.unlink(self._finished.pop())

    def _write(self, group: int, before: int) -> BuildReport:
        path = self._path(self._names[group]) + TEMPORARY_SUFFIX
        self._writer = SortedFileWriter(
            self._files,
            path,
            memory_bytes=self._index_bytes,
            compression=self._compression,
            seed=self._sorter.seed,
            common_prefix=self._sorter.common_prefix(group),
            metadata=self._metadata if isinstance(self._metadata, bytes) else self._metadata[group],
        )
        records = 0
        while True:
            step = self._sorter.write_group(self._writer, group, _STEP_RECORDS)
            records += step
            if self._on_progress is not None:
                self._on_progress(before + records, self._sorter.added)
            if step < _STEP_RECORDS:
                break
        duplicates = self._sorter.group_duplicates(group)
        size_bytes = self._writer.finish(duplicates)
        self._writer = None
        self._finished.append(path)
        return BuildReport(records, duplicates, size_bytes)

    def _path(self, name: str) -> str:
        return f"{self._directory}{os.sep}{name}"

    def _make_scratch(self) -> Scratch:
        self._scratch_number += 1
        return Scratch(self._files, self._path(f"run-{self._scratch_number}{TEMPORARY_SUFFIX}"))

    def _remove_leftovers(self) -> None:
        for entry in self._files.list_directory(self._directory):
            if entry.kind == "file" and _LEFTOVER.fullmatch(entry.name):
                self._files.unlink(self._path(entry.name))

    @contextlib.contextmanager
    def _refusals(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise self._refusal(error) from error

    def _refusal(self, error: OSError) -> StorageError:
        """One error that names the place, for what the file system says."""
        path = error.filename or self._directory
        return StorageError(
            f"{path}: cannot build sorted files: {error.strerror or error}", {"file": str(path), "errno": error.errno}
        )


def build(
    path: str | os.PathLike[str],
    records: Iterable[tuple[bytes, bytes]],
    *,
    files: Files | None = None,
    memory_bytes: int = DEFAULT_MEMORY_BYTES,
    compression: str = "none",
    metadata: bytes = b"",
) -> BuildReport:
    """Build one sorted file from records in any order; of equal keys the last wins.

    Raises:
        StorageError, LimitExceeded: as `SortedFileBuilder`.
    """
    directory, name = os.path.split(os.fspath(path))
    with SortedFileBuilder(
        directory or ".", [name], files=files, memory_bytes=memory_bytes, compression=compression, metadata=metadata
    ) as builder:
        builder.add_all(records)
        return builder.finish()[0]
