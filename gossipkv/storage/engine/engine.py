"""The core of a store, without I/O: decides writes, reads, merges, and refusals for lack of room.

A plain object that is told of events and returns the work to do; `works` and the shells handle files, threads and
children. Two rules hold:

* A batch is applied to the memtable after its sync, in the order of positions, so nothing unsynced can be read. After a
  failure nothing is written or applied any more, but synced records can still be read.
* A memtable and the segments with its batches are closed together. At most one closed memtable waits to be merged; a
  write that would need a third memtable is refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, final

from gossipkv.errors import Corrupt, LimitExceeded, Overloaded, StorageError, UnsupportedFormat
from gossipkv.storage.engine import policy
from gossipkv.storage.engine._engine import (
    DROPPED,
    HEADER_BYTES,
    MADE,
    Memtable,
    OpenSegment,
    ReadGate,
    Writer,
    batch_cost,
    frame_bytes,
)
from gossipkv.storage.engine.manifest import MAX_SPACES, SegmentName
from gossipkv.storage.engine.options import MAX_WAITING_BYTES, EngineCounts
from gossipkv.storage.engine.segments import SegmentHeader
from gossipkv.storage.engine.upkeep import ManifestUpkeep, SyncedState
from gossipkv.storage.engine.works import MakeSegment, Remove, Reserve, RunningMerge, Switch

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Collection, Mapping, Sequence
    from pathlib import PurePath

    from gossipkv.storage.engine._engine import Batch, View, WriteGroup
    from gossipkv.storage.engine.manifest import StoreManifest
    from gossipkv.storage.engine.merge import ExpiryRule, MergeOutput
    from gossipkv.storage.engine.options import EngineOptions
    from gossipkv.storage.engine.segments import Segment
    from gossipkv.storage.engine.works import Done, Short, Work
    from gossipkv.storage.sorted_file import SortedFile

# The pressure on writers is computed again this often while a segment is filled.
LOOKS = 64
UNKNOWN_BYTES = 1 << 62  # Free space before the first look at the disk.


class OpenedLog(NamedTuple):
    """The log and the memtables of a store, as found or made when it was opened."""

    active: OpenSegment
    kept: tuple[Segment, ...]  # Ordered from the oldest; their records are in runs.
    closed: tuple[Segment, ...]  # Segments of the frozen memtable.
    memtable: Memtable
    frozen: Memtable | None
    spaces: frozenset[int]
    next_space: int
    next_number: int
    position: int  # The last position that counts.
    files: Mapping[str, SortedFile]
    reserved_bytes: int  # Size of the reserve on the disk.
    damage: str | None = None  # Damage that cut off the older part of the log kept for readers.


@final
class Engine:
    """The core of a store, from its opening to its end."""

    def __init__(
        self,
        directory: PurePath,
        options: EngineOptions,
        random: random.Random,
        manifest: StoreManifest,
        log: OpenedLog,
    ) -> None:
        self.directory = directory
        self.options = options
        self.counts = EngineCounts()
        self.closed: str | None = None  # The reason, once the store is closed.
        self.has_failed = False  # True if the store closed itself; synced records can still be read.
        self.expiry: ExpiryRule | None = None  # None: merges keep expired records.
        self.trouble: str | None = None  # The last error of work besides the writing.
        self.log_damage = log.damage  # Damage that made the log begin later.
        self._free_bytes = UNKNOWN_BYTES  # On the file system, as last measured, without the reserve.
        self._reserved_bytes = log.reserved_bytes
        self._reserving: Reserve | None = None
        self._replaced = self._frozen_replaced = 0  # Records put by relieving batches since the opening.
        self._deletes_wait = False  # True if deletes wait for a flush or for the next segment.
        self.upkeep = ManifestUpkeep(directory, options, manifest, log.kept, log.closed, files=log.files)
        self._live = set(log.spaces)  # Includes planned changes.
        self._writer = Writer(log.active, log.memtable, self._live, life=manifest.life, position=log.position)
        self.extend = self._writer.extend  # Adds plain operations to the last batch, unless it is handed out or full.
        self._pressure: policy.Pressure | None = None  # The last computed value.
        self._limits = policy.MergeLimits(options.file_bytes, options.stretch_bytes, margin_bytes=options.margin_bytes)
        self._random = random
        self._next_number = log.next_number
        self._making: MakeSegment | None = None
        self._frozen = log.frozen
        self._turns = log.frozen is not None  # A second memtable is planned, or exists.
        self.spaces = set(log.spaces)  # The live spaces, as of the last sync.
        self._reserved: set[int] = set()
        self._next_space = log.next_space
        self.gate = ReadGate()
        self.view = self._new_view()

    @property
    def manifest(self) -> StoreManifest:
        return self.upkeep.manifest

    # -- writing -----------------------------------------------------------------------------------------------------

    def check_open(self) -> None:
        if self.closed is not None:
            raise self.closed_error()

    def closed_error(self) -> StorageError:
        """Return the error that `check_open` raises once the store is closed."""
        return StorageError(f"the store is closed: {self.closed}", {"reason": self.closed})

    def check_readable(self, space: int) -> None:
        """Raise `StorageError` if the store was closed other than by a failure, and `ValueError` for no live space."""
        if not self.has_failed:
            self.check_open()
        if space not in self.spaces:
            raise ValueError(f"the store has no space {space}: the space was not made, or was dropped")

    def reserve_space(self) -> int:
        """Return the number of a space that a batch may make; it stays used once that batch is synced.

        Raises:
            LimitExceeded: all numbers are used.
            StorageError: the store is closed.
        """
        self.check_open()
        if self._next_space >= MAX_SPACES:
            raise LimitExceeded("all 4,294,967,296 numbers of spaces are used")
        space, self._next_space = self._next_space, self._next_space + 1
        self._reserved.add(space)
        return space

    def append(self, batch: Batch) -> int:
        """Plan to write a batch, which only `extend` may change from now on; returns its position.

        Raises:
            Overloaded: there is no room now; names the missing room; nothing has changed.
            LimitExceeded: the batch is longer than a segment allows.
            ValueError: the batch is empty, touches a space that is not live, or makes one that was not reserved.
            StorageError: the store is closed; says why.
        """
        return self._writer.plan_plain(batch) or self._append(batch)

    def _append(self, batch: Batch) -> int:
        """Plan a batch that `plan_plain` did not take."""
        self.check_open()
        if not batch.count:
            raise ValueError("the batch has no operations")
        size_bytes = frame_bytes(batch.size_bytes)
        if size_bytes > self.options.most_batch_bytes:
            raise LimitExceeded(
                f"the batch has {batch.size_bytes:,} bytes, and a segment of the log has room for "
                f"{self.options.most_batch_bytes:,}: divide the batch",
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
        """Check the space operations of a batch in order, since a restart replays them in order."""
        made: set[int] = set()
        dropped: set[int] = set()
        for kind, space in batch.steps:
            if kind == MADE:
                if space not in self._reserved or space in made:
                    raise ValueError(f"the space {space} was not reserved, or exists already")
                made.add(space)
            elif space in dropped or (space not in self._live and space not in made):
                raise ValueError(f"the store has no space {space}: the space was not made, or was dropped")
            elif kind == DROPPED:
                dropped.add(space)

    def _make_room(self, size_bytes: int, cost: int, batch: Batch) -> None:
        """Turn to another segment and memtable if the next frame does not fit. Raises `Overloaded`: not now.

        If room is scarce, a batch that `may_fill` may use the rest of the open segment; one that relieves may use any
        room.
        """
        writer = self._writer
        is_full = not writer.fits(size_bytes, cost)
        may_pass = batch.relieves or (batch.may_fill and not is_full)
        refusal = self._look().refusal  # Scarce room is a refusal, too.
        relieves = refusal is not None and may_pass and self.is_scarce
        refusal = None if relieves else refusal
        if refusal is None and writer.is_waiting and writer.waiting_bytes + size_bytes > MAX_WAITING_BYTES:
            refusal = f"{writer.waiting_bytes:,} bytes wait to be written to the disk"
        if refusal is None and is_full:
            self._deletes_wait |= relieves
            if self._turns:
                refusal = "both memtables are full, and the older memtable is not merged yet"
            elif writer.prepared is None:
                refusal = "the next segment of the log is not allocated yet"
        if refusal is not None:
            self.counts.refused += 1
            because = f" ({self.trouble})" if self.trouble else ""
            words = f"the store takes no writes now: {refusal}{because}; try again later"
            raise Overloaded(words, {"reason": refusal, "passes": not self.is_scarce})
        if is_full:
            self._turn()

    def _turn(self) -> None:
        self._writer.turn()
        self._turns = True

    def relieve(self) -> bool:
        """Plan to close the memtable if room is scarce and its deletes free more than that costs; True if planned."""
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

    def group(self) -> WriteGroup | None:
        """Return the next group to write; None if a group is under way or nothing waits."""
        return None if self.closed is not None else self._writer.group()

    def synced(self, position: int) -> int:
        """Apply the group that is under way, which is now written and synced; returns how many writes it had."""
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
        return written.writes

    def _apply(self, batch: Batch) -> None:
        self.gate.apply(self._writer.memtable, batch)
        counts = self.counts
        counts.batches += 1
        counts.records += batch.records
        counts.user_bytes += batch.size_bytes
        if batch.relieves and self.pressure().refusal is not None:
            self._replaced += batch.puts
        if batch.count == batch.records:
            return
        self.spaces.update(batch.made)
        for space in batch.dropped:
            self.spaces.discard(space)
            self.upkeep.dropped_bytes += self.view.size_bytes(space)

    def failed(self, error: OSError) -> None:
        """End the life of the store: a write or sync of its log failed, so the disk's content is unknown."""
        self.fail(f"its log cannot be written: {error.strerror or error}")

    def fail(self, why: str) -> None:
        """End the life of the store; synced records can still be read."""
        self.has_failed |= self.closed is None
        self.close(why)

    @property
    def position(self) -> int:
        """The last position that was assigned, synced or not."""
        return self._writer.position

    @property
    def synced_position(self) -> int:
        """The last synced position; batches up to it can be read."""
        return self._writer.synced

    def mark(self) -> bool:
        """Plan a frame that records the synced position, unless one exists already; returns True if planned."""
        is_due = self.closed is None and self._writer.mark_due
        if is_due:
            self._writer.mark()
        return is_due

    # -- reading -----------------------------------------------------------------------------------------------------

    @property
    def first_space(self) -> int | None:
        """The lowest live space, as of the last sync."""
        return min(self.spaces, default=None)

    def log(self) -> list[Segment]:
        """Return the segments that can be read by position, up to the synced position; the active one is last."""
        active = self._writer.active
        now = [active.until(self._writer.synced)] if active.offset > HEADER_BYTES else []
        return [*self.upkeep.kept, *self.upkeep.closed, *now]

    @property
    def log_floor(self) -> int:
        log = self.log()
        return log[0].first - 1 if log else self._writer.synced

    def lose_log(self, number: int, damage: Exception) -> None:
        """Make the log begin behind a damaged segment, if only readers of the log need that segment."""
        if self.upkeep.lose_log(number):
            self.log_damage = str(damage)

    @property
    def memtable_bytes(self) -> int:
        return self._writer.memtable.bytes_used + (0 if self._frozen is None else self._frozen.bytes_used)

    def unmerged(self) -> list[Segment]:
        """Return the segments that recovery would read; the active one comes last, even without frames."""
        return [*self.upkeep.closed, self._writer.active.until(self._writer.synced)]

    def _new_view(self) -> View:
        memtable = self._writer.memtable
        memtables = [memtable] if self._frozen is None else [memtable, self._frozen]
        runs = [*self.manifest.young, self.manifest.oldest]
        files = self.upkeep.files
        return self.gate.show(
            memtables, [[(file.first, files[file.name]) for file in run.files] for run in runs if run.files]
        )

    def serve(self, guards: Sequence[object]) -> None:
        """Let further serving loops read, each with the guard of its twins of files."""
        if not self.has_failed:
            self.check_open()
        self.gate.serve(guards)
        self.view = self._new_view()

    # -- beside it ---------------------------------------------------------------------------------------------------

    def state(self) -> policy.StoreState:
        """Return the state by which `policy` decides merges and refusals."""
        share = max(self._writer.share, min(1.0, self._writer.cost / self.options.memtable_bytes))
        free_bytes = self._free_bytes + self._reserved_bytes
        now_ms = 0 if self.expiry is None else self.expiry.now_ms()
        return self.upkeep.state(
            active_share=share, free_bytes=free_bytes, deletes_wait=self._deletes_wait, now_ms=now_ms
        )

    @property
    def is_scarce(self) -> bool:
        """Return True while the store takes and merges only writes that free room."""
        return policy.is_scarce(self.state(), self._limits)

    def pressure(self) -> policy.Pressure:
        """Return how much writers are slowed, or why they are refused: as of now, or slightly earlier."""
        return self._pressure if self._pressure is not None and self._writer.is_open else self._look()

    def _look(self) -> policy.Pressure:
        """Compute the pressure; it holds for the next few bytes of the log, unless something happens."""
        self._pressure = policy.pressure(self.state(), self._limits)
        if self.closed is None:
            self._writer.open(0 if self._pressure.refusal else self.options.segment_bytes // LOOKS)
        return self._pressure

    @property
    def free_bytes(self) -> int:
        """Free bytes of the file system, as last measured, without the reserve."""
        return self._free_bytes

    @free_bytes.setter
    def free_bytes(self, measured: int) -> None:
        self._free_bytes, self._pressure = measured, None

    def manner(self, *, is_flush: bool) -> policy.Manner:
        """Return how hard a merge should work now."""
        return policy.manner(self.state(), self._limits, is_flush=is_flush)

    def next_work(self, without: Collection[type[Work]] = ()) -> Work | None:
        """Return the next work besides the writing, which then counts as under way; None: nothing now.

        Of each kind one is under way at a time. `without`: kinds that the disk refused a moment ago. They do not block
        other kinds, since a removal may free the missing room.
        """
        if self.closed is not None:
            return None
        active = self._writer.active
        synced = SyncedState(self.spaces, self._next_space, active.name, active.offset, self._deletes_wait)
        kinds: tuple[tuple[type[Work], Callable[[], Work | None]], ...] = (
            (Switch, lambda: self.upkeep.next_switch(synced)),
            (Remove, self.upkeep.next_removal),
            (MakeSegment, self._next_segment),
            (RunningMerge, self._next_merge),
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

    def _next_merge(self) -> RunningMerge | None:
        """Begin a flush before any compaction, since writers may wait for the flush."""
        upkeep, state = self.upkeep, self.state()
        if upkeep.merge is not None or self._is_short(state):
            return None
        if policy.is_flush_due(state, self._limits):
            return upkeep.begin_flush(self.spaces, self.manner(is_flush=True).bytes_per_second)
        chosen, rate = policy.compaction(state, self._limits), self.manner(is_flush=False).bytes_per_second
        if chosen is None:
            return None
        return upkeep.begin_compaction(chosen, self.spaces, rate, policy.stretch_bytes(state, self._limits))

    def _next_reserve(self) -> Reserve | None:
        """Plan a change of the reserve: fill it once there is room, and shorten it for merges that free room."""
        state, size_bytes = self.state(), self.options.reserve_bytes
        if self._reserving is not None or self._free_bytes == UNKNOWN_BYTES:
            return None
        if self._is_short(state):
            self._reserving = Reserve(max(0, self._reserved_bytes + self._free_bytes - self._needed_bytes(state)))
        elif self._reserved_bytes < size_bytes and not self.upkeep.merge and not policy.is_scarce(state, self._limits):
            self._reserving = Reserve(size_bytes)
        return self._reserving

    def _is_short(self, state: policy.StoreState) -> bool:
        """Return True if the next work does not fit beside the reserve, and there is a reserve."""
        return self._reserved_bytes > 0 and self._free_bytes < self._needed_bytes(state)

    def _needed_bytes(self, state: policy.StoreState) -> int:
        """Return the room for the next merge or its switch, and for a segment that deletes wait for."""
        segment = self.options.segment_bytes if self._deletes_wait and self._writer.prepared is None else 0
        if self.upkeep.merge is not None:
            return segment + self.upkeep.switch_bytes
        if policy.is_flush_due(state, self._limits):
            return segment + state.closed_bytes
        chosen = policy.compaction(state, self._limits)
        return segment + (0 if chosen is None else policy.compaction_bytes(state, chosen, self._limits))

    def done(self, work: Short, result: Done) -> None:
        """Record that work was done, with the result of `works.perform`."""
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
        """Accept the next segment, which is allocated and whose header is synced."""
        assert work is self._making, "one segment at a time"
        self._making = self.trouble = None
        name = SegmentName(work.header.number, work.header.salt)
        self._writer.prepared = OpenSegment(name, descriptor, work.header.size_bytes, HEADER_BYTES, 0)

    def merged(self, work: RunningMerge, output: MergeOutput) -> None:
        """Accept the output of a merge, to replace its inputs by the next switch."""
        self.counts.merged_bytes += sum(file.size_bytes for file in output.files)
        self.upkeep.merged(work, output)

    def switched(self, work: Switch, opened: Mapping[str, SortedFile]) -> None:
        """Read from the new manifest, which is durable, and whose new files are open."""
        self.counts.switches += 1
        if self.upkeep.switched(work, opened):
            self.upkeep.dropped_bytes += policy.hidden_bytes(self.state(), self._frozen_replaced)
            self._frozen, self._turns, self._deletes_wait, self._frozen_replaced = None, False, False, 0
        self._pressure = None
        self._writer.open(0)
        self.trouble = None
        self.view = self._new_view()

    def put_off(self, work: Work, error: Exception) -> None:
        """Record that work failed; `next_work` will return it again, when the caller asks."""
        self.counts.put_off += 1
        self.trouble = str(error)
        match work:
            case MakeSegment(header, recycled):
                self._making = None  # Its number is not used again: the state of its file is unknown.
                self.upkeep.abandon([header.number, *([] if recycled is None else [recycled])])
            case Switch() if isinstance(error, Corrupt | UnsupportedFormat):
                self.upkeep.switch_refused()
            case Switch():
                self.upkeep.switch_failed(may_have_happened=isinstance(error, OSError))
            case Remove():
                self.upkeep.removal_failed()
            case RunningMerge():
                self.upkeep.merge_failed()
            case Reserve():
                self._reserving = None

    def close(self, reason: str = "the node closed it") -> None:
        """End the life of the store; batches that are not synced by now may or may not be kept."""
        if self.closed is None:
            self.closed = reason
            self._writer.stop()
            if not self.has_failed:
                self.gate.hide()

    def leftovers(self) -> list[PurePath]:
        """Return files that nothing will need once the store is closed: allocated ahead, or not removed yet."""
        prepared = self._writer.prepared
        if prepared is not None:
            self.upkeep.abandon([prepared.name.number])
        return self.upkeep.leftovers()

    @property
    def descriptors(self) -> list[int]:
        return [active.descriptor for active in (self._writer.active, self._writer.prepared) if active is not None]
