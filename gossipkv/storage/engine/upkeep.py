"""The manifest of an open store and its changes: merges, switches to their output, removal of old files.

Every change of the manifest is a `Switch`, one at a time. Files that a switch makes superfluous are removed once it is
durable and nobody holds them. A failed switch may have happened: it is repeated, and nothing is removed until then.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple, final

from gossipkv.storage.engine.manifest import RunFile, SegmentName, SortedRun, StoreManifest, segment_path
from gossipkv.storage.engine.merge import LogInput, MergeOrder, run_path
from gossipkv.storage.engine.policy import Compaction, StoreState, Weight
from gossipkv.storage.engine.works import Remove, RunningMerge, Switch

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping
    from pathlib import PurePath

    from gossipkv.storage.engine.merge import MergeOutput
    from gossipkv.storage.engine.options import EngineOptions
    from gossipkv.storage.engine.segments import Segment
    from gossipkv.storage.sorted_file import SortedFile

# Unneeded segments kept for reuse; more are returned to the file system.
MAX_FREE_SEGMENTS: Final = 1

# Estimated size of a manifest, and of each file's entry in it.
MANIFEST_BYTES: Final = 16 << 10
FILE_BYTES: Final = 256


class Begun(NamedTuple):
    """A compaction that is partly done."""

    chosen: Compaction
    start: bytes  # Keys below are merged already, in the target run.
    dropped_bytes: int  # Bytes of dropped spaces when it began.


class SyncedState(NamedTuple):
    """The state of a store at its last sync, as far as the manifest needs it."""

    spaces: Collection[int]
    next_space: int
    active: SegmentName
    active_bytes: int
    deletes_wait: bool = False  # The flush was into the margin, for deletes that free space.


@final
class ManifestUpkeep:
    """The manifest and its changes."""

    def __init__(
        self,
        directory: PurePath,
        options: EngineOptions,
        manifest: StoreManifest,
        kept: Iterable[Segment],
        closed: Iterable[Segment],
        *,
        files: Mapping[str, SortedFile],
    ) -> None:
        self.manifest = manifest
        self.files = dict(files)  # Open files of all runs, by name.
        self.kept = list(kept)  # Segments in runs, kept for readers of the log.
        self._lost: list[int] = []  # Formerly kept segments, dropped for damage.
        self.closed = list(closed)  # Full segments that are in no run yet.
        self.dropped_bytes = manifest.dropped_bytes
        self.merge: RunningMerge | None = None  # Under way, until the switch to its output.
        self._directory = directory
        self._options = options
        self._next_merge = manifest.next_merge
        self._begun: list[Begun] = []  # Each merges newer runs than the one before; the last goes on first.
        self._purged = 0  # Tombstones of young runs whose records the last purge removed.
        self._output: MergeOutput | None = None  # Output of the merge, once it is done.
        self._switch: Switch | None = None
        self._may_have_happened = False  # True if the next switch was tried, and may have succeeded.
        self._removal: Remove | None = None
        self._free: list[int] = []
        self._old: list[PurePath] = []

    # -- merges ------------------------------------------------------------------------------------------------------

    def begin_flush(self, spaces: Iterable[int], rate: int) -> RunningMerge:
        """Begin a merge of the closed segments into a young run."""
        log = tuple(LogInput(*segment.name, segment.end) for segment in self.closed)
        return self._begin(spaces, rate, log=log)

    def begin_compaction(
        self, chosen: Compaction, spaces: Iterable[int], rate: int, stretch_bytes: int
    ) -> RunningMerge:
        """Begin a merge of a compaction's next stretch; a purge supersedes all started compactions."""
        if not self._begun or self._begun[-1].chosen != chosen:
            if not (chosen.count or chosen.sweeps):
                self._begun = [Begun(Compaction(below, 0), b"", self.dropped_bytes) for below in range(chosen.below)]
                self._purged = self._tombstones
            self._begun.append(Begun(chosen, b"", self.dropped_bytes))
        runs, last = self._runs(), self._place(chosen)
        purges = not (chosen.count or chosen.sweeps)
        first = 0 if purges else last - chosen.count  # A purge takes all newer runs into account.
        inputs = tuple(run.files for run in runs[first : last + 1])
        return self._begin(
            spaces,
            rate,
            inputs,
            drops_tombstones=not chosen.below,
            start=self._begun[-1].start,
            purges=purges,
            sweeps=chosen.sweeps,
            stretch_bytes=stretch_bytes,
        )

    def _begin(
        self,
        spaces: Iterable[int],
        rate: int,
        runs: tuple[tuple[RunFile, ...], ...] = (),
        *,
        log: tuple[LogInput, ...] = (),
        drops_tombstones: bool = False,
        start: bytes = b"",
        purges: bool = False,
        sweeps: bool = False,
        stretch_bytes: int = 0,
    ) -> RunningMerge:
        assert self.merge is None, "one merge at a time"
        number, self._next_merge = self._next_merge, self._next_merge + 1
        order = MergeOrder(
            directory=str(self._directory),
            store=self.manifest.store,
            number=number,
            log=log,
            runs=runs,
            drops_tombstones=drops_tombstones,
            start=start,
            spaces=tuple(sorted(spaces)),
            file_bytes=self._options.file_bytes,
            purges=purges,
            stretch_bytes=stretch_bytes,
            memory_bytes=self._options.merge_memory,
            bytes_per_second=rate,
            sweeps=sweeps,
        )
        self.merge = RunningMerge(order)
        return self.merge

    def _runs(self) -> list[SortedRun]:
        return [*self.manifest.young, self.manifest.oldest]

    def _place(self, chosen: Compaction) -> int:
        """Return the index, among all runs, of a compaction's target."""
        return len(self.manifest.young) - chosen.below

    @property
    def _tombstones(self) -> int:
        return sum(run.tombstones for run in self.manifest.young)

    def state(self, *, active_share: float, free_bytes: int, deletes_wait: bool = False, now_ms: int = 0) -> StoreState:
        """Return the state by which `policy` decides merges and refusals."""
        return StoreState(
            closed_segments=len(self.closed),
            closed_bytes=sum(segment.end for segment in self.closed),
            memtables_full=min(1, len(self.closed)),
            active_share=active_share,
            young=tuple(weight(run, now_ms) for run in self.manifest.young),
            oldest=weight(self.manifest.oldest, now_ms),
            dropped_bytes=self.dropped_bytes,
            free_bytes=free_bytes,
            deletes_wait=deletes_wait,
            purged=min(self._purged, self._tombstones),
            is_merging=self.merge is not None,
            begun=self._begun[-1].chosen if self._begun else None,
        )

    def merged(self, work: RunningMerge, output: MergeOutput) -> None:
        """Accept a merge's output, synced and renamed; the next switch replaces its inputs by it."""
        assert work is self.merge, "one merge at a time"
        self._output = output

    def merge_failed(self) -> None:
        """Keep the inputs of a failed merge; earlier stretches of its compaction stay done."""
        self.merge = None

    # -- switches ----------------------------------------------------------------------------------------------------

    @property
    def switch_bytes(self) -> int:
        """Estimated disk space of the next switch, a manifest; 0: there is none."""
        return 0 if self._output is None else MANIFEST_BYTES + FILE_BYTES * len(self.files)

    def next_switch(self, synced: SyncedState) -> Switch | None:
        """Return the next switch, if there is one and none is under way."""
        if self._switch is not None or self._output is None:
            return None
        assert self.merge is not None, "it has an output"
        before, output, dropped = self.manifest, self._output, self.dropped_bytes
        if self.merge.order.log:
            floor = self._log_floor(synced)
            after = replace(
                before,
                young=(*([SortedRun(output.files)] if output.files else []), *before.young),
                recovery_floor=synced.active,
                log_floor=floor,
                kept=tuple(
                    segment.name for segment in (*self.kept, *self.closed) if segment.name.number >= floor.number
                ),
                lives=tuple(end for end in before.lives if end.number > floor.number),
            )
        else:
            *young, oldest = self._compacted(self._begun[-1].chosen, output)
            after, dropped = replace(before, young=tuple(young), oldest=oldest), self._dropped_after(output)
        spaces, next_space = frozenset(synced.spaces), synced.next_space
        after = replace(after, spaces=spaces, next_space=next_space, next_merge=self._next_merge, dropped_bytes=dropped)
        named = {file.name for file in before.run_files}
        self._switch = Switch(after, tuple(file for file in after.run_files if file.name not in named))
        return self._switch

    def _compacted(self, chosen: Compaction, output: MergeOutput) -> list[SortedRun]:
        """Return all runs after a stretch is merged; the last stretch removes the newer runs."""
        runs, last = self._runs(), self._place(chosen)
        runs[last] = with_stretch(runs[last], output)
        if output.end is None:
            runs[last - chosen.count : last + 1] = [runs[last]] if runs[last].files or not chosen.below else []
        return runs

    def _dropped_after(self, output: MergeOutput) -> int:
        """Return the bytes that dropped spaces still take.

        A finished merge into the oldest run removes those that were dropped before it began.
        """
        begun = self._begun[-1]
        is_done = output.end is None and not begun.chosen.below and not begun.chosen.sweeps
        return max(0, self.dropped_bytes - begun.dropped_bytes) if is_done else self.dropped_bytes

    def _log_floor(self, synced: SyncedState) -> SegmentName:
        """Return the oldest segment to keep once the closed ones are in a run: at least one closed segment is kept.

        Its last frame tells an opening which position comes next, as long as no frame lies above the recovery floor.
        Where room is scarce the log grows no longer: each flush would keep a segment of the reserve for its readers.
        """
        kept = deque([*self.kept, *self.closed])
        left = sum(map(known_bytes, kept)) + synced.active_bytes
        wanted = self._options.table_log
        if synced.deletes_wait:
            wanted = min(wanted, sum(map(known_bytes, self.kept)))
        while len(kept) > 1 and left - known_bytes(kept[0]) >= wanted:
            left -= known_bytes(kept.popleft())
        return kept[0].name if kept else synced.active

    def switched(self, work: Switch, opened: Mapping[str, SortedFile]) -> bool:
        """Adopt a durable manifest; returns True if closed segments are now in a run."""
        assert work is self._switch, "one switch at a time"
        assert self.merge is not None, "it has an output"
        assert self._output is not None, "it is what was switched to"
        output, was_flush = self._output, bool(self.merge.order.log)
        before, self.manifest = self.manifest, work.manifest
        self.merge = self._output = self._switch = None
        self._may_have_happened = False
        self.files.update(opened)
        named = {file.name for file in self.manifest.run_files}
        for file in before.run_files:
            if file.name not in named:
                self._old.append(run_path(self._directory, file.name))
                del self.files[file.name]
        if was_flush:
            self._keep_log()
        else:
            self.dropped_bytes = self._dropped_after(output)
            begun = self._begun.pop()
            if output.end is not None:
                self._begun.append(begun._replace(start=output.end))
        return was_flush

    def _keep_log(self) -> None:
        """Keep segments from the log's floor on; one of the others may be reused."""
        segments = [*self.kept, *self.closed]
        floor = self.manifest.log_floor.number
        lost, self._lost = self._lost, []
        self.abandon(lost)
        self.kept, self.closed = [segment for segment in segments if segment.name.number >= floor], []
        for segment in segments[: len(segments) - len(self.kept)]:
            if len(self._free) < MAX_FREE_SEGMENTS:
                self._free.append(segment.name.number)
            else:
                self.abandon([segment.name.number])

    def lose_log(self, number: int) -> bool:
        """Drop segments kept for readers, up to a damaged one; returns True if that was kept for readers only.

        The files are removed once the manifest no longer names them.
        """
        is_kept = any(segment.name.number == number for segment in self.kept)
        if is_kept:
            self._lost += [segment.name.number for segment in self.kept if segment.name.number <= number]
            self.kept = [segment for segment in self.kept if segment.name.number > number]
        return is_kept

    def switch_failed(self, *, may_have_happened: bool = True) -> None:
        """Schedule the switch again; the failed attempt may have happened."""
        self._switch = None
        self._may_have_happened |= may_have_happened

    def switch_refused(self) -> None:
        """Discard the output of a merge because a file differs from the report; the merge is repeated.

        If an earlier attempt to switch may have happened, the manifest may name the file: then no file is removed, and
        the switch is repeated.
        """
        self._switch = None
        if self._may_have_happened:
            return
        assert self._output is not None, "it was to be switched to"
        self._old += [run_path(self._directory, file.name) for file in self._output.files]
        self.merge = self._output = None

    # -- what is left over -------------------------------------------------------------------------------------------

    def take_free(self) -> int | None:
        """Return the number of a segment to reuse, if there is one and nobody holds it."""
        return self._free.pop() if self._free else None

    def abandon(self, numbers: Iterable[int]) -> None:
        self._old += [segment_path(self._directory, number) for number in numbers]

    def next_removal(self) -> Remove | None:
        """Return the files to remove, if there are any and nobody holds them."""
        if self._removal is not None or not self._old:
            return None
        self._removal, self._old = Remove(tuple(self._old)), []
        return self._removal

    def removed(self) -> None:
        self._removal = None

    def removal_failed(self) -> None:
        assert self._removal is not None, "it was tried"
        self._old += self._removal.paths
        self._removal = None

    def leftovers(self) -> list[PurePath]:
        """Return the files that nothing names any more; nobody holds them when the store is closed."""
        removal = () if self._removal is None else self._removal.paths
        return [*(segment_path(self._directory, number) for number in self._free), *self._old, *removal]


def weight(run: SortedRun, now_ms: int) -> Weight:
    """Return the sizes of a run, for `policy`."""
    longest = max((file.size_bytes for file in run.files), default=0)
    is_stale = any(0 < file.stale_ms <= now_ms for file in run.files)
    return Weight(run.size_bytes, run.records, run.tombstones, longest, is_stale)


def known_bytes(segment: Segment) -> int:
    """Return the length of a segment's log if it was read, else its maximum."""
    return segment.end or segment.size_bytes


def with_stretch(run: SortedRun, output: MergeOutput) -> SortedRun:
    """Return a run with some of its files replaced by a stretch's output."""
    replaced = set(output.replaced)
    left = [file for file in run.files if file.name not in replaced]
    assert len(left) + len(replaced) == len(run.files), "a stretch replaces what is there"
    return SortedRun(tuple(sorted((*left, *output.files), key=lambda file: file.first)))
