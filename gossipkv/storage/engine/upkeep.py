"""What a store consists of, and how that changes: merges, their outputs, switches, the removal of what is left over.

What a store consists of is its manifest.  All that changes it is a `Switch`, one at a time; what a switch makes
superfluous is removed when that is durable, and nobody holds it.  A switch that failed may have happened: it is done
again, and until then nothing is removed.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple, final

from gossipkv.storage.engine.manifest import Manifest, Run, RunFile, SegmentName
from gossipkv.storage.engine.merge import LogInput, MergeOrder
from gossipkv.storage.engine.policy import Compaction, Flush, Standing, Weight
from gossipkv.storage.engine.works import Merge, Remove, Switch

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence
    from pathlib import PurePath

    from gossipkv.storage.engine.merge import Output
    from gossipkv.storage.engine.options import Options
    from gossipkv.storage.engine.segments import Segment
    from gossipkv.storage.sorted_file import SortedFile

# What is not needed any more and may become a segment again; more is given back to the file system.
MOST_FREE_SEGMENTS: Final = 1


class Stretch(NamedTuple):
    """A change to make: a stretch of the oldest run is merged."""

    work: Merge
    output: Output


class Flushed(NamedTuple):
    """A change to make: the closed segments are in a run, and some of the newest young runs with them."""

    work: Merge
    files: tuple[RunFile, ...]


class Compacted(NamedTuple):
    """A change to make: young runs are in another, or all of them in the oldest."""

    work: Merge
    files: tuple[RunFile, ...]


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
        self.closed = list(closed)  # Segments that are full, and in no run yet.
        self.dropped_bytes = manifest.dropped_bytes
        self.flush: Merge | None = None  # Under way.
        self.compaction: Merge | None = None  # Likewise.
        self._directory = directory
        self._options = options
        self._next_merge = manifest.next_merge
        self._dropped_before = 0  # What was dropped when the compaction began.
        self._outputs: dict[int, list[RunFile]] = {}  # Of merges that leave in one switch, by their numbers.
        self._due: deque[Stretch | Flushed | Compacted] = deque()
        self._switch: Switch | None = None
        self._may_have_happened = False  # The next switch was tried, and the system did not say whether it happened.
        self._given_up: set[int] = set()  # Merges under way, by their numbers, of which an output was refused.
        self._removal: Remove | None = None
        self._free: list[int] = []
        self._old_segments: list[int] = []
        self._old_files: list[str] = []
        self._holds = 0

    # -- merges ------------------------------------------------------------------------------------------------------

    def begin_flush(self, chosen: Flush, spaces: Iterable[int], rate: int) -> Merge:
        """Have the closed segments merged into a young run, with some of the newest."""
        assert self.flush is None, "one flush at a time"
        log = tuple(LogInput(*segment.name, segment.end) for segment in self.closed)
        young = self.manifest.young[: chosen.young]
        self.flush = Merge(self._order(log, young, None, spaces, rate), is_flush=True)
        return self.flush

    def begin_compaction(self, chosen: Compaction, spaces: Iterable[int], rate: int) -> Merge:
        """Have young runs merged into one, or into the oldest."""
        assert self.compaction is None, "one compaction at a time"
        young = self.manifest.young[chosen.first : chosen.first + chosen.count]
        assert not chosen.into_oldest or chosen.first + chosen.count == len(self.manifest.young), "neighbours in age"
        oldest = self.manifest.oldest if chosen.into_oldest else None
        self.compaction = Merge(self._order((), young, oldest, spaces, rate), is_flush=False)
        self._dropped_before = self.dropped_bytes
        return self.compaction

    def standing(self, *, active_share: float, free_bytes: int) -> Standing:
        """How the store stands, for those who decide what is merged and who is refused."""
        young, compaction = self.manifest.young, None
        if self.compaction is not None:
            order = self.compaction.order
            compaction = Compaction(place_of(young, order.young), len(order.young), order.into_oldest)
        return Standing(
            closed_segments=len(self.closed),
            closed_bytes=sum(segment.end for segment in self.closed),
            memtables_full=min(1, len(self.closed)),
            active_share=active_share,
            young=tuple(map(weight, young)),
            oldest=weight(self.manifest.oldest),
            dropped_bytes=self.dropped_bytes,
            free_bytes=free_bytes,
            flush=None if self.flush is None else Flush(len(self.flush.order.young)),
            compaction=compaction,
        )

    def _order(
        self, log: tuple[LogInput, ...], young: Sequence[Run], oldest: Run | None, spaces: Iterable[int], rate: int
    ) -> MergeOrder:
        number, self._next_merge = self._next_merge, self._next_merge + 1
        return MergeOrder(
            directory=str(self._directory),
            store=self.manifest.store,
            number=number,
            log=log,
            young=tuple(tuple(file.name for file in run.files) for run in young),
            oldest=() if oldest is None else oldest.files,
            into_oldest=oldest is not None,
            spaces=tuple(sorted(spaces)),
            file_bytes=self._options.file_bytes,
            memory_bytes=self._options.merge_memory,
            bytes_per_second=rate,
        )

    def output(self, work: Merge, output: Output) -> None:
        """Take what a merge has written so far: synced, and in its place."""
        if work.order.number in self._given_up:
            self._old_files += [file.name for file in output.files]
        elif work.order.into_oldest:
            self._due.append(Stretch(work, output))
        else:
            self._outputs.setdefault(work.order.number, []).extend(output.files)

    def merged(self, work: Merge) -> None:
        """Have the inputs of a merge leave, in one switch: all that it had to write is there."""
        if work.order.number in self._given_up:
            self.merge_failed(work)
            return
        files = tuple(self._outputs.pop(work.order.number, ()))
        self._due.append(Flushed(work, files) if work.is_flush else Compacted(work, files))

    def merge_failed(self, work: Merge) -> None:
        """Have the inputs stay; what was written and not switched to is removed, but stretches, which count alone."""
        self._old_files += [file.name for file in self._outputs.pop(work.order.number, ())]
        self._given_up.discard(work.order.number)
        if work.is_flush:
            self.flush = None
        else:
            self.compaction = None

    # -- switches ----------------------------------------------------------------------------------------------------

    @property
    def is_changing(self) -> bool:
        """Whether a switch is due or under way."""
        return bool(self._due)

    def next_switch(self, now: Now) -> Switch | None:
        """Return the next switch, if there is one and none is under way."""
        if self._switch is not None or not self._due:
            return None
        before, dropped = self.manifest, self.dropped_bytes
        match self._due[0]:
            case Stretch(_, output):
                then = replace(before, oldest=with_stretch(before.oldest, output))
            case Flushed(work, files):
                floor = self._log_floor(now)
                then = replace(
                    before,
                    young=with_merged(before.young, work.order.young, files),
                    recovery_floor=now.active,
                    log_floor=floor,
                    lives=tuple(end for end in before.lives if end.number > floor.number),
                )
            case Compacted(work, files):
                then = replace(before, young=with_merged(before.young, work.order.young, files))
                dropped = self._dropped_after(work)
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

    def _dropped_after(self, work: Merge) -> int:
        """What dropped spaces still take, once what was dropped before a merge into the oldest run is gone."""
        return max(0, self.dropped_bytes - self._dropped_before) if work.order.into_oldest else self.dropped_bytes

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
        change = self._due.popleft()
        before, self.manifest, self._switch = self.manifest, work.manifest, None
        self._may_have_happened = False
        self.files.update(opened)
        named = {file.name for file in self.manifest.run_files}
        for file in before.run_files:
            if file.name not in named:
                self._old_files.append(file.name)
                del self.files[file.name]
        if isinstance(change, Compacted):
            self.compaction = None
            self.dropped_bytes = self._dropped_after(change.work)
        if not isinstance(change, Flushed):
            return False
        self.flush = None
        segments = [*self.kept, *self.closed]
        floor = self.manifest.log_floor.number
        self.kept, self.closed = [segment for segment in segments if segment.name.number >= floor], []
        for segment in segments[: len(segments) - len(self.kept)]:
            (self._free if len(self._free) < MOST_FREE_SEGMENTS else self._old_segments).append(segment.name.number)
        return True

    def switch_failed(self, *, may_have_happened: bool = True) -> None:
        """Have the switch done again: it happened or did not."""
        self._switch = None
        self._may_have_happened |= may_have_happened

    def switch_refused(self) -> None:
        """Give up the change that a switch was for, and what else its merge wrote: a file is not what was said of it.

        The merge is done anew.  Where an attempt before may have happened the manifest may name the file: no file is
        removed then, and the switch is done again.
        """
        self._switch = None
        if self._may_have_happened:
            return
        work = self._due[0].work
        given_up = [change for change in self._due if change.work is work]
        self._due = deque(change for change in self._due if change.work is not work)
        for change in given_up:
            files = change.output.files if isinstance(change, Stretch) else change.files
            self._old_files += [file.name for file in files]
        if isinstance(given_up[-1], Stretch):
            if work is self.compaction:  # It goes on, and nobody heeds it.
                self._given_up.add(work.order.number)
        else:
            self.merge_failed(work)

    # -- what is left over -------------------------------------------------------------------------------------------

    def take_free(self) -> int | None:
        """Return the number of a segment that may be used again, if there is one, and nobody holds it."""
        return self._free.pop() if self._free and not self._holds else None

    def abandon(self, numbers: Iterable[int]) -> None:
        """Have segments removed."""
        self._old_segments += numbers

    def next_removal(self) -> Remove | None:
        """Return what may be removed, if there is anything and nobody holds it."""
        if self._holds or self._removal is not None or not (self._old_segments or self._old_files):
            return None
        self._removal = Remove(tuple(self._old_segments), tuple(self._old_files))
        self._old_segments, self._old_files = [], []
        return self._removal

    def removed(self) -> None:
        """Forget what was removed."""
        self._removal = None

    def removal_failed(self) -> None:
        """Have it removed again."""
        assert self._removal is not None, "it was tried"
        self._old_segments += self._removal.segments
        self._old_files += self._removal.run_files
        self._removal = None

    def leftovers(self) -> tuple[tuple[int, ...], tuple[str, ...]]:
        """Return the segments and files of runs that are nobody's now; nobody holds them when the store is closed."""
        removal = self._removal or Remove((), ())
        return (*self._free, *self._old_segments, *removal.segments), (*self._old_files, *removal.run_files)

    def hold(self) -> None:
        """Keep every file that the store has, until `release`: somebody copies them."""
        self._holds += 1

    def release(self) -> None:
        """Undo one `hold`."""
        assert self._holds > 0, "held before it is released"
        self._holds -= 1


def weight(run: Run) -> Weight:
    """Return a run as policy sees it."""
    return Weight(run.size_bytes, run.records, run.tombstones)


def known_bytes(segment: Segment) -> int:
    """How long a segment's log is, as far as that was read; else how long it may be."""
    return segment.end or segment.size_bytes


def with_stretch(oldest: Run, output: Output) -> Run:
    """Return the oldest run with some of its files, which neighbour each other, replaced by what they became."""
    replaced = set(output.replaced)
    left = [file for file in oldest.files if file.name not in replaced]
    assert len(left) + len(replaced) == len(oldest.files), "a stretch replaces what is there"
    return Run(tuple(sorted((*left, *output.files), key=lambda file: file.first)))


def place_of(young: Sequence[Run], merged: Sequence[tuple[str, ...]]) -> int:
    """Return where the runs that a merge reads are among the young ones, from the newest; 0 when it reads none."""
    if not merged:
        return 0
    names = [tuple(file.name for file in run.files) for run in young]
    first = names.index(merged[0])
    assert names[first : first + len(merged)] == list(merged), "inputs neighbour each other in age"
    return first


def with_merged(young: Sequence[Run], merged: Sequence[tuple[str, ...]], files: tuple[RunFile, ...]) -> tuple[Run, ...]:
    """Return the young runs, from the newest on, with those that were merged replaced by one, in their place."""
    first = place_of(young, merged)
    return (*young[:first], *([Run(files)] if files else []), *young[first + len(merged) :])
