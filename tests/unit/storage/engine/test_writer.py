"""The writing end of the log: positions, groups, successive segments, marks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossipkv.storage.engine._engine import (
    BATCH,
    BEGIN,
    HEADER_BYTES,
    LIFE_GAP,
    MARK,
    NEXT,
    Batch,
    FrameParser,
    Memtable,
    OpenSegment,
    Writer,
    batch_cost,
    frame_bytes,
)
from gossipkv.storage.engine.manifest import SegmentName
from gossipkv.storage.engine.options import MAX_GROUP_BYTES, MAX_OPEN_BYTES
from gossipkv.storage.engine.segments import RESERVED_BYTES, next_name
from tests.unit.storage.engine.logs import begin_payload

SEGMENT_BYTES = HEADER_BYTES + 3 * RESERVED_BYTES


def batch_of(size, space=1):
    """Return a batch with one value of that size."""
    batch = Batch()
    batch.put(space, b"key", b"\1" * size)
    return batch


class Log:
    """A writer, and the segments that its groups are written to."""

    def __init__(self, *, position=0, segment_bytes=SEGMENT_BYTES, life=4):
        self.number = 1
        self.segment_bytes = segment_bytes
        self.disk = {1: bytearray(segment_bytes)}
        self.writer = Writer(self.segment(1), Memtable(1 << 30), {1}, life=life, position=position)

    def segment(self, number):
        """Return an open segment whose descriptor is its number."""
        return OpenSegment(SegmentName(number, number * 77), number, self.segment_bytes, HEADER_BYTES, 0)

    def prepare(self):
        self.number += 1
        self.disk[self.number] = bytearray(self.segment_bytes)
        self.writer.prepared = self.segment(self.number)

    def write(self):
        """Write a group, if there is one; return the group and its outcome."""
        group = self.writer.group()
        if group is None:
            return None
        assert self.writer.group() is None, "one at a time"
        data = bytes(group.data)
        assert group.offset + len(data) <= self.segment_bytes
        self.disk[group.descriptor][group.offset : group.offset + len(data)] = data
        return group, self.writer.written(group.position)

    def write_all(self):
        while self.write():
            pass

    def frames(self, number):
        reader = FrameParser(bytes(self.disk[number]), number * 77)
        found = []
        while (frame := reader.next()) is not None:
            found.append(frame)
        return found


@pytest.mark.parametrize("position", [0, 9])
def test_a_life_begins_with_its_first_frame(position):
    """The first frame of all has position 1; a later life begins far above, and records the synced position."""
    log = Log(position=position)
    assert log.writer.is_waiting
    log.write_all()
    (frame,) = log.frames(1)
    assert (frame.kind, frame.position, frame.synced) == (BEGIN, position + LIFE_GAP if position else 1, position)
    assert frame.payload == begin_payload(4)


steps = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(0, 6000)),
        st.tuples(st.just("extend"), st.integers(0, 600)),
        st.tuples(st.just("mark"), st.just(0)),
        st.tuples(st.just("write"), st.just(0)),
    ),
    max_size=60,
)


@given(steps)
def test_what_is_planned_is_written_in_order(steps):
    """Positions rise by one, batches are whole, and frames have the synced position of their group's start."""
    log = Log()
    writer, expected, synced, since = log.writer, [], {}, []
    begins = writer.cost
    log.prepare()
    for what, size in steps:
        if what == "write":
            write_checked(log, synced)
        elif what == "mark" and writer.mark_due:
            writer.mark()
            assert not writer.mark_due
        elif what == "put":
            batch = batch_of(size)
            if not writer.fits(frame_bytes(batch.size_bytes), batch_cost(batch)):
                while writer.prepared is None or writer.is_waiting:
                    assert write_checked(log, synced)
                writer.turn()
                since.clear()
                begins = 0
            since.append(batch)
            position = writer.plan(batch)
            assert position == writer.position
            expected.append((position, batch))
        elif what == "extend" and expected:
            writer.open(SEGMENT_BYTES)
            position, batch = expected[-1]
            assert batch.is_open is (position == writer.position > writer.synced)
            before, is_extended = batch.size_bytes, writer.extend(batch, batch_of(size))
            assert is_extended <= batch.is_open
            assert batch.size_bytes == before + is_extended * batch_of(size).size_bytes
    while write_checked(log, synced):
        pass
    assert writer.waiting_bytes == 0
    assert writer.cost == begins + sum(map(batch_cost, since))
    frames = [frame for number in range(1, log.number + 1) for frame in log.frames(number)]
    assert [frame.position for frame in frames] == list(range(1, writer.position + 1))
    batches = [(position, batch.payload) for position, batch in expected]
    assert [(frame.position, frame.payload) for frame in frames if frame.kind == BATCH] == batches
    assert {frame.position: frame.synced for frame in frames} == synced
    check_segments(log)


def write_checked(log, synced):
    """Write a group, and prepare a segment if one is full; `synced` collects the positions expected in frames."""
    before = log.writer.synced
    if (done := log.write()) is None:
        return False
    group, written = done
    synced.update(dict.fromkeys(range(before + 1, group.position + 1), before))
    assert log.writer.synced == group.position
    assert (written.closed is not None) == group.ends
    if group.ends:
        assert written.closed.last == group.position
        log.prepare()
    return True


def check_segments(log):
    """Check that each segment ends with the frame that names its successor, or that no frame follows it."""
    for number in range(1, log.number + 1):
        found = log.frames(number)
        assert all(frame.kind != NEXT for frame in found[:-1]), "nothing follows it"
        if found and found[-1].kind == NEXT:
            assert next_name(found[-1].payload) == SegmentName(number + 1, (number + 1) * 77)
        else:
            assert not any(log.frames(later) for later in range(number + 1, log.number + 1))


def test_one_group_at_a_time():
    """Batches planned during a write join the next group; the waiting bytes are counted."""
    log = Log()
    writer = log.writer
    first = writer.group()
    batches = [batch_of(size) for size in (10, 20, 30)]
    for batch in batches:
        writer.plan(batch)
    assert writer.waiting_bytes == sum(frame_bytes(batch.size_bytes) for batch in batches)
    assert writer.group() is None
    assert writer.written(first.position).batches == []
    second = writer.group()
    assert (first.position, second.position) == (1, 4)
    assert writer.waiting_bytes == 0
    assert writer.written(4).batches == batches


def test_a_group_ends_at_about_the_most():
    """A batch after a long group waits no longer than the limit; a longer batch is written alone."""
    log = Log(segment_bytes=64 << 20)
    log.write_all()
    for size in (MAX_GROUP_BYTES - 10_000, 20_000, 100, MAX_GROUP_BYTES + 5, 100):
        log.writer.plan(batch_of(size))
    counts = []
    while (done := log.write()) is not None:
        counts.append(len(done[1].batches))
    assert counts == [2, 2, 1]


def test_a_group_lies_in_one_segment():
    """The frame that names the next segment ends its group, and later batches form another one."""
    log = Log()
    writer = log.writer
    log.prepare()
    writer.plan(batch_of(100))
    writer.turn()
    later = batch_of(200)
    writer.plan(later)
    group, written = log.write()
    assert group.ends
    assert group.descriptor == 1
    assert (written.closed.name, written.closed.first, written.closed.last) == (SegmentName(1, 77), 1, 3)
    assert writer.prepared is None
    group, written = log.write()
    assert (group.descriptor, group.offset, written.batches) == (2, HEADER_BYTES, [later])
    assert writer.active.first == 4


def test_a_segment_has_room_for_what_ends_it():
    """A segment has room for a batch up to the last permitted byte, a mark, and the frame that names the next one."""
    log = Log()
    writer = log.writer
    log.prepare()
    log.write_all()
    room = SEGMENT_BYTES - RESERVED_BYTES - writer.active.offset
    batch = next(batch for size in range(room, 0, -1) if frame_bytes((batch := batch_of(size)).size_bytes) == room)
    assert writer.fits(room, batch_cost(batch))
    assert not writer.fits(room + 1, batch_cost(batch))
    writer.plan(batch)
    assert writer.share == 1.0
    assert not writer.fits(frame_bytes(0), 0)
    log.write_all()
    writer.mark()
    log.write_all()
    writer.turn()
    log.write_all()
    assert [frame.kind for frame in log.frames(1)] == [BEGIN, BATCH, MARK, NEXT]


def test_a_mark_is_due_once():
    """A mark is due when nothing waits and no frame has the sync of the last batch."""
    log = Log()
    writer = log.writer
    assert not writer.mark_due
    log.write_all()
    assert not writer.mark_due, "no batch yet"
    writer.plan(batch_of(1))
    assert not writer.mark_due, "the batch waits"
    group = writer.group()
    assert not writer.mark_due, "it is under way"
    writer.written(group.position)
    assert writer.mark_due
    writer.mark()
    assert not writer.mark_due
    log.write_all()
    assert not writer.mark_due, "it is said"
    for size in (1, 2):
        writer.plan(batch_of(size))
        log.write_all()
    assert writer.mark_due, "the second batch says it of the first only"


def test_plain_batches_are_taken_while_it_is_open():
    """Puts into live spaces are accepted, up to the opened bytes; other batches take the long way."""
    log = Log()
    writer = log.writer
    assert writer.plan_plain(batch_of(1)) == 0, "nobody has looked yet"
    writer.open(1000)
    assert writer.is_open
    position = writer.position
    assert writer.plan_plain(batch_of(1)) == position + 1
    assert writer.plan_plain(batch_of(1, space=2)) == 0, "no such space"
    assert writer.plan_plain(Batch()) == 0, "nothing in it"
    mixed = batch_of(1)
    mixed.put(2, b"key", b"value")
    assert writer.plan_plain(mixed) == 0
    writer.spaces.add(2)
    assert writer.plan_plain(mixed) == position + 2
    making = batch_of(1)
    making.new_space(3)
    assert writer.plan_plain(making) == 0
    assert writer.plan_plain(batch_of(2000)) == 0, "longer than what is open"
    writer.open(0)
    assert not writer.is_open
    assert writer.plan_plain(batch_of(1)) == 0
    writer.open(1 << 40)
    taken = sum(writer.plan_plain(batch_of(100)) > 0 for _ in range(1000))
    assert 0 < taken < 1000, "a segment is not longer than it is"
    log.write_all()
    assert len(log.frames(1)) == taken + 3


def test_the_last_batch_is_open_until_it_is_handed_out():
    """Only plain operations extend it, as far as there is room; then the next batch begins."""
    log = Log(segment_bytes=1 << 20)
    writer = log.writer
    log.write_all()
    writer.spaces.add(2)
    writer.open(1 << 19)
    batch, later = batch_of(1), batch_of(2)
    assert not writer.extend(batch, batch_of(3)), "not planned yet"
    position = writer.plan_plain(batch)
    assert batch.is_open
    assert writer.extend(batch, batch_of(3))
    both = batch_of(4, space=2)
    both.put(1, b"key", b"value")
    assert writer.extend(batch, both)
    making, mixed = batch_of(1), batch_of(1)
    making.new_space(3)
    mixed.put(3, b"key", b"value")
    before = batch.payload
    for more in (making, mixed, batch_of(1, space=3), batch_of(MAX_OPEN_BYTES - batch.size_bytes)):
        assert not writer.extend(batch, more)
    writer.open(0)
    assert not writer.extend(batch, batch_of(1)), "the pressure is to be computed first"
    assert batch.payload == before
    writer.open(1 << 19)
    assert writer.position == position
    writer.plan_plain(later)
    assert (batch.is_open, later.is_open) == (False, True)
    assert not writer.extend(batch, batch_of(1)), "another batch stands behind it"
    assert writer.extend(later, batch_of(MAX_OPEN_BYTES - later.size_bytes - frame_bytes(0)))
    group = writer.group()
    assert not later.is_open
    assert not writer.extend(later, batch_of(0)), "it is being written"
    assert writer.written(group.position).writes == 5
    last = batch_of(1)
    writer.plan_plain(last)
    writer.stop()
    assert not last.is_open
    assert not writer.extend(last, batch_of(1)), "the store is closed"


def test_nothing_is_handed_out_after_the_end():
    """Planned and pending batches are forgotten."""
    log = Log()
    writer = log.writer
    log.write_all()
    writer.open(1 << 20)
    writer.plan(batch_of(1))
    writer.group()
    writer.plan(batch_of(2))
    writer.stop()
    assert writer.group() is None
    assert not writer.mark_due
    assert writer.plan_plain(batch_of(1)) == 0
    with pytest.raises((AssertionError, IndexError)):  # The first, if assertions are compiled.
        writer.written(2)
