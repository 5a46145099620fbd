"""Merging of log segments and runs, in one pass in key order, into the files of a run.

A flush merges segments of the log into a run. A compaction merges runs that are neighbours in age into the oldest of
them, the target. The newest record of a key stays; records of dropped spaces vanish. A tombstone vanishes only in the
oldest run of the store, since it can hide nothing below that.

A merge writes one stretch of the target, so it is short, and besides its result needs no more space than its inputs and
a file or two. A stretch is a range of keys: files of the target, and newer records in their range.

    target   [a .. f]     [g .. k]     [l .. p]     [q .. z]      nothing newer lies in [l .. p], so it stays
    newer       b  d  e  f-h  i                        r  s
    output   [a ......... k], two files instead of two;  the rest begins at r

A *purge* rewrites the target without the records that newer runs hide, so its output is never longer; newer runs stay.

A *sweep* rewrites the stale files of one run, in which many records have expired. The store's user knows which records
may leave (`ExpiryRule`). Above the oldest run a tombstone takes their place, since they may hide older records.

The output may replace its files at once: newer runs still have the same records, and leave with the last stretch. A
stretch ends only between files of the target, once it has written half of `stretch_bytes` (at least a file, otherwise
small files would stay small) or replaced twice `stretch_bytes`.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import struct
from bisect import bisect_left, bisect_right
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import PurePath
from typing import TYPE_CHECKING, Final, NamedTuple, final

from gossipkv.errors import Corrupt
from gossipkv.storage.builder import TEMPORARY_SUFFIX
from gossipkv.storage.compression import COMPRESSIONS
from gossipkv.storage.engine._engine import (
    BATCH,
    FRAME_BYTES,
    FilesSource,
    MergeFilter,
    StoreMerge,
    add_operations,
)
from gossipkv.storage.engine.manifest import RUNS, RunFile, SegmentName, segment_path
from gossipkv.storage.engine.segments import read_segment
from gossipkv.storage.label import look_at_seal
from gossipkv.storage.sorted_file import SUFFIX, SortedFile
from gossipkv.storage.sorting import OrderedSource, RecordSorter, Scratch, SortedFileWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from gossipkv.environment.seam import Files
    from gossipkv.storage.sorting import Source

    KeyRange = tuple[bytes, bytes]  # Keys with their spaces, both included.

SPACE_BYTES: Final = 4

# Memory of the imported program, and of a writer's pages and spills, is fixed. Of the rest, the index takes 16 bytes a
# record, against some 130 for a small record and its item.
PROGRAM_BYTES: Final = 24 << 20
FIXED_BYTES: Final = 12 << 20
INDEX_SHARE: Final = 0.2
MIN_MEMORY_BYTES: Final = PROGRAM_BYTES + FIXED_BYTES + (12 << 20)

STRETCH_REPLACED: Final = 2  # A stretch replaces files of about this many times its length, and at most one file more.


class LogInput(NamedTuple):
    """A closed segment of the log: its batches."""

    number: int
    salt: int
    end: int  # End of its last frame that counts.


class ExpiryOrder(NamedTuple):
    """The name and the arguments of the filter of a merge."""

    module: str
    name: str  # The name of a subclass of `MergeFilter`.
    now_ms: int
    rows: str  # Hexadecimal digits.


class ExpiryRule(NamedTuple):
    """The rule by which expired records leave the store, supplied by the store's user."""

    module: str  # A merge imports the filter from there, also in its own process.
    name: str
    now_ms: Callable[[], int]  # Returns the time of day.
    rows: Callable[[KeyRange | None], Iterator[bytes]]  # Yields parts of the filter's argument for a range of keys.


@final
@dataclass(frozen=True, slots=True)
class MergeOrder:
    """The instructions for a merge: segments of the log into a new run, or neighbouring runs into the oldest."""

    directory: str
    store: int
    number: int  # Unique number of the merge.
    log: tuple[LogInput, ...]  # Ordered from the oldest to the newest.
    runs: tuple[tuple[RunFile, ...], ...]  # Ordered from the newest to the oldest; the last one is the target.
    drops_tombstones: bool  # True if the target is the oldest run of the store.
    start: bytes  # Keys below are merged already.
    spaces: tuple[int, ...]  # Live spaces, ascending.
    file_bytes: int  # The longest file, unless a single record is longer.
    purges: bool  # True: newer runs stay, and the records they hide leave the target.
    stretch_bytes: int  # A stretch of a compaction may end once half of this is written.
    memory_bytes: int  # Budget of the process, without the longest batch and three times the longest record.
    bytes_per_second: int  # Initial write rate; 0: unlimited.
    sweeps: bool = False  # True: only stale files are merged, of one run.
    expiry: ExpiryOrder | None = None

    @property
    def expiring(self) -> KeyRange | None:
        """The range of the files with expiring records; None: there are none, or the merge is a flush."""
        files = [file for run in self.runs for file in run if file.expiring and file.last >= self.start]
        return (min(file.first for file in files), max(file.last for file in files)) if files else None

    def with_expiry(self, rule: ExpiryRule, rows: Iterable[bytes]) -> MergeOrder:
        """Return this order with a filter."""
        return replace(self, expiry=ExpiryOrder(rule.module, rule.name, rule.now_ms(), b"".join(rows).hex()))


class MergeOutput(NamedTuple):
    """Complete, synced and renamed files, and the files of the target that they replace."""

    replaced: tuple[str, ...]
    files: tuple[RunFile, ...]
    end: bytes | None  # Key at which the rest begins; None: all is merged, and the merged newer runs leave.


def read_batches(files: Files, order: MergeOrder, segment: LogInput) -> Iterator[tuple[int, bytes]]:
    """Yield the batches of a segment on disk."""
    name = SegmentName(segment.number, segment.salt)
    for frame in read_segment(files, PurePath(order.directory), name, order.store, end=segment.end):
        if frame.kind == BATCH:
            yield frame.offset + FRAME_BYTES, frame.payload


def run_path(directory: PurePath, name: str) -> PurePath:
    """Return the path of a run's file in the store `directory`."""
    return directory / RUNS / name


def run_name(merge: int, count: int) -> str:
    """Return the name of a merge's `count`-th file, from 1 on."""
    return f"{merge:08d}-{count:04d}{SUFFIX}"


def merge(
    files: Files,
    order: MergeOrder,
    on_progress: Callable[[int], object] = lambda _: None,
    *,
    wait: Callable[[int], object] = lambda _: None,
) -> MergeOutput:
    """Merge as ordered; returns the output to switch to.

    `on_progress` is called now and then with the total bytes read and written. `wait` is called with the size of each
    write, and returns when the next write may follow.

    Ensures: if the merge ends early, nothing names its output.

    Raises:
        Corrupt: an input is damaged; names the file.
        LimitExceeded: a record, or a crowd of colliding keys, exceeds a file's limits.
        OSError, StorageError: the system refused.
    """
    merging = _Merging(files, order, on_progress, wait)
    try:
        merging.begin()
        return merging.run()
    except BaseException:
        merging.abort()
        raise
    finally:
        merging.close()


@final
class _Merging:
    """One merge under way."""

    def __init__(
        self, files: Files, order: MergeOrder, on_progress: Callable[[int], object], wait: Callable[[int], object]
    ) -> None:
        if order.memory_bytes < MIN_MEMORY_BYTES:
            raise ValueError(f"memory_bytes must be at least {MIN_MEMORY_BYTES}, got {order.memory_bytes}")
        self._files = files
        self._order = order
        self._directory = PurePath(order.directory)
        self._on_progress = on_progress
        self._wait = wait
        self._spaces = frozenset(order.spaces)
        self._free_bytes = order.memory_bytes - PROGRAM_BYTES - FIXED_BYTES
        self._index_bytes = int(self._free_bytes * INDEX_SHARE) if order.log else self._free_bytes
        self._sorter: RecordSorter | None = None
        self._scratches = 0
        self._worked_bytes = 0  # Read or written; records of dropped spaces are only read.
        self._count = 0  # Files begun.
        self._filter, self._now_ms = MergeFilter(), 0
        if (expiry := order.expiry) is not None:
            self._now_ms = expiry.now_ms
            self._filter = getattr(importlib.import_module(expiry.module), expiry.name)(
                expiry.now_ms, bytes.fromhex(expiry.rows)
            )
        self._merge = StoreMerge([], frozenset(), MergeFilter(), drops_tombstones=False, purges=False)
        self._greatest = max((file.last for run in order.runs for file in run), default=b"")
        self._target = tuple(file for run in order.runs[-1:] for file in run if file.first >= order.start)
        self._at = 0  # Files of the target before this index are done.
        self._replaced: list[RunFile] = []
        self._made: list[RunFile] = []
        self._writer: SortedFileWriter | None = None
        self._first = b""

    def begin(self) -> None:
        """Sort the log's records, and open every run but the target."""
        order = self._order
        sources: list[Source] = [self._source(run) for run in reversed(order.runs[:-1])]
        if order.log:
            self._sorter = RecordSorter(self._make_scratch, self._free_bytes - self._index_bytes)
            for segment in order.log:
                self._add(segment)
            sources.append(OrderedSource(self._sorter.finish_adding()))
        self._merge = StoreMerge(sources, self._spaces, self._filter, order.drops_tombstones, order.purges)

    def _source(self, run: Iterable[RunFile]) -> FilesSource:
        start = self._order.start
        paths = [self._path_of(file.name) for file in run if file.last >= start]
        return FilesSource(self._open, paths, start, self._worked)

    def _add(self, segment: LogInput) -> None:
        assert self._sorter is not None
        for offset, payload in read_batches(self._files, self._order, segment):
            added = add_operations(self._sorter, payload, self._spaces)
            if added != len(payload):
                path = segment_path(self._directory, segment.number)
                raise Corrupt(str(path), offset + added, "the batch has an invalid operation")

    # -- the target ------------------------------------------------------------------------------------------------

    def run(self) -> MergeOutput:
        """Write one stretch, and return it."""
        while True:
            if self._writer is not None and self._order.sweeps and not self._is_stale:
                self._end_file()
            if not self._is_open:
                self._pass_over()
            following, key = self._following, self._merge.next_key()
            if following is not None and (self._is_open or key is None or key >= following.first):
                self._join()
            elif key is None:
                return self._end(None)
            self._write_to_next()
            if self._is_enough and (rest := self._rest()) is not None:
                return self._end(rest)

    @property
    def _following(self) -> RunFile | None:
        return self._target[self._at] if self._at < len(self._target) else None

    def _rest(self) -> bytes | None:
        """Return the key at which the unmerged rest begins, or None."""
        keys = [self._merge.next_key(), None if self._following is None else self._following.first]
        return min((key for key in keys if key is not None), default=None)

    def _pass_over(self) -> None:
        """Skip target files that stay: not stale, and no newer record and no dropped space lies in their range."""
        key = self._merge.next_key()
        while (file := self._following) is not None and (key is None or file.last < key):
            if self._is_stale or (not self._order.sweeps and self._has_dropped(file)):
                break
            self._at += 1

    @property
    def _is_stale(self) -> bool:
        """True if many records of the target's next file have expired."""
        return self._following is not None and 0 < self._following.stale_ms <= self._now_ms

    def _has_dropped(self, file: RunFile) -> bool:
        """Return True if a file has records of dropped spaces; reads the file if its range leaves room for some."""
        spaces = self._order.spaces
        first, last = (int.from_bytes(key[:SPACE_BYTES], "big") for key in (file.first, file.last))
        between = spaces[bisect_left(spaces, first) : bisect_right(spaces, last)]
        if not between or (between[0], between[-1]) != (first, last):
            return True
        gaps = [(before + 1, after) for before, after in pairwise(between) if before + 1 < after]
        if not gaps:
            return False
        with self._open(self._path_of(file.name)) as opened:
            return any(
                True
                for start, end in gaps
                for _ in opened.scan(start.to_bytes(SPACE_BYTES, "big"), end.to_bytes(SPACE_BYTES, "big"), limit=1)
            )

    def _join(self) -> None:
        """Add the target's next file to the stretch."""
        file = self._target[self._at]
        self._merge.join_oldest(self._source([file]))
        self._replaced.append(file)
        self._at += 1

    @property
    def _is_open(self) -> bool:
        """True if the stretch has begun to write; later files then join it until it is long enough."""
        return bool(self._writer or (self._made and not self._order.sweeps))

    @property
    def _is_enough(self) -> bool:
        """True if the stretch may end between target files; a flush has no target, and continues."""
        written = sum(file.size_bytes for file in self._made) + (self._writer.size_bytes if self._writer else 0)
        replaced = sum(file.size_bytes for file in self._replaced)
        most = self._order.stretch_bytes
        return not self._order.log and (2 * written >= most or replaced >= STRETCH_REPLACED * most)

    # -- files -----------------------------------------------------------------------------------------------------

    def _write_to_next(self) -> None:
        """Write the kept records below the target's next file, or fewer if the stretch may end earlier."""
        bound = None if self._following is None else self._following.first
        while (first := self._merge.next_kept(bound)) is not None:
            if self._is_enough and (not self._replaced or self._replaced[-1].last < first):
                return
            writer = self._writer or self._begin_file(first)
            if self._merge.write(writer, bound, self._order.file_bytes):
                self._end_file()

    def _begin_file(self, first: bytes) -> SortedFileWriter:
        self._count += 1
        self._first = first
        self._writer = SortedFileWriter(
            self._files,
            self._path_of(run_name(self._order.number, self._count)) + TEMPORARY_SUFFIX,
            memory_bytes=self._index_bytes,
            compression=COMPRESSIONS["none"],
            # The store's id is secret, so nobody can construct keys that crowd the index.
            seed=_seed(self._order.store, self._order.number, self._count),
            common_prefix=self._prefix(first),
            metadata=b"",
            on_write=self._wrote,
        )
        return self._writer

    def _prefix(self, first: bytes) -> bytes:
        """Return the common prefix of all keys that may follow `first`."""
        if self._sorter is not None:
            return _shared(first, self._sorter.common_prefix(0))
        return _shared(first, max(first, self._greatest))

    def _wrote(self, size_bytes: int) -> None:
        self._worked(size_bytes)
        self._wait(size_bytes)

    def _worked(self, size_bytes: int) -> None:
        self._worked_bytes += size_bytes
        self._on_progress(self._worked_bytes)

    def _end_file(self) -> None:
        assert self._writer is not None
        path = self._path_of(run_name(self._order.number, self._count))
        records, last, *counts = self._merge.end_file()
        self._merge.confirm()
        size_bytes = self._writer.finish()
        _, seal = look_at_seal(self._files, PurePath(self._writer.path))
        self._writer = None
        self._made.append(RunFile(PurePath(path).name, records, size_bytes, seal, self._first, last, *counts))
        self._files.rename(path + TEMPORARY_SUFFIX, path)

    def _end(self, rest: bytes | None) -> MergeOutput:
        """End the stretch; its files replace those it has read."""
        if self._writer is not None:
            self._end_file()
        if self._made:
            self._files.sync_directory(self._directory / RUNS)
        return MergeOutput(tuple(file.name for file in self._replaced), tuple(self._made), rest)

    def _open(self, path: str) -> SortedFile:
        return SortedFile(path, files=self._files)

    def _path_of(self, name: str) -> str:
        return str(run_path(self._directory, name))

    def _make_scratch(self) -> Scratch:
        self._scratches += 1
        return Scratch(self._files, self._path_of(f"{self._order.number:08d}-run-{self._scratches}{TEMPORARY_SUFFIX}"))

    # -- the end ---------------------------------------------------------------------------------------------------

    def abort(self) -> None:
        """Remove written files, as far as the system allows."""
        if self._writer is not None:
            with contextlib.suppress(OSError):
                self._writer.abort()
            with contextlib.suppress(OSError):
                self._files.unlink(self._writer.path)  # It was finished but not renamed.
        for file in self._made:
            for suffix in ("", TEMPORARY_SUFFIX):
                with contextlib.suppress(OSError):
                    self._files.unlink(self._path_of(file.name) + suffix)

    def close(self) -> None:
        if self._sorter is not None:
            with contextlib.suppress(OSError):
                self._sorter.close()


def _seed(store: int, merge: int, count: int) -> int:
    """Return the index seed of a file: reproducible, and different for each file."""
    return int.from_bytes(hashlib.blake2b(struct.pack("<QQQ", store, merge, count), digest_size=8).digest(), "little")


def _shared(key: bytes, other: bytes) -> bytes:
    size = 0
    while size < min(len(key), len(other)) and key[size] == other[size]:
        size += 1
    return key[:size]
