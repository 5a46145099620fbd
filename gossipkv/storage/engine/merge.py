"""Merging: segments of the log and runs in, in one pass over all of them in key order, files of a run out.

Flush and compaction are this one thing: a flush makes a run of segments of the log; a compaction has runs that
neighbour each other in age, and all go into the oldest of them, the target.  Of a key the newest record stays; those of
spaces that are gone vanish.  A tombstone vanishes only on the way into the oldest run of the store, below which nothing
lies that it could hide.

A merge writes one stretch of the target, so that it is short, and beside the result no more space is needed than the
inputs and a file or two.  A stretch is a range of keys: files of the target, and what is newer in their range.

    target   [a .. f]     [g .. k]     [l .. p]     [q .. z]      nothing newer lies in [l .. p], so it stays
    newer       b  d  e  f-h  i                        r  s
    output   [a ......... k], two files instead of two;  the rest begins at r

A *purge* writes of the target what no newer run hides, and nothing newer, so that its result is never longer; the newer
runs stay.

The output may replace its files at once: the newer runs are still there, and say the same.  They leave with the last
stretch.  A stretch ends where an old file does, or none is, once it has written half of what it was told (at the least
a file: else small files would stay small) or replaces twice that.

Rejected: the target rewritten whole before the switch, which takes its size twice; and records cut into stretches of
equal size, which would read and write old files that nothing has changed.
"""

from __future__ import annotations

import contextlib
import hashlib
import struct
from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from itertools import pairwise
from pathlib import PurePath
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, final

from gossipkv.errors import Corrupt
from gossipkv.storage.builder import TEMPORARY_SUFFIX
from gossipkv.storage.compression import COMPRESSIONS
from gossipkv.storage.engine._engine import BATCH, FRAME_BYTES, FilesSource, StoreMerge, add_operations
from gossipkv.storage.engine.manifest import RUNS, RunFile, SegmentName, segment_path
from gossipkv.storage.engine.segments import read_segment
from gossipkv.storage.label import look_at_seal
from gossipkv.storage.sorted_file import SUFFIX, SortedFile
from gossipkv.storage.sorting import OrderedSource, RecordSorter, Scratch, SortedFileWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from gossipkv.environment.seam import Files
    from gossipkv.storage.sorting import Source

SPACE_BYTES: Final = 4

# How a budget is divided: what the program takes that it has imported, and a writer's pages and what it has put aside,
# are fixed; of the rest, 16 bytes a record for the index stand against some 130 for a small record and its item.
PROGRAM_BYTES: Final = 24 << 20
FIXED_BYTES: Final = 12 << 20
INDEX_SHARE: Final = 0.2
LEAST_MEMORY_BYTES: Final = PROGRAM_BYTES + FIXED_BYTES + (12 << 20)

STRETCH_REPLACED: Final = 2  # A stretch replaces files of this many times its length, and one more at most.


class LogInput(NamedTuple):
    """A closed segment of the log: its batches."""

    number: int
    salt: int
    end: int  # Where its last frame ends that counts.


@final
@dataclass(frozen=True, slots=True)
class MergeOrder:
    """What to merge, and how: segments of the log into a new run, or runs that neighbour each other in age."""

    directory: str
    store: int
    number: int  # Of the merge: no other has it.
    log: tuple[LogInput, ...]  # From the oldest to the newest.
    runs: tuple[tuple[RunFile, ...], ...]  # From the newest to the oldest, the target, that all others go into.
    drops_tombstones: bool  # The target is the oldest run of the store.
    start: bytes  # Keys below it are done with.
    spaces: tuple[int, ...]  # Those that live, in order.
    file_bytes: int  # The most that a file has, unless one record alone is longer.
    purges: bool  # The newer runs stay, and what they hide goes from the target.
    stretch_bytes: int  # Once half of it is written, a stretch of a compaction may end.
    memory_bytes: int  # The budget of the process; beside it, the longest batch and three times the longest record.
    bytes_per_second: int  # At which files are written, at first; 0: as fast as it goes.


class Output(NamedTuple):
    """Files that are whole, synced and in place, and those of the target that they stand for."""

    replaced: tuple[str, ...]
    files: tuple[RunFile, ...]
    end: bytes | None  # The key at which the rest begins; None: all is merged, and what went into the target leaves.


class ReadLog(Protocol):
    """How a segment is read; damage raises Corrupt."""

    def __call__(self, files: Files, order: MergeOrder, segment: LogInput, /) -> Iterable[tuple[int, bytes]]:
        """The place and the bytes of each batch, in order."""
        ...


def read_batches(files: Files, order: MergeOrder, segment: LogInput) -> Iterator[tuple[int, bytes]]:
    """Read the log as it lies on the disk."""
    name = SegmentName(segment.number, segment.salt)
    for frame in read_segment(files, PurePath(order.directory), name, order.store, end=segment.end):
        if frame.kind == BATCH:
            yield frame.offset + FRAME_BYTES, frame.payload


def run_path(directory: PurePath, name: str) -> PurePath:
    """Where a file of a run lies in the store `directory`."""
    return directory / RUNS / name


def run_name(merge: int, count: int) -> str:
    """The name of the file that a merge writes as its `count`-th, from 1 on."""
    return f"{merge:08d}-{count:04d}{SUFFIX}"


def merge(
    files: Files,
    order: MergeOrder,
    on_progress: Callable[[int], object] = lambda _: None,
    *,
    read_log: ReadLog = read_batches,
    wait: Callable[[int], object] = lambda _: None,
) -> Output:
    """Merge as ordered; returns what may be switched to.

    `on_progress` is told now and then how many bytes were read and written in all; `wait` of each write's size, and
    returns when the next may come.

    Ensures: whatever ends it early, what it wrote is nobody's.

    Raises:
        Corrupt: an input is damaged; names the file.
        LimitExceeded: a record, or what keys were made to crowd into, is more than a file holds.
        OSError, StorageError: the system refused.
    """
    merging = _Merging(files, order, on_progress, wait)
    try:
        merging.begin(read_log)
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
        self,
        files: Files,
        order: MergeOrder,
        on_progress: Callable[[int], object],
        wait: Callable[[int], object],
    ) -> None:
        if order.memory_bytes < LEAST_MEMORY_BYTES:
            raise ValueError(f"memory_bytes must be at least {LEAST_MEMORY_BYTES}, got {order.memory_bytes}")
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
        self._worked_bytes = 0  # Read or written: of a dropped space all is read, and nothing written.
        self._count = 0  # Files begun.
        self._merge = StoreMerge([], frozenset(), drops_tombstones=False, purges=False)
        self._greatest = max((file.last for run in order.runs for file in run), default=b"")
        self._target = tuple(file for run in order.runs[-1:] for file in run if file.first >= order.start)
        self._at = 0  # Files of the target before this one are done with.
        self._replaced: list[RunFile] = []
        self._made: list[RunFile] = []
        self._writer: SortedFileWriter | None = None
        self._first = b""

    def begin(self, read_log: ReadLog) -> None:
        """Sort what the log has, and find the first record of every run but the target."""
        order = self._order
        sources: list[Source] = [self._source(run) for run in reversed(order.runs[:-1])]
        if order.log:
            self._sorter = RecordSorter(self._make_scratch, self._free_bytes - self._index_bytes)
            for segment in order.log:
                self._add(segment, read_log)
            sources.append(OrderedSource(self._sorter.finish_adding()))
        self._merge = StoreMerge(sources, self._spaces, order.drops_tombstones, order.purges)

    def _source(self, run: Iterable[RunFile]) -> FilesSource:
        start = self._order.start
        paths = [self._path_of(file.name) for file in run if file.last >= start]
        return FilesSource(self._open, paths, start, self._worked)

    def _add(self, segment: LogInput, read_log: ReadLog) -> None:
        assert self._sorter is not None
        for offset, payload in read_log(self._files, self._order, segment):
            added = add_operations(self._sorter, payload, self._spaces)
            if added != len(payload):
                path = segment_path(self._directory, segment.number)
                raise Corrupt(str(path), offset + added, "what follows in the batch is no operation")

    # -- the target ------------------------------------------------------------------------------------------------

    def run(self) -> Output:
        """Write a stretch; returns it."""
        while True:
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
        """The key at which what is still to be merged begins, if there is anything."""
        keys = [self._merge.next_key(), None if self._following is None else self._following.first]
        return min((key for key in keys if key is not None), default=None)

    def _pass_over(self) -> None:
        """Leave the files alone that stay: nothing newer lies in their range, and no space in it was dropped."""
        key = self._merge.next_key()
        while (file := self._following) is not None and (key is None or file.last < key):
            if self._has_dropped(file):
                break
            self._at += 1

    def _has_dropped(self, file: RunFile) -> bool:
        """Whether it has records of a space that does not live: looked up in it, if its range leaves room for some."""
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
        """Have the next file of the target in the stretch."""
        file = self._target[self._at]
        self._merge.join_oldest(self._source([file]))
        self._replaced.append(file)
        self._at += 1

    @property
    def _is_open(self) -> bool:
        """Whether the stretch has begun to write: what follows joins it until it is enough."""
        return bool(self._made or self._writer)

    @property
    def _is_enough(self) -> bool:
        """Whether the stretch may end where no file of the target is half read; a flush has none, and goes on."""
        written = sum(file.size_bytes for file in self._made) + (self._writer.size_bytes if self._writer else 0)
        replaced = sum(file.size_bytes for file in self._replaced)
        most = self._order.stretch_bytes
        return not self._order.log and (2 * written >= most or replaced >= STRETCH_REPLACED * most)

    # -- files -----------------------------------------------------------------------------------------------------

    def _write_to_next(self) -> None:
        """Write what stays of all below the target's next file, or less of it if the stretch may end there."""
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
            # The store's id is nobody's to know, so a crowd in the index cannot be planned.
            seed=_seed(self._order.store, self._order.number, self._count),
            common_prefix=self._prefix(first),
            metadata=b"",
            on_write=self._wrote,
        )
        return self._writer

    def _prefix(self, first: bytes) -> bytes:
        """What all keys begin with that may follow `first`."""
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
        records, tombstones, last = self._merge.end_file()
        self._merge.confirm()
        size_bytes = self._writer.finish()
        _, seal = look_at_seal(self._files, PurePath(self._writer.path))
        self._writer = None
        self._made.append(RunFile(PurePath(path).name, records, size_bytes, seal, self._first, last, tombstones))
        self._files.rename(path + TEMPORARY_SUFFIX, path)

    def _end(self, rest: bytes | None) -> Output:
        """End the stretch: what was written stands for its files."""
        if self._writer is not None:
            self._end_file()
        if self._made:
            self._files.sync_directory(self._directory / RUNS)
        return Output(tuple(file.name for file in self._replaced), tuple(self._made), rest)

    def _open(self, path: str) -> SortedFile:
        return SortedFile(path, files=self._files)

    def _path_of(self, name: str) -> str:
        return str(run_path(self._directory, name))

    def _make_scratch(self) -> Scratch:
        self._scratches += 1
        return Scratch(self._files, self._path_of(f"{self._order.number:08d}-run-{self._scratches}{TEMPORARY_SUFFIX}"))

    # -- the end ---------------------------------------------------------------------------------------------------

    def abort(self) -> None:
        """Remove what was written, as far as the system lets us."""
        if self._writer is not None:
            with contextlib.suppress(OSError):
                self._writer.abort()
            with contextlib.suppress(OSError):
                self._files.unlink(self._writer.path)  # One that was finished, and has no name yet.
        for file in self._made:
            for suffix in ("", TEMPORARY_SUFFIX):
                with contextlib.suppress(OSError):
                    self._files.unlink(self._path_of(file.name) + suffix)

    def close(self) -> None:
        """Give memory and scratch space back."""
        if self._sorter is not None:
            with contextlib.suppress(OSError):
                self._sorter.close()


def _seed(store: int, merge: int, count: int) -> int:
    """The seed of a file's index: always the same for the same file, and another for each."""
    return int.from_bytes(hashlib.blake2b(struct.pack("<QQQ", store, merge, count), digest_size=8).digest(), "little")


def _shared(key: bytes, other: bytes) -> bytes:
    size = 0
    while size < min(len(key), len(other)) and key[size] == other[size]:
        size += 1
    return key[:size]
