"""Building sorted files from records in any order, larger than memory.

One external sort serves all files of a build: records carry the number of their file, and come out file by file, key by
key (`record_sorter.pyx`), straight into a writer (`sorted_file_writer.pyx`). So memory is bounded once, however many
partitions a version has.

A build is all or nothing: files are written under temporary names, synced, and renamed when all are complete. An
interrupted build leaves only temporary files of its own names, which the next build in the directory removes.

Several threads can build together (`shared_build`), each with a `LaneBuilder`; `SortedFileBuilder` builds alone.
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

    from gossipkv.environment.seam import Files
    from gossipkv.storage._storage import OrderedRecords, RunReader
    from gossipkv.storage.batch import RecordBatch

TEMPORARY_SUFFIX = ".tmp"

# Matches every temporary name of a build, and no other.
_LEFTOVER = re.compile(r"(run-[\d-]+|.+\.gkv(\.tmp\.\d+)?)\.tmp")

DEFAULT_MEMORY_BYTES = 256 << 20
MIN_MEMORY_BYTES = 8 << 20  # Below this the fixed buffers (pages, parts, spills) outweigh the records.

# The writer's pages, parts and spools take a fixed part of the budget. Of the rest, the index takes 16 bytes a record,
# against some 130 for a small record and its item.
_FIXED_BYTES = 6 << 20
_INDEX_SHARE = 0.2

_STEP_RECORDS = 65_536  # Progress is reported after this many records, some 20 ms.


@dataclass(frozen=True, slots=True)
class BuildReport:
    """The result of building one file."""

    records: int
    duplicates: int  # Records replaced by a later one with the same key.
    size_bytes: int


@dataclass(frozen=True, slots=True)
class GroupTotal:
    """The records added to one group, in total."""

    records: int  # Includes replaced records.
    size_bytes: int
    hash_sum: int  # Sum of the hashes of all keys, modulo 2^64.
    prefix: bytes  # Common prefix of all keys.

    @property
    def seed(self) -> int:
        return seed_of(self.hash_sum, self.records)


@dataclass(frozen=True, slots=True)
class BuildTotals:
    """The totals of a build or of one lane: besides the records, all that the bytes of its files depend on."""

    added: int
    groups: dict[int, GroupTotal]  # Groups without records are absent.


class LaneBuilder:
    """Collects records, and writes the files of some groups under temporary names; see `SortedFileBuilder`.

    Several builders, each in a thread of its own, build together: each adds its records, all `totals` are combined, and
    each writes its share of the groups. `shared_build` divides the groups.

    Args:
        lane: number of this builder among those that build together in this directory.
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

    def __exit__(self, *_: object) -> None:
        self.abort()

    @property
    def added(self) -> int:
        """Return how many records were added so far, including replaced ones."""
        return self._sorter.added

    def add(self, key: bytes, value: bytes, group: int = 0) -> None:
        """Add one record; a later one with the same key replaces it."""
        try:
            self._sorter.add(key, value, group)
        except OSError as error:  # A run could not be spilled.
            raise _refusal(self._directory, error) from error

    def add_all(self, records: Iterable[tuple[bytes, bytes]], group: int = 0) -> None:
        """Add many records without a call for each."""
        with refusals(self._directory):
            self._sorter.add_all(records, group)

    def add_batch(self, batch: RecordBatch) -> None:
        with refusals(self._directory):
            self._sorter.add_batch(batch)

    def totals(self) -> BuildTotals:
        sorter = self._sorter
        return BuildTotals(
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
        """Return all added records to all lanes as runs, from the oldest to the newest."""
        with refusals(self._directory):
            return self._sorter.put_aside()

    def write(
        self, totals: BuildTotals, groups: Sequence[int], runs: Iterable[RunReader] | None = None
    ) -> list[BuildReport]:
        """Write and sync the files of `groups`, which ascend.

        Either this lane alone has records of `groups`, or `groups` are a range whose records lie in the `runs` of all
        lanes. Those runs stay open until all lanes have written. Of equal keys, the record of the last run wins.
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
        """Remove all temporary files; harmless after the end."""
        with contextlib.suppress(OSError):
            self._close()
        with contextlib.suppress(OSError):
            if self._writer is not None:
                self._writer.abort()
                self._writer = None
            while self._finished:
                self._files.unlink(self._finished.pop())

    def close(self) -> None:
        """Release memory and runs; written files stay, under their temporary names."""
        with refusals(self._directory):
            self._close()
        self._finished.clear()

    def _close(self) -> None:
        if self._shared is not None:
            self._shared.close()
        self._sorter.close()

    def _write_all(self, records: OrderedRecords, totals: BuildTotals, groups: Iterable[int]) -> list[BuildReport]:
        reports = []
        before = 0
        for group in groups:
            report = self._write(records, group, totals, before)
            before += report.records + report.duplicates
            reports.append(report)
        return reports

    def _write(self, ordered: OrderedRecords, group: int, totals: BuildTotals, before: int) -> BuildReport:
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

    It is a context manager.  Entering removes the leftovers of an interrupted build; leaving before `finish` has
    returned, or by an exception, removes the files written so far.

    Args:
        directory: where the files go; scratch files lie there too during the build, up to the size of the records.
        names: one name per file.
        files: the file operations to use.
        memory_bytes: memory limit of the builder, at least 8 MiB; three times the longest record if that is more.
        compression: "none" or "lz4" (4 KiB blocks; for data larger than memory).
        metadata: bytes stored with every file, or a sequence with those of each file.
        on_progress: called with (records written, records added) now and then during `finish`.

    Raises:
        StorageError: the file system refuses; names the path.
        LimitExceeded: a key, a value or a file exceeds the format's limits.
    """

    def __enter__(self) -> Self:
        remove_leftovers(self._directory, self._files)
        return self

    def finish(self) -> list[BuildReport]:
        """Sort, merge and write every file, sync all, and rename them into place; returns a report for each."""
        reports = self.write(self.totals(), range(len(self._names)))
        assert sum(report.records + report.duplicates for report in reports) == self.added, "every record has its file"
        with refusals(self._directory):
            self._sorter.close()
        put_in_place(self._directory, self._names, self._files)
        self._finished.clear()
        return reports


_EMPTY_GROUP = GroupTotal(0, 0, 0, b"")


def temporary_path(directory: str, name: str) -> str:
    """Return the path of a sorted file before it is renamed."""
    return f"{directory}{os.sep}{name}{TEMPORARY_SUFFIX}"


def put_in_place(directory: str, names: Iterable[str], files: Files) -> None:
    """Rename every file of a build to its final name: the last step."""
    with refusals(directory):
        for name in names:
            files.rename(temporary_path(directory, name), f"{directory}{os.sep}{name}")
        files.sync_directory(directory)


def remove_leftovers(directory: str, files: Files) -> None:
    """Remove the temporary files of an interrupted build."""
    with refusals(directory):
        for entry in files.list_directory(directory):
            if entry.kind == "file" and _LEFTOVER.fullmatch(entry.name):
                files.unlink(f"{directory}{os.sep}{entry.name}")


@contextlib.contextmanager
def refusals(directory: str) -> Iterator[None]:
    """Convert OSError to a `StorageError` that names the path."""
    try:
        yield
    except OSError as error:
        raise _refusal(directory, error) from error


def _refusal(directory: str, error: OSError) -> StorageError:
    path = error.filename or directory
    return StorageError(
        f"{path}: cannot build sorted files: {error.strerror or error}", {"file": str(path), "errno": error.errno}
    )
