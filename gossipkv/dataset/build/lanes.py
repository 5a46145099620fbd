"""A build on several cores: lanes are threads that each read a share of the files and write a share of the groups.

Threads suffice: parsing, grouping, sorting, merging and writing run without the interpreter's lock.
`gossipkv.storage.shared_build` explains why the files are the same as those of one lane.  All lanes end a step before
any begins the next:

    read     add the records of its files to the lane's own builder
    aside    put records aside for all lanes to read, only if groups have records in several lanes
    write    write the lane's groups, from its own records or from those put aside

Invariant: files get their names when all lanes have written theirs, or not at all.  An error in one lane ends the
others: each checks before every piece it reads, and now and then while it writes.
"""

from __future__ import annotations

import contextlib
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import astuple, dataclass
from functools import partial
from itertools import chain
from threading import Event, Lock
from typing import TYPE_CHECKING, Generic, Self, TypeVar, final

from gossipkv.errors import StorageError
from gossipkv.storage.builder import LaneBuilder, put_in_place, remove_leftovers
from gossipkv.storage.shared_build import share_groups, share_out

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gossipkv.environment.seam import Files
    from gossipkv.storage.builder import BuildReport

    Note = Callable[[int], None]

Counted = TypeVar("Counted")
Done = TypeVar("Done")

# Below this size a build in one lane is about as fast.
SMALL_SOURCE_BYTES = 32 << 20


@dataclass(frozen=True, slots=True)
class LaneTask:
    """The common task of all lanes of a build."""

    directory: str
    names: Sequence[str]  # The sorted files get these names.
    memory_bytes: int  # All builders share this.
    compression: str
    metadata: Sequence[bytes]  # Each sorted file has an entry.


@dataclass(frozen=True, slots=True)
class LaneResult(Generic[Counted]):
    """The result of a build in lanes."""

    reports: list[BuildReport]  # One report for each name.
    counted: list[Counted]  # One count for each lane, in the order of the files.


@dataclass(slots=True)
class LaneProgress:
    """Progress of one lane, or of all together."""

    read_bytes: int = 0
    read_records: int = 0
    written_records: int = 0


def useful_lanes(sizes_bytes: Sequence[int], most: int) -> int:
    """Return the number of lanes, up to `most`, that have enough work to be worth dividing."""
    if sum(sizes_bytes) < SMALL_SOURCE_BYTES:
        return 1
    return max(1, min(most, sum(size > 0 for size in sizes_bytes)))


def build_in_lanes(
    task: LaneTask,
    read: Callable[[range, LaneBuilder, Note, Note], Counted],
    sizes_bytes: Sequence[int],
    lanes: int,
    files: Files,
    *,
    on_progress: Callable[[LaneProgress], None] = lambda _: None,
    pace: Note = lambda _: None,
) -> LaneResult[Counted]:
    """Build `task.names` in `task.directory`; return when they are in place and all threads have ended.

    `sizes_bytes` are the sizes of the files to read, in order; each lane gets adjacent files.  The callbacks run in the
    lanes' threads:

    * `read(places, builder, pace, on_records)` adds all records of the files at these places, in that order, and
      returns its counts.  It calls `pace` with the size of each piece before using the piece, and `on_records`
      with the number of records so far.
    * `on_progress` gets the sum over all lanes, from one lane at a time.
    * `pace` gets the size of each piece that a lane is about to read, and may sleep.

    Raises:
        GossipKVError, OSError: the error of a lane.
    """
    remove_leftovers(task.directory, files)
    shares = [share for share in share_out(sizes_bytes, lanes) if share]
    try:
        with _Team(len(shares), on_progress, pace) as team:
            result = team.build(task, files, read, shares)
    except BaseException:
        with contextlib.suppress(StorageError):
            remove_leftovers(task.directory, files)
        raise
    put_in_place(task.directory, task.names, files)
    return result


class _Stopped(BaseException):  # Readers convert each `Exception` into an error of the source.
    """Another lane failed; this lane gives up."""


@final
class _Lane:
    def __init__(self, team: _Team, number: int, task: LaneTask, files: Files) -> None:
        self.progress = LaneProgress()
        self.builder = LaneBuilder(
            task.directory,
            task.names,
            files=files,
            memory_bytes=task.memory_bytes // team.size,
            compression=task.compression,
            metadata=task.metadata,
            on_progress=self._note_written,
            lane=number,
        )
        self._team = team

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.builder.abort()

    def pace(self, size_bytes: int) -> None:
        """Wait until `size_bytes` more may be read; raise if another lane has failed."""
        self._team.pace(size_bytes)
        self.progress.read_bytes += size_bytes
        self._team.tell()

    def note_read(self, records: int) -> None:
        self.progress.read_records = records

    def _note_written(self, records: int, _: int) -> None:
        self.progress.written_records = records
        self._team.tell()


@final
class _Team:
    """All lanes in their own threads, with their stop signal; leaving the block ends them."""

    def __init__(self, size: int, on_progress: Callable[[LaneProgress], None], pace: Note) -> None:
        self.size = size
        self._lanes: list[_Lane] = []
        self._on_progress = on_progress
        self._pace = pace
        self._lock = Lock()
        self._stopped = Event()
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._stopped.set()  # Whatever ends the wait for the threads, such as Ctrl-C, must end the threads.
        self._stack.close()

    def build(
        self,
        task: LaneTask,
        files: Files,
        read: Callable[[range, LaneBuilder, Note, Note], Counted],
        shares: Sequence[range],
    ) -> LaneResult[Counted]:
        lanes = self._lanes = [self._stack.enter_context(_Lane(self, at, task, files)) for at in range(self.size)]
        threads = self._stack.enter_context(ThreadPoolExecutor(self.size, "lane"))
        counted = self._run(
            threads,
            [
                partial(read, share, lane.builder, lane.pace, lane.note_read)
                for lane, share in zip(lanes, shares, strict=True)
            ],
        )
        shared = share_groups([lane.builder.totals() for lane in lanes], len(task.names))
        runs = None
        if shared.exchange:
            runs = [
                run for lane_runs in self._run(threads, [lane.builder.put_aside for lane in lanes]) for run in lane_runs
            ]
        written = self._run(
            threads,
            [
                partial(lane.builder.write, shared.totals, groups, runs)
                for lane, groups in zip(lanes, shared.groups, strict=True)
            ],
        )
        for lane in lanes:
            lane.builder.close()
        reports = dict(zip(chain(*shared.groups), chain(*written), strict=True))
        return LaneResult([reports[group] for group in range(len(task.names))], counted)

    def pace(self, size_bytes: int) -> None:
        """Wait until `size_bytes` more may be read; raise if another lane has failed."""
        self._check()
        self._pace(size_bytes)

    def tell(self) -> None:
        """Report the progress of all lanes; raise if another lane has failed."""
        self._check()
        with self._lock:
            states = [astuple(lane.progress) for lane in self._lanes]
            self._on_progress(LaneProgress(*map(sum, zip(*states, strict=True))))

    def _check(self) -> None:
        if self._stopped.is_set():
            raise _Stopped

    def _run(self, threads: ThreadPoolExecutor, steps: Sequence[Callable[[], Done]]) -> list[Done]:
        """Return the result of each lane's step once all have ended; raise the first lane's error."""
        futures = [threads.submit(self._run_step, step) for step in steps]
        errors = [error for future in futures if (error := future.exception()) is not None]
        for error in sorted(errors, key=lambda error: isinstance(error, _Stopped)):
            raise error
        return [future.result() for future in futures]

    def _run_step(self, step: Callable[[], Done]) -> Done:
        """Perform the step; an error stops the other lanes."""
        try:
            return step()
        except BaseException:
            self._stopped.set()
            raise
