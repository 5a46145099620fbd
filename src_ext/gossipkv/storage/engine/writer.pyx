"""The writer of the log: orders frames by position, and divides them among writes.

A frame gets its position and segment when it is planned. It is stamped, with the synced position of that moment, when a
group of frames is handed out to be written. One group is under way at a time; later frames form the next. A group lies
in one segment; the last frame of a segment names the next segment, which must be allocated by then.

Most batches are plain: puts and deletes in live spaces that fit segment and memtable. `plan_plain` takes these at
once; the caller must examine every other batch and then `plan` it. The last batch that was planned is open until it is
handed out: plain operations may `extend` it, which saves them a frame.
"""

cimport cython
from libc.stdint cimport uint8_t, uint64_t

from gossipkv.storage._storage cimport aligned8

from collections import deque as _deque

from gossipkv.storage.engine import options as _options
from gossipkv.storage.engine import segments as _segments

# Distance of the last position of a life from the first of the next: more than a segment's maximum of frames. So no
# position is used twice, not even that of a lost frame.
LIFE_GAP = 1 << 32

cdef uint64_t MAX_OPEN = _options.MAX_OPEN_BYTES
cdef uint64_t MAX_GROUP = _options.MAX_GROUP_BYTES
cdef uint64_t MAX_WAITING = _options.MAX_WAITING_BYTES
cdef uint64_t RECORD_COST = _options.RECORD_COST_BYTES
cdef uint64_t RESERVED = _segments.RESERVED_BYTES


cdef inline uint64_t frame_size(uint64_t payload_bytes) noexcept nogil:
    return aligned8(FRAME_HEADER_BYTES + payload_bytes)


def batch_cost(Batch batch not None):
    """Return the approximate size of a batch in a memtable."""
    return batch.used + RECORD_COST * <uint64_t> batch.records


@cython.final
cdef class OpenSegment:
    """A segment that is open for writing: `offset` of the next group, and `first`, its first position, or 0."""

    cdef readonly object name
    cdef readonly int descriptor
    cdef readonly uint64_t size_bytes
    cdef readonly uint64_t offset
    cdef readonly uint64_t first

    def __init__(self, name, int descriptor, uint64_t size_bytes, uint64_t offset, uint64_t first):
        self.name = name
        self.descriptor = descriptor
        self.size_bytes = size_bytes
        self.offset = offset
        self.first = first

    def until(self, uint64_t position):
        """Return the segment as it can be read, up to a position."""
        return _segments.Segment(self.name, self.first, position, self.offset, self.size_bytes)


@cython.final
@cython.freelist(64)
cdef class PlannedFrame:
    """A frame with its position and segment, not written yet."""

    cdef int kind
    cdef uint64_t position
    cdef Batch batch
    cdef Py_ssize_t writes          # The batch, and those that extended it.


@cython.final
@cython.freelist(4)
cdef class WriteGroup:
    """The data of one write into one segment, up to `position`; if it `ends`, it is the segment's last."""

    cdef readonly int descriptor
    cdef readonly uint64_t offset
    cdef readonly object data
    cdef readonly uint64_t position
    cdef readonly bint ends


@cython.final
@cython.freelist(4)
cdef class WrittenGroup:
    """The batches of a written group, how many writes they had been, and the segment that the group ended, if any."""

    cdef readonly list batches
    cdef readonly Py_ssize_t writes
    cdef readonly uint64_t size_bytes
    cdef readonly object closed


@cython.final
cdef class Writer:
    """Plans frames and hands out groups; the first frame begins a life.

    `memtable` takes written batches, `spaces` are the live ones including planned changes, and `cost` is the memtable's
    approximate size including planned batches.
    """

    cdef readonly OpenSegment active
    cdef public OpenSegment prepared
    cdef readonly uint64_t position
    cdef readonly uint64_t synced
    cdef readonly uint64_t waiting_bytes
    cdef public uint64_t cost
    cdef public Memtable memtable
    cdef public set spaces
    cdef uint64_t open_until        # Plain batches that end before this offset are accepted.
    cdef uint64_t life
    cdef uint64_t offset            # Offset of the next frame to plan.
    cdef uint64_t limit             # End of the room for batches in that segment.
    cdef uint64_t claimed           # The highest position that a written frame calls synced.
    cdef uint64_t last_batch        # Position of the last batch written in this life.
    cdef object planned             # A deque.
    cdef PlannedFrame last          # The last planned frame while its batch is open.
    cdef list flying
    cdef FrameBuffer frames
    cdef object data

    def __init__(
        self, OpenSegment active not None, Memtable memtable not None, set spaces not None, *,
        uint64_t life, uint64_t position
    ):
        self.active = active
        self.memtable = memtable
        self.spaces = spaces
        self.cost = memtable.used
        self.position = position
        self.synced = position
        self.life = life
        self.offset = active.offset
        self.limit = active.size_bytes - RESERVED
        self.planned = _deque()
        self.flying = []
        self.frames = FrameBuffer(active.name.salt)
        self.data = None
        # A new store begins at position 1.
        self.plan_frame(BEGIN_FRAME, None, LIFE_GAP if position else 1, frame_size(8))

    @property
    def share(self):
        """The fill level of the segment, including planned frames, from 0 to 1."""
        return min(1.0, <double> self.offset / <double> self.limit)

    @property
    def is_waiting(self):
        """True if frames are planned that are in no group yet."""
        return bool(self.planned)

    def fits(self, uint64_t size_bytes, uint64_t cost):
        """Return True if a frame of that size fits the current segment, and its batch the memtable."""
        if self.cost > 0 and self.cost + cost > self.memtable.most_bytes:
            return False
        return self.offset + size_bytes <= self.limit

    def open(self, uint64_t size_bytes):
        """Accept plain batches for so many more bytes of the log; 0: none, until the pressure is computed again."""
        self.open_until = min(self.limit, self.offset + size_bytes) if size_bytes else 0

    @property
    def is_open(self):
        """True if plain batches are accepted, so that the pressure need not be computed yet."""
        return self.offset < self.open_until

    def plan_plain(self, Batch batch not None):
        """Plan a plain batch; returns its position, or 0 if the batch needs examination."""
        cdef uint64_t size_bytes = frame_size(<uint64_t> batch.used)
        cdef uint64_t cost = <uint64_t> batch.used + RECORD_COST * <uint64_t> batch.records
        if (
            self.offset + size_bytes > self.open_until
            or batch.records != batch.count or batch.records == 0
            or self.waiting_bytes + size_bytes > MAX_WAITING
            or self.cost + cost > self.memtable.most_bytes
            or not self.are_live(batch)
        ):
            return 0
        self.waiting_bytes += size_bytes
        self.cost += cost
        return self.plan_frame(BATCH_FRAME, batch, 1, size_bytes)

    def extend(self, Batch batch not None, Batch more not None):
        """Add plain operations to an open batch; returns False, without effect, if it is not open or has no room."""
        cdef uint64_t used = <uint64_t> (batch.used + more.used)
        cdef uint64_t size_bytes = frame_size(used) - frame_size(<uint64_t> batch.used)
        cdef uint64_t cost = <uint64_t> more.used + RECORD_COST * <uint64_t> more.records
        if (
            self.last is None or self.last.batch is not batch or used > MAX_OPEN
            or self.offset + size_bytes > self.open_until
            or more.records != more.count
            or self.waiting_bytes + size_bytes > MAX_WAITING
            or self.cost + cost > self.memtable.most_bytes
            or not self.are_live(more)
        ):
            return False
        batch.extend(more)
        self.offset += size_bytes
        self.waiting_bytes += size_bytes
        self.cost += cost
        self.last.writes += 1
        return True

    cdef bint are_live(self, Batch batch) except -1:
        """Return True if all spaces of a plain batch are live."""
        return self.spaces.issuperset(batch.spaces_of(VALUE, TOMBSTONE)) if batch.is_mixed else (
            batch.space in self.spaces
        )

    def plan(self, Batch batch not None):
        """Plan any batch; returns its position. Requires: it fits."""
        cdef uint64_t size_bytes = frame_size(<uint64_t> batch.used)
        assert self.offset + size_bytes <= self.limit, "whoever plans a batch has seen that it fits"
        self.waiting_bytes += size_bytes
        self.cost += <uint64_t> batch.used + RECORD_COST * <uint64_t> batch.records
        return self.plan_frame(BATCH_FRAME, batch, 1, size_bytes)

    def turn(self):
        """Plan to continue in the next segment, which is allocated, with an empty memtable."""
        assert self.prepared is not None, "a segment is planned to follow only once it is allocated"
        self.plan_frame(NEXT_FRAME, None, 1, frame_size(16))
        self.offset = SEGMENT_HEADER_BYTES
        self.limit = self.prepared.size_bytes - RESERVED
        self.open_until = 0
        self.cost = 0

    cdef uint64_t plan_frame(self, int kind, Batch batch, uint64_t gap, uint64_t size_bytes) except 0:
        cdef PlannedFrame frame = PlannedFrame.__new__(PlannedFrame)
        self.position += gap
        self.offset += size_bytes
        frame.kind = kind
        frame.position = self.position
        frame.batch = batch
        self.planned.append(frame)
        self.close_last()
        if batch is not None:
            batch.is_open = True
            frame.writes = 1
            self.last = frame
        return self.position

    cdef void close_last(self) noexcept:
        """Let nothing extend the last batch any more."""
        if self.last is not None:
            self.last.batch.is_open = False
            self.last = None

    @property
    def mark_due(self):
        """True if the last batch is not yet marked as synced, and no frame that does so is planned."""
        return not self.planned and not self.flying and self.claimed < self.last_batch

    def mark(self):
        """Plan a frame that records the synced position."""
        self.plan_frame(MARK_FRAME, None, 1, frame_size(0))

    def group(self):
        """Return the next group to write; None while a group is under way, or if nothing is planned."""
        cdef FrameBuffer frames = self.frames
        cdef PlannedFrame frame
        cdef WriteGroup group
        cdef bytes payload
        if self.flying or not self.planned:
            return None
        frames.clear(self.active.name.salt)
        while self.planned and <uint64_t> frames.used < MAX_GROUP:
            frame = <PlannedFrame> self.planned.popleft()
            if frame is self.last:
                self.close_last()
            if frame.batch is not None:
                frames.append_bytes(frame.kind, frame.position, self.synced, frame.batch.data, frame.batch.used)
                self.waiting_bytes -= frame_size(<uint64_t> frame.batch.used)
            else:
                payload = self.payload_of(frame.kind)
                frames.append_bytes(
                    frame.kind, frame.position, self.synced, <const uint8_t*> <const char*> payload, len(payload)
                )
            self.flying.append(frame)
            if frame.kind == NEXT_FRAME:
                break
        assert self.active.offset + <uint64_t> frames.used <= self.active.size_bytes, "a group lies in one segment"
        if self.active.first == 0:
            self.active.first = (<PlannedFrame> self.flying[0]).position
        self.data = frames.view()
        group = WriteGroup.__new__(WriteGroup)
        group.descriptor = self.active.descriptor
        group.offset = self.active.offset
        group.data = self.data
        group.position = frame.position
        group.ends = frame.kind == NEXT_FRAME
        return group

    cdef bytes payload_of(self, int kind):
        if kind == NEXT_FRAME:
            assert self.prepared is not None, "it was when the frame was planned"
            number, salt = self.prepared.name
            return number.to_bytes(8, "little") + salt.to_bytes(8, "little")
        return self.life.to_bytes(8, "little") if kind == BEGIN_FRAME else b""

    def written(self, uint64_t position):
        """Record that the group under way, which ends with `position`, is written and synced; returns its content."""
        cdef WrittenGroup result = WrittenGroup.__new__(WrittenGroup)
        cdef PlannedFrame frame = None
        cdef list flying = self.flying
        assert flying, "a group is under way"
        frame = <PlannedFrame> flying[len(flying) - 1]
        assert frame.position == position, (frame.position, position)
        self.flying = []
        self.data.release()     # The next group reuses its memory.
        self.data = None
        result.batches = []
        result.size_bytes = <uint64_t> self.frames.used
        self.active.offset += result.size_bytes
        self.claimed = self.synced
        self.synced = position
        for frame in flying:
            if frame.batch is not None:
                result.batches.append(frame.batch)
                result.writes += frame.writes
                self.last_batch = frame.position
        if frame.kind == NEXT_FRAME:
            result.closed = self.active.until(position)
            assert self.prepared is not None, "the next segment was named"
            self.active = self.prepared
            self.prepared = None
            self.frames.clear(self.active.name.salt)
        return result

    def stop(self):
        """Drop all planned frames and the group under way; nothing is handed out or accepted any more."""
        self.planned.clear()
        self.close_last()
        self.flying = []
        self.open_until = 0
