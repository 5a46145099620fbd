"""What a store consists of, and how that changes: merges, switches to what they wrote, removal of what is left over.

What a store consists of is its manifest.  All that changes it is a `Switch`, one at a time; what a switch makes
superfluous is removed when that is durable, and nobody holds it.  A switch that failed may have happened: it is done
again, and until then nothing is removed.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple, final

from gossipkv.storage.engine.manifest import Manifest, Run, RunFile, SegmentName, segment_path
from gossipkv.storage.engine.merge import LogInput, MergeOrder, run_path
from gossipkv.storage.engine.policy import Compaction, StoreState, Weight
from gossipkv.storage.engine.works import Merge, Remove, Switch

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping
    from pathlib import PurePath

    from gossipkv.storage.engine.merge import Output
    from gossipkv.storage.engine.options import Options
    from gossipkv.storage.engine.segments import Segment
    from gossipkv.storage.sorted_file import SortedFile

# What is not needed any more and may become a segment again; more is given back to the file system.
MOST_FREE_SEGMENTS: Final = 1

# What a manifest takes, and each file in it, about.
MANIFEST_BYTES: Final = 16 << 10
FILE_BYTES: Final = 256


class Begun(NamedTuple):
    """A compaction of which not all is done."""

    chosen: Compaction
    start: bytes  # Keys below are merged: in the run that all go into.
    dropped_bytes: int  # What dropped spaces took when it began.


class Now(NamedTuple):
    """What the rest of the store says when a switch is made: as of the last sync."""

    spaces: Collection[int]
    next_space: int
    active: SegmentName
    active_bytes: int


@final
class Upkeep:
    """The manifest and its changes."""

    def __init__(
        self,
        directory: PurePath,
        options: Options,
        manifest: Manifest,
        kept: Iterable[Segment],
        closed: Iterable[Segment],
        *,
        files: Mapping[str, SortedFile],
    ) -> None:
        self.manifest = manifest
        self.files = dict(files)  # Those of all runs, open, by their names.
        self.kept = list(kept)  # Segments that are in runs, and kept for those who read the log.
        self._lost: list[int] = []  # Segments that were kept, until damage was met.
        self.closed = list(closed)  # Segments that are full, and in no run yet.
        self.dropped_bytes = manifest.dropped_bytes
        self.merge: Merge | None = None  # Under way, until it is switched to.
        self._directory = directory
        self._options = options
        self._next_merge = manifest.next_merge
        self._begun: list[Begun] = []  # Each of runs newer than those of the one before; the last goes on first.
        self._purged = 0  # Tombstones of young runs whose records are gone since the last purge.
        self._output: Output | None = None  # Of the merge, once there is one.
        self._switch: Switch | None = None
        self._may_have_happened = False  # The next switch was tried, and the system did not say whether it happened.
        self._removal: Remove | None = None
        self._free: list[int] = []
        self._old: list[PurePath] = []
        self._holds = 0

    # -- merges ------------------------------------------------------------------------------------------------------

    def begin_flush(self, spaces: Iterable[int], rate: int) -> Merge:
        """Have the closed segments merged into a young run."""
        log = tuple(LogInput(*segment.name, segment.end) for segment in self.closed)
        return self._begin(spaces, rate, log=log)

    def begin_compaction(self, chosen: Compaction, spaces: Iterable[int], rate: int, stretch_bytes: int) -> Merge:
        """Have the next stretch of a compaction merged; a purge takes the place of all that is begun."""
        if not self._begun or self._begun[-1].chosen != chosen:
            if not chosen.count:
                self._begun = [Begun(Compaction(below, 0), b"", self.dropped_bytes) for below in range(chosen.below)]
                self._purged = self._tombstones
            self._begun.append(Begun(chosen, b"", self.dropped_bytes))
        runs, last = self._runs(), self._place(chosen)
        first = last - chosen.count if chosen.count else 0  # A purge goes by all that is newer.
        inputs = tuple(run.files for run in runs[first : last + 1])
        return self._begin(
            spaces,
            rate,
            inputs,
            drops_tombstones=not chosen.below,
            start=self._begun[-1].start,
            purges=not chosen.count,
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
        stretch_bytes: int = 0,
    ) -> Merge:
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
        )
        self.merge = Merge(order)
        return self.merge

    def _runs(self) -> list[Run]:
        """All of them, from the newest to the oldest."""
        return [*self.manifest.young, self.manifest.oldest]

    def _place(self, chosen: Compaction) -> int:
        """Where the run is, among all of them, that a compaction merges into."""
        return len(self.manifest.young) - chosen.below

    @property
    def _tombstones(self) -> int:
        return sum(run.tombstones for run in self.manifest.young)

    def state(self, *, active_share: float, free_bytes: int, deletes_wait: bool = False) -> StoreState:
        """How the store stands, for those who decide what is merged and who is refused."""
        return StoreState(
            closed_segments=len(self.closed),
            closed_bytes=sum(segment.end for segment in self.closed),
            memtables_full=min(1, len(self.closed)),
            active_share=active_share,
            young=tuple(map(weight, self.manifest.young)),
            oldest=weight(self.manifest.oldest),
            dropped_bytes=self.dropped_bytes,
            free_bytes=free_bytes,
            deletes_wait=deletes_wait,
            purged=min(self._purged, self._tombstones),
            is_merging=self.merge is not None,
            begun=self._begun[-1].chosen if self._begun else None,
        )

    def merged(self, work: Merge, output: Output) -> None:
        """Have what a merge wrote stand for its inputs, by the next switch: it is synced, and in its place."""
        assert work is self.merge, "one merge at a time"
        self._output = output

    def merge_failed(self) -> None:
        """Have the inputs stay; what was done of a compaction before counts."""
        self.merge = None

    # -- switches ----------------------------------------------------------------------------------------------------

    @property
    def switch_bytes(self) -> int:
        """What the next switch needs of the disk, about: a manifest; 0: there is none."""
        return 0 if self._output is None else MANIFEST_BYTES + FILE_BYTES * len(self.files)

    def next_switch(self, now: Now) -> Switch | None:
        """Return the next switch, if there is one and none is under way."""
        if self._switch is not None or self._output is None:
            return None
        assert self.merge is not None, "it has an output"
        before, output, dropped = self.manifest, self._output, self.dropped_bytes
        if self.merge.order.log:
            floor = self._log_floor(now)
            then = replace(
                before,
                young=(*([Run(output.files)] if output.files else []), *before.young),
                recovery_floor=now.active,
                log_floor=floor,
                kept=tuple(one.name for one in (*self.kept, *self.closed) if one.name.number >= floor.number),
                lives=tuple(end for end in before.lives if end.number > floor.number),
            )
        else:
            *young, oldest = self._compacted(self._begun[-1].chosen, output)
            then, dropped = replace(before, young=tuple(young), oldest=oldest), self._dropped_after(output)
        then = replace(
            then,
            spaces=frozenset(now.spaces),
            next_space=now.next_space,
            next_merge=self._next_merge,
            dropped_bytes=dropped,
        )
        known = {file.name for file in before.run_files}
        self._switch = Switch(then, tuple(file for file in then.run_files if file.name not in known))
        return self._switch

    def _compacted(self, chosen: Compaction, output: Output) -> list[Run]:
        """All runs once a stretch is merged: those that went into another leave with the last one."""
        runs, last = self._runs(), self._place(chosen)
        runs[last] = with_stretch(runs[last], output)
        if output.end is None:
            runs[last - chosen.count : last + 1] = [runs[last]] if runs[last].files or not chosen.below else []
        return runs

    def _dropped_after(self, output: Output) -> int:
        """What dropped spaces still take, once what was dropped before a merge into the oldest run is gone."""
        begun = self._begun[-1]
        is_done = output.end is None and not begun.chosen.below
        return max(0, self.dropped_bytes - begun.dropped_bytes) if is_done else self.dropped_bytes

    def _log_floor(self, now: Now) -> SegmentName:
        """The oldest segment that is to be kept, once the closed ones are in a run: one of them, at the least.

        By its last frame an opening knows what comes first where recovery begins, while nothing is there yet.
        """
        kept = deque([*self.kept, *self.closed])
        left = sum(map(known_bytes, kept)) + now.active_bytes
        while len(kept) > 1 and left - known_bytes(kept[0]) >= self._options.table_log:
            left -= known_bytes(kept.popleft())
        return kept[0].name if kept else now.active

    def switched(self, work: Switch, opened: Mapping[str, SortedFile]) -> bool:
        """Have the store consist of what was switched to, durably; whether closed segments are in a run now."""
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
        """Keep the segments that are above the log's floor; of the others one may be used again."""
        segments = [*self.kept, *self.closed]
        floor = self.manifest.log_floor.number
        lost, self._lost = self._lost, []
        self.abandon(lost)
        self.kept, self.closed = [segment for segment in segments if segment.name.number >= floor], []
        for segment in segments[: len(segments) - len(self.kept)]:
            if len(self._free) < MOST_FREE_SEGMENTS:
                self._free.append(segment.name.number)
            else:
                self.abandon([segment.name.number])

    def lose_log(self, number: int) -> bool:
        """Keep nothing for readers up to a damaged segment; whether it was one that is kept for them alone.

        The files are removed when the manifest does not name them any more.
        """
        is_kept = any(segment.name.number == number for segment in self.kept)
        if is_kept:
            self._lost += [segment.name.number for segment in self.kept if segment.name.number <= number]
            self.kept = [segment for segment in self.kept if segment.name.number > number]
        return is_kept

    def switch_failed(self, *, may_have_happened: bool = True) -> None:
        """Have the switch done again: it happened or did not."""
        self._switch = None
        self._may_have_happened |= may_have_happened

    def switch_refused(self) -> None:
        """Give up what a merge wrote: a file is not what was said of it.

        The merge is done anew.  Where an attempt before may have happened the manifest may name the file: no file is
        removed then, and the switch is done again.
        """
        self._switch = None
        if self._may_have_happened:
            return
        assert self._output is not None, "it was to be switched to"
        self._old += [run_path(self._directory, file.name) for file in self._output.files]
        self.merge = self._output = None

    # -- what is left over -------------------------------------------------------------------------------------------

    def take_free(self) -> int | None:
        """Return the number of a segment that may be used again, if there is one, and nobody holds it."""
        return self._free.pop() if self._free and not self._holds else None

    def abandon(self, numbers: Iterable[int]) -> None:
        """Have segments removed."""
        self._old += [segment_path(self._directory, number) for number in numbers]

    def next_removal(self) -> Remove | None:
        """Return what may be removed, if there is anything and nobody holds it."""
        if self._holds or self._removal is not None or not self._old:
            return None
        self._removal, self._old = Remove(tuple(self._old)), []
        return self._removal

    def removed(self) -> None:
        """Forget what was removed."""
        self._removal = None

    def removal_failed(self) -> None:
        """Have it removed again."""
        assert self._removal is not None, "it was tried"
        self._old += self._removal.paths
        self._removal = None

    def leftovers(self) -> list[PurePath]:
        """Return the files that are nobody's now; nobody holds them when the store is closed."""
        removal = () if self._removal is None else self._removal.paths
        return [*(segment_path(self._directory, number) for number in self._free), *self._old, *removal]

    def hold(self) -> None:
        """Keep every file that the store has, until `release`: somebody copies them."""
        self._holds += 1

    def release(self) -> None:
        """Undo one `hold`."""
        assert self._holds > 0, "held before it is released"
        self._holds -= 1


def weight(run: Run) -> Weight:
    """Return a run as policy sees it."""
    longest = max((file.size_bytes for file in run.files), default=0)
    return Weight(run.size_bytes, run.records, run.tombstones, longest)


def known_bytes(segment: Segment) -> int:
    """How long a segment's log is, as far as that was read; else how long it may be."""
    return segment.end or segment.size_bytes


def with_stretch(run: Run, output: Output) -> Run:
    """Return a run with some of its files replaced by what they became."""
    replaced = set(output.replaced)
    left = [file for file in run.files if file.name not in replaced]
    assert len(left) + len(replaced) == len(run.files), "a stretch replaces what is there"
    return Run(tuple(sorted((*left, *output.files), key=lambda file: file.first)))
