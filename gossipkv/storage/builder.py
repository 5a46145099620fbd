"""Building sorted files from records in any order, larger than memory.

One external sort serves all files of a build: records carry the number of the file they belong to, and come out
file by file, key by key (`_record_sorter`), straight into a writer (`_sorted_file_writer`).  So memory is bounded once,
however many partitions a version has.

A build is all or nothing: files are written beside their names, synced, and renamed when all are whole.  One that
is cut off leaves nothing but temporary files of its own names, which the next build in the same directory removes.

Several threads can build together (`shared_build`), each with a `LaneBuilder`; `SortedFileBuilder` is the one that is
alone.
"""

from __future__ import annotations

import contextlib
import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from gossipkv.environment.real_files import RealFiles
from gossipkv.errors import StorageError
from gossipkv.storage._storage import RecordSorter, Runs, Scratch, SortedFileWriter, seed_of
from gossipkv.storage.compression import COMPRESSIONS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from types import TracebackType

    from gossipkv.environment.seam import Files
    from gossipkv.storage._storage import OrderedRecords, RunReader
    from gossipkv.storage.batch import Batch

TEMPORARY_SUFFIX = ".tmp"

# Every name that a build gives before it is done, and none that it does not.
_LEFTOVER = re.compile(r"(run-[\d-]+|.+\.gkv(\.tmp\.\d+)?)\.tmp")

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


@dataclass(frozen=True, slots=True)
class GroupTotal:
    """What was added to one group."""

    records: int  # Replaced ones among them.
    size_bytes: int
    hash_sum: int  # Of the hashes of all keys, modulo 2^64.
    prefix: bytes  # What all keys begin with.

    @property
    def seed(self) -> int:
        """The seed of the file's hash index."""
        return seed_of(self.hash_sum, self.records)


@dataclass(frozen=True, slots=True)
class Totals:
    """What was added to a build, or by one lane of it: all that its files' bytes depend on beside the records."""

    added: int
    groups: dict[int, GroupTotal]  # Those that have records.


class LaneBuilder:
    """Collects records, and writes the files of some groups under temporary names; see `SortedFileBuilder`.

    Several of them, each in a thread of its own, build together: every one adds its records, all `totals` are
    combined, and each writes the groups that it is given.  `shared_build` says who writes what.

    Args:
        lane: its number among those that build together in this directory.
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
        lane: int = 0,
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
        self._lane = lane
        self._scratch_number = 0
        self._finished: list[str] = []
        self._writer: SortedFileWriter | None = None
        self._shared: Runs | None = None
        self._index_bytes = int((memory_bytes - _FIXED_BYTES) * _INDEX_SHARE)
        self._sorting_bytes = memory_bytes - _FIXED_BYTES - self._index_bytes
        self._sorter = RecordSorter(self._make_scratch, self._sorting_bytes, len(self._names))

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
            raise _refusal(self._directory, error) from error

    def add_all(self, records: Iterable[tuple[bytes, bytes]], group: int = 0) -> None:
        """Add many records without a call for each."""
        with refusals(self._directory):
            self._sorter.add_all(records, group)

    def add_batch(self, batch: Batch) -> None:
        """Add the records of a batch, each to its group."""
        with refusals(self._directory):
            self._sorter.add_batch(batch)

    def totals(self) -> Totals:
        """What was added so far."""
        sorter = self._sorter
        return Totals(
            sorter.added,
            {
                group: GroupTotal(
                    sorter.group_records(group),
                    sorter.group_size_bytes(group),
                    sorter.group_hash_sum(group),
                    sorter.common_prefix(group),
                )
                for group in range(len(self._names))
                if sorter.group_records(group)
            },
        )

    def put_aside(self) -> list[RunReader]:
        """Give everything that was added to all lanes; from the oldest run to the newest."""
        with refusals(self._directory):
            return self._sorter.put_aside()

    def write(
        self, totals: Totals, groups: Sequence[int], runs: Iterable[RunReader] | None = None
    ) -> list[BuildReport]:
        """Write and sync the files of `groups`, which ascend.

        This lane alone has records of them; or they are a range, and lie in the `runs` of all lanes, which stay open
        until all have written.  Of equal keys that of the last run stays.
        """
        with refusals(self._directory):
            if runs is None:
                return self._write_all(self._sorter.finish_adding(), totals, groups)
            self._shared = Runs(self._make_scratch, self._sorting_bytes)
            for run in runs if groups else ():
                self._shared.add(run.share(groups[0], groups[-1] + 1))
            self._shared.start()
            return self._write_all(self._shared, totals, groups)

    def abort(self) -> None:
        """Remove everything that is not in place yet; harmless after the end."""
        with contextlib.suppress(OSError):
            self._close()
        with contextlib.suppress(OSError):
            if self._writer is not None:
                self._writer.abort()
                self._writer = None
            while self._finished:
                self._files.unlink(self._finished.pop())

    def close(self) -> None:
        """Give back memory and runs; the files that were written stay, under their temporary names."""
        with refusals(self._directory):
            self._close()
        self._finished.clear()

    def _close(self) -> None:
        if self._shared is not None:
            self._shared.close()
        self._sorter.close()

    def _write_all(self, records: OrderedRecords, totals: Totals, groups: Iterable[int]) -> list[BuildReport]:
        reports = []
        before = 0
        for group in groups:
            report = self._write(records, group, totals, before)
            before += report.records + report.duplicates
            reports.append(report)
        return reports

    def _write(self, ordered: OrderedRecords, group: int, totals: Totals, before: int) -> BuildReport:
        total = totals.groups.get(group, _EMPTY_GROUP)
        path = temporary_path(self._directory, self._names[group])
        self._writer = SortedFileWriter(
            self._files,
            path,
            memory_bytes=self._index_bytes,
            compression=self._compression,
            seed=total.seed,
            common_prefix=total.prefix,
            metadata=self._metadata if isinstance(self._metadata, bytes) else self._metadata[group],
        )
        records = 0
        while True:
            step = ordered.write_group(self._writer, group, _STEP_RECORDS)
            records += step
            if self._on_progress is not None:
                self._on_progress(before + records, totals.added)
            if step < _STEP_RECORDS:
                break
        duplicates = total.records - records
        assert 0 <= duplicates < max(1, total.records), (group, total.records, records)  # Each key comes out once.
        size_bytes = self._writer.finish(duplicates)
        self._writer = None
        self._finished.append(path)
        return BuildReport(records, duplicates, size_bytes)

    def _make_scratch(self) -> Scratch:
        self._scratch_number += 1
        name = f"run-{self._lane}-{self._scratch_number}{TEMPORARY_SUFFIX}"
        return Scratch(self._files, f"{self._directory}{os.sep}{name}")


class SortedFileBuilder(LaneBuilder):
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
        super().__init__(
            directory,
            names,
            files=files,
            memory_bytes=memory_bytes,
            compression=compression,
            metadata=metadata,
            on_progress=on_progress,
        )
        remove_leftovers(self._directory, self._files)

    def finish(self) -> list[BuildReport]:
        """Sort, merge and write every file, sync them, and rename them into place; a report for each."""
        reports = self.write(self.totals(), range(len(self._names)))
        assert sum(report.records + report.duplicates for report in reports) == self.added, "every record has its file"
        with refusals(self._directory):
            self._sorter.close()
        put_in_place(self._directory, self._names, self._files)
        self._finished.clear()
        return reports


_EMPTY_GROUP = GroupTotal(0, 0, 0, b"")


def temporary_path(directory: str, name: str) -> str:
    """Where a sorted file is written before it has its name."""
    return f"{directory}{os.sep}{name}{TEMPORARY_SUFFIX}"


def put_in_place(directory: str, names: Iterable[str], files: Files) -> None:
    """The last step of a build: every file gets its name."""
    with refusals(directory):
        for name in names:
            files.rename(temporary_path(directory, name), f"{directory}{os.sep}{name}")
        files.sync_directory(directory)


def remove_leftovers(directory: str, files: Files) -> None:
    """Remove what a build that was cut off has left."""
    with refusals(directory):
        for entry in files.list_directory(directory):
            if entry.kind == "file" and _LEFTOVER.fullmatch(entry.name):
                files.unlink(f"{directory}{os.sep}{entry.name}")


@contextlib.contextmanager
def refusals(directory: str) -> Iterator[None]:
    """What the file system says, as one error that names the place."""
    try:
        yield
    except OSError as error:
        raise _refusal(directory, error) from error


def _refusal(directory: str, error: OSError) -> StorageError:
    path = error.filename or directory
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
