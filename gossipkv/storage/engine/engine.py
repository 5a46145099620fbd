"""The store without a world: what is written next, what may be read, what else is to be done, when there is no room.

A plain object that is told what happened and says what is to be done; files, threads and children are the business of
`works` and the shells.  Two rules carry it:

* A batch is applied to the memtable after its sync, in the order of positions: nothing can be read before it is synced.
  After a failure nothing is written or applied, for the life of the store has ended; what was synced is still read.
* A memtable and the segments whose batches it has are closed together.  At most one such memtable waits to be merged
  beside the one that is written to; who would need a third is refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, final

from gossipkv.errors import Corrupt, LimitExceeded, Overloaded, StorageError, UnsupportedFormat
from gossipkv.storage.engine import policy
from gossipkv.storage.engine._engine import (
    DROPPED,
    HEADER_BYTES,
    MADE,
    Active,
    Memtable,
    View,
    Writer,
    batch_cost,
    frame_bytes,
)
from gossipkv.storage.engine.manifest import MOST_SPACES, SegmentName
from gossipkv.storage.engine.options import MOST_WAITING_BYTES, Counts
from gossipkv.storage.engine.segments import SegmentHeader
from gossipkv.storage.engine.upkeep import Now, Upkeep
from gossipkv.storage.engine.works import MakeSegment, Merge, Remove, Reserve, Switch

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Collection, Mapping
    from pathlib import PurePath

    from gossipkv.storage.engine._engine import Batch, Group
    from gossipkv.storage.engine.manifest import Manifest
    from gossipkv.storage.engine.merge import Output
    from gossipkv.storage.engine.options import Options
    from gossipkv.storage.engine.segments import Segment
    from gossipkv.storage.engine.works import Done, Short, Work
    from gossipkv.storage.sorted_file import SortedFile

# How often, while a segment is filled, it is looked at how writers are held back.
LOOKS = 64
UNKNOWN_BYTES = 1 << 62  # Until somebody has looked.


class OpenedLog(NamedTuple):
    """What an opening has found, or made."""

    active: Active
    kept: tuple[Segment, ...]  # In runs, from the oldest.
    closed: tuple[Segment, ...]  # Of the frozen memtable.
    memtable: Memtable
    frozen: Memtable | None
    spaces: frozenset[int]
    next_space: int
    next_number: int
    position: int  # The last one that counts.
    files: Mapping[str, SortedFile]
    reserved_bytes: int  # What the reserve takes of the disk.
    damage: str | None = None  # For which not all of the log is there that was kept for its readers.


@final
class Engine:
    """The core of a store, from its opening to its end."""

    def __init__(
        self, directory: PurePath, options: Options, random: random.Random, manifest: Manifest, log: OpenedLog
    ) -> None:
        self.directory = directory
        self.options = options
        self.counts = Counts()
        self.closed: str | None = None  # Why, once it is.
        self.has_failed = False  # It closed itself, and what was synced can be read.
        self.trouble: str | None = None  # What could not be done last, beside the writing.
        self.log_damage = log.damage  # For which the log begins later than it would.
        self._free_bytes = UNKNOWN_BYTES  # On the file system, as last told, beside the reserve.
        self._reserved_bytes = log.reserved_bytes
        self._reserving: Reserve | None = None
        self._replaced = self._frozen_replaced = 0  # Records that batches which relieve have put, in this life.
        self._deletes_wait = False  # For a flush, or for the next segment.
        self.upkeep = Upkeep(directory, options, manifest, log.kept, log.closed, files=log.files)
        self._live = set(log.spaces)  # With what is planned.
        self._writer = Writer(log.active, log.memtable, self._live, life=manifest.life, position=log.position)
        self._pressure: policy.Pressure | None = None  # As last looked at.
        self._limits = policy.Limits(options.file_bytes, options.stretch_bytes, margin_bytes=options.margin_bytes)
        self._random = random
        self._next_number = log.next_number
        self._making: MakeSegment | None = None
        self._frozen = log.frozen
        self._turns = log.frozen is not None  # A second memtable is planned, or there.
        self._spaces = set(log.spaces)  # As synced.
        self._reserved: set[int] = set()
        self._next_space = log.next_space
        self.view = self._new_view()

    @property
    def manifest(self) -> Manifest:
        """What the store consists of."""
        return self.upkeep.manifest

    # -- writing -----------------------------------------------------------------------------------------------------

    def check_open(self) -> None:
        """Raise `StorageError` when the store is closed."""
        if self.closed is not None:
            raise self.closed_error()

    def closed_error(self) -> StorageError:
        """What `check_open` raises once the store is closed."""
        return StorageError(f"the store is closed: {self.closed}", {"reason": self.closed})

    def check_readable(self) -> None:
        """Raise `StorageError` when the store was closed, and has not failed before."""
        if not self.has_failed:
            self.check_open()

    def reserve_space(self) -> int:
        """Return the number of a space that a batch may make: given out once, for good when that batch is synced.

        Raises:
            LimitExceeded: all are given out.
            StorageError: the store is closed.
        """
        self.check_open()
        if self._next_space >= MOST_SPACES:
            raise LimitExceeded("all of the 4,294,967,296 numbers of spaces are given out")
        space, self._next_space = self._next_space, self._next_space + 1
        self._reserved.add(space)
        return space

    def append(self, batch: Batch) -> int:
        """Plan to write a batch, which is not changed from now on; returns its position.

        Raises:
            Overloaded: there is no room now; nothing has changed, and it says what room is missing.
            LimitExceeded: it is longer than any segment has room for.
            ValueError: it is empty, touches a space that is not live, or makes one that was not reserved.
            StorageError: the store is closed; says why.
        """
        return self._writer.plan_plain(batch) or self._append(batch)

    def _append(self, batch: Batch) -> int:
        """Plan to write a batch about which, or about the room for which, there is something to be found out."""
        self.check_open()
        if not batch.count:
            raise ValueError("a batch without operations")
        size_bytes = frame_bytes(batch.size_bytes)
        if size_bytes > self.options.most_batch_bytes:
            raise LimitExceeded(
                f"a batch of {batch.size_bytes:,} bytes; a segment of the log has room for one of "
                f"{self.options.most_batch_bytes:,}: divide it",
                {"limit": self.options.most_batch_bytes},
            )
        self._check_spaces(batch)
        self._make_room(size_bytes, batch_cost(batch), batch)
        position = self._writer.plan(batch)
        if batch.made or batch.dropped:
            self._reserved.difference_update(batch.made)
            self._live.update(batch.made)
            self._live.difference_update(batch.dropped)
        return position

    def _check_spaces(self, batch: Batch) -> None:
        """Judge what a batch does to spaces in its order, in which a restart does it again."""
        made: set[int] = set()
        dropped: set[int] = set()
        for kind, space in batch.steps:
            if kind == MADE:
                if space not in self._reserved or space in made:
                    raise ValueError(f"the space {space} was not reserved, or is made already")
                made.add(space)
            elif space in dropped or (space not in self._live and space not in made):
                raise ValueError(f"there is no space {space}: it was never made, or is dropped")
            elif kind == DROPPED:
                dropped.add(space)

    def _make_room(self, size_bytes: int, cost: int, batch: Batch) -> None:
        """Turn to another segment and memtable where the next frame would not fit.  Raises `Overloaded`: not now.

        Where room is scarce, a batch that `may_fill` has the rest of the open segment, and one that relieves has all.
        """
        writer = self._writer
        is_full = not writer.fits(size_bytes, cost)
        may_pass = batch.relieves or (batch.may_fill and not is_full)
        relieves = may_pass and policy.is_scarce(self.state(), self._limits)
        refusal = None if relieves else self._look().refusal
        if refusal is None and writer.is_waiting and writer.waiting_bytes + size_bytes > MOST_WAITING_BYTES:
            refusal = f"{writer.waiting_bytes:,} bytes wait for the disk"
        if refusal is None and is_full:
            self._deletes_wait |= relieves
            if self._turns:
                refusal = "both memtables are full, and the older one is not merged yet"
            elif writer.prepared is None:
                refusal = "the next segment of the log is not allocated yet"
        if refusal is not None:
            self.counts.refused += 1
            because = f" ({self.trouble})" if self.trouble else ""
            raise Overloaded(f"nothing can be written now: {refusal}{because}; try again later", {"reason": refusal})
        if is_full:
            self._turn()

    def _turn(self) -> None:
        self._writer.turn()
        self._turns = True

    def relieve(self) -> bool:
        """Plan to close the memtable where room is scarce and deletes are worth more than that costs; whether to."""
        state, options = self.state(), self.options
        memtables = [self._writer.memtable, *([] if self._frozen is None else [self._frozen])]
        replaced = self._replaced + self._frozen_replaced
        worth = policy.hidden_bytes(state, replaced + sum(memtable.tombstones for memtable in memtables))
        if self.closed is not None or worth < options.segment_bytes + options.file_bytes:
            return False
        if not policy.is_scarce(state, self._limits):
            return False
        self._deletes_wait = True
        if self._turns or self._writer.prepared is None:
            return False
        self._turn()
        return True

    def group(self) -> Group | None:
        """Return what is to be written next; None while a group is under way, or nothing waits."""
        return None if self.closed is not None else self._writer.group()

    def synced(self, position: int) -> None:
        """Apply the group that is under way: it is written and synced."""
        assert self.closed is None, "nothing is applied after a failure"
        written = self._writer.written(position)
        self.counts.groups += 1
        self.counts.log_bytes += written.size_bytes
        for batch in written.batches:
            self._apply(batch)
        if written.closed is not None:
            assert self._frozen is None, "at most two memtables"
            self.upkeep.closed.append(written.closed)
            self._frozen, self._writer.memtable = self._writer.memtable, Memtable(self.options.memtable_bytes)
            self._replaced, self._frozen_replaced = 0, self._replaced
            self.view = self._new_view()

    def _apply(self, batch: Batch) -> None:
        self._writer.memtable.apply_batch(batch)
        counts = self.counts
        counts.batches += 1
        counts.records += batch.records
        counts.user_bytes += batch.size_bytes
        if batch.relieves and self.pressure().refusal is not None:
            self._replaced += batch.puts
        if batch.count == batch.records:
            return
        self._spaces.update(batch.made)
        for space in batch.dropped:
            self._spaces.discard(space)
            self.upkeep.dropped_bytes += self.view.size_bytes(space)

    def failed(self, error: OSError) -> None:
        """End the life of the store: a write or a sync of its log failed, and what the disk holds is not known."""
        self.fail(f"its log cannot be written: {error.strerror or error}")

    def fail(self, why: str) -> None:
        """End the life of the store; what was synced is still read."""
        self.has_failed |= self.closed is None
        self.close(why)

    @property
    def position(self) -> int:
        """The last one that was given, synced or not."""
        return self._writer.position

    @property
    def synced_position(self) -> int:
        """The last one that is synced; what it and those before it say can be read."""
        return self._writer.synced

    def mark(self) -> bool:
        """Plan a frame that says what is synced, if there is none that does; whether it was due."""
        is_due = self.closed is None and self._writer.mark_due
        if is_due:
            self._writer.mark()
        return is_due

    # -- reading -----------------------------------------------------------------------------------------------------

    @property
    def spaces(self) -> frozenset[int]:
        """The live ones, as of the last sync."""
        return frozenset(self._spaces)

    @property
    def first_space(self) -> int | None:
        """The lowest one that is live, as of the last sync."""
        return min(self._spaces, default=None)

    def has_space(self, space: int) -> bool:
        """Whether it is live, as of the last sync."""
        return space in self._spaces

    def log(self) -> list[Segment]:
        """The segments that can be read by position, the one that is written to the last, each up to what is synced."""
        active = self._writer.active
        now = [active.until(self._writer.synced)] if active.offset > HEADER_BYTES else []
        return [*self.upkeep.kept, *self.upkeep.closed, *now]

    @property
    def log_floor(self) -> int:
        """The position behind which the log can be read."""
        log = self.log()
        return log[0].first - 1 if log else self._writer.synced

    def lose_log(self, number: int, damage: Exception) -> None:
        """Have the log begin behind a damaged segment, if nothing but its readers needs it."""
        if self.upkeep.lose_log(number):
            self.log_damage = str(damage)

    @property
    def memtable_bytes(self) -> int:
        """What records take in memory until they are merged."""
        return self._writer.memtable.bytes_used + (0 if self._frozen is None else self._frozen.bytes_used)

    def unmerged(self) -> list[Segment]:
        """The segments that recovery would read, the one that is written to the last, though it may have no frame."""
        return [*self.upkeep.closed, self._writer.active.until(self._writer.synced)]

    def _new_view(self) -> View:
        memtable = self._writer.memtable
        memtables = [memtable] if self._frozen is None else [memtable, self._frozen]
        runs = [*self.manifest.young, self.manifest.oldest]
        files = self.upkeep.files
        return View(memtables, [[(file.first, files[file.name]) for file in run.files] for run in runs if run.files])

    # -- beside it ---------------------------------------------------------------------------------------------------

    def state(self) -> policy.StoreState:
        """How it stands, for those who decide what is merged and who is refused."""
        share = max(self._writer.share, min(1.0, self._writer.cost / self.options.memtable_bytes))
        free_bytes = self._free_bytes + self._reserved_bytes
        return self.upkeep.state(active_share=share, free_bytes=free_bytes, deletes_wait=self._deletes_wait)

    def pressure(self) -> policy.Pressure:
        """How much writers are slowed, or why they are refused: as of now, or of a little before."""
        return self._pressure if self._pressure is not None and self._writer.is_open else self._look()

    def _look(self) -> policy.Pressure:
        """Find out how writers are held back; it holds for the next few bytes of the log, unless something happens."""
        self._pressure = policy.pressure(self.state(), self._limits)
        if self.closed is None:
            self._writer.open(0 if self._pressure.refusal else self.options.segment_bytes // LOOKS)
        return self._pressure

    @property
    def free_bytes(self) -> int:
        """What is free on the file system, as last told, beside what the reserve has."""
        return self._free_bytes

    @free_bytes.setter
    def free_bytes(self, told: int) -> None:
        self._free_bytes, self._pressure = told, None

    def manner(self, *, is_flush: bool) -> policy.Manner:
        """How hard a merge is to work now."""
        return policy.manner(self.state(), self._limits, is_flush=is_flush)

    def next_work(self, without: Collection[type[Work]] = ()) -> Work | None:
        """Return the next thing to be done beside the writing, which is then under way; None: nothing now.

        Of each kind one is under way at a time.  `without`: kinds that the disk refused a moment ago, which keep no
        other waiting: what is removed may be the room that is missing.
        """
        if self.closed is not None:
            return None
        active = self._writer.active
        now = Now(self._spaces, self._next_space, active.name, active.offset)
        kinds: tuple[tuple[type[Work], Callable[[], Work | None]], ...] = (
            (Switch, lambda: self.upkeep.next_switch(now)),
            (Remove, self.upkeep.next_removal),
            (MakeSegment, self._next_segment),
            (Merge, self._next_merge),
            (Reserve, self._next_reserve),
        )
        return next((work for kind, find in kinds if kind not in without and (work := find()) is not None), None)

    def _next_segment(self) -> MakeSegment | None:
        if self._writer.prepared is not None or self._making is not None or self._is_short(self.state()):
            return None
        number, self._next_number = self._next_number, self._next_number + 1
        manifest, salt = self.manifest, self._random.getrandbits(64)
        header = SegmentHeader(manifest.store, number, salt, manifest.life, self.options.segment_bytes)
        self._making = MakeSegment(header, self.upkeep.take_free())
        return self._making

    def _next_merge(self) -> Merge | None:
        """A flush before any compaction: writers may wait for it."""
        upkeep, state = self.upkeep, self.state()
        if upkeep.merge is not None or self._is_short(state):
            return None
        if policy.is_flush_due(state, self._limits):
            return upkeep.begin_flush(self._spaces, self.manner(is_flush=True).bytes_per_second)
        chosen, rate = policy.compaction(state, self._limits), self.manner(is_flush=False).bytes_per_second
        if chosen is None:
            return None
        return upkeep.begin_compaction(chosen, self._spaces, rate, policy.stretch_bytes(state, self._limits))

    def _next_reserve(self) -> Reserve | None:
        """The reserve: made as soon as there is room for it, and shortened by what that needs which gives room back."""
        state, size_bytes = self.state(), self.options.reserve_bytes
        if self._reserving is not None or self._free_bytes == UNKNOWN_BYTES:
            return None
        if self._is_short(state):
            self._reserving = Reserve(max(0, self._reserved_bytes + self._free_bytes - self._needed_bytes(state)))
        elif self._reserved_bytes < size_bytes and not self.upkeep.merge and not policy.is_scarce(state, self._limits):
            self._reserving = Reserve(size_bytes)
        return self._reserving

    def _is_short(self, state: policy.StoreState) -> bool:
        """Whether what is to be done next finds no room beside the reserve, and there is one."""
        return self._reserved_bytes > 0 and self._free_bytes < self._needed_bytes(state)

    def _needed_bytes(self, state: policy.StoreState) -> int:
        """What the next merge or its switch needs, and deletes that wait for a segment."""
        segment = self.options.segment_bytes if self._deletes_wait and self._writer.prepared is None else 0
        if self.upkeep.merge is not None:
            return segment + self.upkeep.switch_bytes
        if policy.is_flush_due(state, self._limits):
            return segment + state.closed_bytes
        chosen = policy.compaction(state, self._limits)
        return segment + (0 if chosen is None else policy.compaction_bytes(state, chosen, self._limits))

    def done(self, work: Short, result: Done) -> None:
        """Hear that something was done, and what `works.perform` said of it."""
        match work:
            case MakeSegment():
                assert isinstance(result, int), "a descriptor"
                self.made(work, result)
            case Switch():
                assert isinstance(result, dict), "open files"
                self.switched(work, result)
            case Remove():
                self.upkeep.removed()
            case Reserve(size_bytes):
                self._free_bytes += self._reserved_bytes - size_bytes
                self._reserved_bytes, self._reserving, self._pressure = size_bytes, None, None

    def made(self, work: MakeSegment, descriptor: int) -> None:
        """Have the next segment: it is allocated, and its header is synced."""
        assert work is self._making, "one segment at a time"
        self._making = self.trouble = None
        name = SegmentName(work.header.number, work.header.salt)
        self._writer.prepared = Active(name, descriptor, work.header.size_bytes, HEADER_BYTES, 0)

    def merged(self, work: Merge, output: Output) -> None:
        """Have what a merge wrote take its inputs' place."""
        self.counts.merged_bytes += sum(file.size_bytes for file in output.files)
        self.upkeep.merged(work, output)

    def switched(self, work: Switch, opened: Mapping[str, SortedFile]) -> None:
        """Read from what was switched to: it is durable, and its new files are open."""
        self.counts.switches += 1
        if self.upkeep.switched(work, opened):
            self.upkeep.dropped_bytes += policy.hidden_bytes(self.state(), self._frozen_replaced)
            self._frozen, self._turns, self._deletes_wait, self._frozen_replaced = None, False, False, 0
        self._pressure = None
        self._writer.open(0)
        self.trouble = None
        self.view = self._new_view()

    def put_off(self, work: Work, error: Exception) -> None:
        """Hear that something could not be done: it is handed out again, to whoever thinks it is time."""
        self.counts.put_off += 1
        self.trouble = str(error)
        match work:
            case MakeSegment(header, recycled):
                self._making = None  # With that number it is not tried again: what is there of it is not known.
                self.upkeep.abandon([header.number, *([] if recycled is None else [recycled])])
            case Switch() if isinstance(error, Corrupt | UnsupportedFormat):
                self.upkeep.switch_refused()
            case Switch():
                self.upkeep.switch_failed(may_have_happened=isinstance(error, OSError))
            case Remove():
                self.upkeep.removal_failed()
            case Merge():
                self.upkeep.merge_failed()
            case Reserve():
                self._reserving = None

    def close(self, reason: str = "it was asked to") -> None:
        """End the life of the store; of what was not synced by now it is not known whether it is kept."""
        if self.closed is None:
            self.closed = reason
            self._writer.stop()

    def leftovers(self) -> list[PurePath]:
        """Return the files that nobody will need, once the store is closed: allocated ahead, or not removed yet."""
        prepared = self._writer.prepared
        if prepared is not None:
            self.upkeep.abandon([prepared.name.number])
        return self.upkeep.leftovers()

    @property
    def descriptors(self) -> list[int]:
        """Those of the segments that are open for writing."""
        return [one.descriptor for one in (self._writer.active, self._writer.prepared) if one is not None]
