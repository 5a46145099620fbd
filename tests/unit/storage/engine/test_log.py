"""Batches and frames agree with the oracle byte by byte: written frames are read, and nothing else."""

from __future__ import annotations

import random
import struct
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossipkv.errors import LimitExceeded
from gossipkv.storage.engine import _engine
from gossipkv.storage.engine._engine import BATCH, BEGIN, HEADER_BYTES, MARK, NEXT, PUT, Batch, FrameBuffer, FrameParser
from tests.oracle import log as oracle

SALT = 0x1234567890ABCDEF
SPACES = st.integers(0, 2**32 - 1)
OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just(oracle.VALUE), SPACES, st.binary(max_size=40), st.binary(max_size=300)),
        st.tuples(st.just(oracle.TOMBSTONE), SPACES, st.binary(max_size=40), st.just(b"")),
        st.tuples(st.sampled_from([oracle.NEW_SPACE, oracle.DROPPED_SPACE]), SPACES, st.just(b""), st.just(b"")),
    ),
    max_size=20,
)


def batch_of(operations):
    """Put the operations into a batch one by one."""
    batch = Batch()
    for kind, space, key, value in operations:
        match kind:
            case oracle.VALUE:
                batch.put(space, key, value)
            case oracle.TOMBSTONE:
                batch.delete(space, key)
            case oracle.NEW_SPACE:
                batch.new_space(space)
            case _:
                batch.drop_space(space)
    return batch


def told(reader):
    """Return all frames of a reader, in the oracle's form."""
    found = []
    while (frame := reader.next()) is not None:
        found.append(oracle.Frame(frame.offset, frame.end, frame.position, frame.synced, frame.kind, frame.payload))
    return found


@given(OPERATIONS)
def test_a_batch_has_the_bytes_of_its_operations(operations):
    """The batch also knows the spaces that its operations touch."""
    batch = batch_of(operations)
    assert batch.payload == oracle.batch(operations)
    assert batch.size_bytes == len(batch.payload)
    assert _engine.operations(batch.payload) == operations
    assert batch.count == len(operations)
    records = [one for one in operations if one[0] in {oracle.VALUE, oracle.TOMBSTONE}]
    assert batch.records == len(records)
    assert batch.puts == sum(one[0] == oracle.VALUE for one in operations)
    kinds = [(oracle.VALUE if kind == oracle.TOMBSTONE else kind, space) for kind, space, _, _ in operations]
    repeats = [one[0] == oracle.VALUE and one == before for before, one in pairwise([None, *kinds])]
    assert batch.steps == [one for one, is_repeat in zip(kinds, repeats, strict=True) if not is_repeat]
    assert batch.made == tuple(dict.fromkeys(one[1] for one in operations if one[0] == oracle.NEW_SPACE))
    assert batch.dropped == tuple(dict.fromkeys(one[1] for one in operations if one[0] == oracle.DROPPED_SPACE))


@given(OPERATIONS, OPERATIONS, st.booleans(), st.booleans())
def test_a_batch_that_is_extended_has_the_bytes_of_both(operations, more, relieves, may_fill):
    """It is as if all operations had been put into one batch; it relieves, or may fill, if both parts do."""
    first, second, whole = batch_of(operations), batch_of(more), batch_of(operations + more)
    first.may_fill, second.may_fill = True, may_fill
    first.relieves, second.relieves = relieves, True
    expected = first.relieves
    first.extend(second)
    for name in ("payload", "size_bytes", "count", "records", "puts", "steps", "made", "dropped"):
        assert getattr(first, name) == getattr(whole, name)
    assert (first.may_fill, first.relieves) == (may_fill, expected)


def test_a_value_is_overwritten_in_its_place():
    """The rest of the batch stays; a place outside is refused."""
    batch = Batch()
    batch.put(1, b"a", b"first")
    at = batch.size_bytes - 5
    batch.put(1, b"b", b"second")
    batch.overwrite(at, b"FIRST")
    batch.overwrite(batch.size_bytes - 3, b"OND")
    assert [value for *_, value in _engine.operations(batch.payload)] == [b"FIRST", b"secOND"]
    for offset in (-1, batch.size_bytes - 4):
        with pytest.raises(ValueError, match="end beyond the batch of"):
            batch.overwrite(offset, b"FIRST")
    assert [value for *_, value in _engine.operations(batch.payload)] == [b"FIRST", b"secOND"]


@given(OPERATIONS.filter(bool), st.data())
def test_what_is_no_batch_is_refused(operations, data):
    """The payload is cut within an operation, or has an unknown kind."""
    payload = oracle.batch(operations)
    ends = {0}
    for one in operations:
        ends.add(max(ends) + len(oracle.operation(*one)))
    cut = data.draw(st.integers(0, len(payload)).filter(lambda at: at not in ends))
    with pytest.raises(ValueError, match="not operations"):
        _engine.operations(payload[:cut])
    with pytest.raises(ValueError, match="not operations"):
        _engine.operations(bytes([data.draw(st.integers(5, 255))]) + payload[1:])


def test_the_limits_of_a_batch():
    """A key or value at the limit is accepted; a byte more is refused, and the batch is unchanged."""
    batch = Batch()
    batch.put(2**32 - 1, bytes(_engine.KEY_LIMIT), bytes(_engine.VALUE_LIMIT))
    before = batch.payload
    for key, value in ((bytes(_engine.KEY_LIMIT + 1), b""), (b"", bytes(_engine.VALUE_LIMIT + 1))):
        with pytest.raises(LimitExceeded) as refused:
            batch.put(1, key, value)
        assert refused.value.details["size"] == refused.value.details["limit"] + 1
    with pytest.raises(LimitExceeded, match="a key"):
        batch.delete(1, bytes(_engine.KEY_LIMIT + 1))
    assert batch.payload == before
    assert (batch.count, batch.records, batch.steps) == (1, 1, [(PUT, 2**32 - 1)])
    ((_, space, key, value),) = _engine.operations(before)
    assert (space, len(key), len(value)) == (2**32 - 1, 65531, 16777216)


def test_the_size_of_a_batch_is_limited():
    """The first operation that does not fit is refused, and the batch is unchanged."""
    batch = Batch()
    value = bytes(_engine.VALUE_LIMIT)
    fitting = _engine.BATCH_LIMIT // len(value) - 1
    for number in range(fitting):
        batch.put(1, struct.pack(">I", number), value)
    left = _engine.BATCH_LIMIT - batch.size_bytes - len(oracle.operation(oracle.VALUE, 1, b"last", b""))
    with pytest.raises(LimitExceeded, match="a batch"):
        batch.put(1, b"last", value[: left + 1])
    assert (batch.count, batch.size_bytes) == (fitting, _engine.BATCH_LIMIT - left - 15)
    batch.put(1, b"last", value[:left])
    assert batch.size_bytes == _engine.BATCH_LIMIT


@pytest.mark.parametrize("space", [-1, 2**32, 2**63, -(2**70)])
def test_a_space_has_32_bits(space):
    batch = Batch()
    for refused in (
        lambda: batch.put(space, b"", b""),
        lambda: batch.delete(space, b""),
        lambda: batch.new_space(space),
        lambda: batch.drop_space(space),
    ):
        with pytest.raises(ValueError, match="not the number of a space"):
            refused()
    assert batch.count == 0


FRAMES = st.lists(
    st.one_of(
        st.tuples(st.just(BATCH), st.binary(min_size=1, max_size=200)),
        st.tuples(st.just(MARK), st.just(b"")),
        st.tuples(st.just(NEXT), st.binary(min_size=16, max_size=16)),
        st.tuples(st.just(BEGIN), st.binary(min_size=8, max_size=8)),
    ),
    max_size=12,
)


def stamped(frames, first=1, salt=SALT):
    """Return a segment with these frames at ascending positions; check that ours and the oracle's bytes agree."""
    ours, plain = FrameBuffer(salt), b""
    for position, (kind, payload) in enumerate(frames, first):
        ours.append(kind, position, position - 1, payload)
        plain += oracle.frame(salt, kind, position, position - 1, payload)
    assert bytes(ours.view()) == plain
    assert ours.size_bytes == len(plain) == sum(_engine.frame_bytes(len(payload)) for _, payload in frames)
    return bytes(HEADER_BYTES) + plain


@given(FRAMES, st.integers(1, 2**63), st.integers(0, 2**64 - 1))
def test_frames_are_read_as_they_were_written(frames, first, salt):
    """Each frame has its place, and the end after the last one is certain without more bytes."""
    data = stamped(frames, first, salt)
    reader = FrameParser(data + bytes(64), salt)
    found = told(reader)
    assert [(one.kind, one.payload) for one in found] == frames
    assert found == [oracle.frame_at(data, one.offset, salt) for one in found]
    assert (reader.offset, reader.wanted, reader.is_torn) == (len(data), 0, False)
    assert not frames or reader.position == first + len(frames) - 1


@given(FRAMES, st.integers(0, 400))
def test_batches_without_a_frame_for_each(frames, cut):
    """`each_batch` finds the batches of `next`, up to any other frame, and leaves the reader at the same place."""
    data = stamped(frames)
    data = data[: max(HEADER_BYTES, len(data) - cut)]
    one_by_one, reader = FrameParser(data, SALT), FrameParser(data, SALT)
    found, others = [], []
    while True:
        reader.each_batch(lambda name, position, payload: found.append((name, position, payload)), "it")
        if (frame := reader.next()) is None:
            break
        assert frame.kind != BATCH
        others.append(frame.position)
    expected = told(one_by_one)
    assert found == [("it", one.position, one.payload) for one in expected if one.kind == BATCH]
    assert others == [one.position for one in expected if one.kind != BATCH]
    for name in ("offset", "position", "wanted", "is_torn", "first", "synced"):
        assert getattr(reader, name) == getattr(one_by_one, name)
    assert reader.first == (expected[0].position if expected else 0)
    assert reader.synced == max((one.synced for one in expected), default=0)


FEW = st.integers(0, 2)
TOUCHING = st.lists(
    st.one_of(
        st.tuples(
            st.just(BATCH),
            st.lists(st.tuples(st.just(oracle.VALUE), FEW, st.binary(max_size=4), st.binary()), min_size=1, max_size=6),
        ),
        st.sampled_from([(MARK, b""), (NEXT, bytes(16)), (BEGIN, bytes(8))]),
    ),
    max_size=12,
)


@given(TOUCHING, st.frozensets(FEW), st.integers(0, 12), st.integers(0, 12))
def test_batches_that_touch_spaces(frames, spaces, after, until):
    """Only batches between two positions and before a `next` are found, with their operations in these spaces."""
    data = stamped([(kind, oracle.batch(told) if kind == BATCH else told) for kind, told in frames])
    end = next((at for at, (kind, _) in enumerate(frames, 1) if kind == NEXT), len(frames))
    reader, last = FrameParser(data, SALT), min(until, end)
    expected = [
        (at, touching)
        for at, (kind, told) in enumerate(frames[:last], 1)
        if kind == BATCH and at > after and (touching := [one for one in told if one[1] in spaces])
    ]
    assert reader.touching(spaces, after, until) == expected
    assert reader.position == last
    assert reader.has_ended == (0 < last == end and frames[last - 1][0] == NEXT)
    for position in range(last):
        behind = FrameParser(data, SALT)
        found = behind.touching(spaces, after, position) + behind.touching(spaces, after, until)
        assert found == expected


def test_whoever_takes_batches_may_refuse_one():
    """The exception passes on, and the reader is after that batch."""
    reader = FrameParser(stamped([(BATCH, b"one"), (BATCH, b"two"), (BATCH, b"three")]), SALT)

    def refuse(_, position, payload):
        if position == 2:
            raise KeyError(payload)

    with pytest.raises(KeyError, match="two"):
        reader.each_batch(refuse, "it")
    assert reader.next().payload == b"three"


def test_a_batch_and_its_bytes_make_the_same_frame():
    """`append` takes a batch or its bytes."""
    batch = batch_of([(oracle.VALUE, 7, b"key", b"value")])
    of_batch, of_bytes = FrameBuffer(SALT), FrameBuffer(SALT)
    of_batch.append(BATCH, 5, 4, batch)
    of_bytes.append(BATCH, 5, 4, batch.payload)
    assert bytes(of_batch.view()) == bytes(of_bytes.view())


def test_every_damaged_byte_is_noticed():
    """A bit flipped anywhere in a frame, padding included, hides the frame, but not earlier ones."""
    data = stamped([(MARK, b""), (BATCH, b"payload of 21 bytes, "), (NEXT, b"n" * 16)])
    second = HEADER_BYTES + 32
    end = second + _engine.frame_bytes(21)
    for at in range(second, end):
        for bit in range(8):
            damaged = bytearray(data)
            damaged[at] ^= 1 << bit
            reader = FrameParser(damaged, SALT)
            assert [frame.position for frame in told(reader)] == [1]
            assert reader.offset == second


def test_another_salt_sees_nothing():
    """Aligned frames of an earlier use of the file have another salt and are ignored."""
    data = stamped([(MARK, b"")] * 3)
    reader = FrameParser(data, SALT + 1)
    assert told(reader) == []
    assert reader.claims(0) == 0


@pytest.mark.parametrize(
    ("kinds", "positions", "held"),
    [
        ([MARK, MARK], [5, 7], 1),
        ([MARK, MARK], [5, 5], 1),
        ([MARK, MARK], [5, 4], 1),
        ([MARK, BEGIN], [5, 900], 2),
        ([MARK, BEGIN], [5, 6], 2),
        ([MARK, BEGIN], [5, 5], 1),
        ([MARK, BEGIN, MARK], [5, 900, 6], 2),
    ],
)
def test_positions_follow_each_other(kinds, positions, held):
    """Only a `begin` may skip positions, and no frame goes back."""
    frames = FrameBuffer(SALT)
    for kind, position in zip(kinds, positions, strict=True):
        frames.append(kind, position, 0, b"l" * 8 if kind == BEGIN else b"")
    data = bytes(HEADER_BYTES) + bytes(frames.view())
    assert [one.position for one in told(FrameParser(data, SALT))] == positions[:held]
    assert [one.position for one in oracle.frames(data, SALT)] == positions[:held]
    assert len(told(FrameParser(data, SALT, position=positions[0]))) == 0
    assert len(told(FrameParser(data, SALT, position=positions[0] - 1))) == held


@pytest.mark.parametrize(
    ("kind", "position", "synced", "payload"),
    [
        (BATCH, 1, 0, b""),
        (BATCH, 1, 1, b"x"),
        (MARK, 0, 0, b""),
        (MARK, 1, 0, b"x"),
        (NEXT, 1, 0, b"x" * 15),
        (BEGIN, 1, 0, b"x" * 9),
        (0, 1, 0, b""),
        (5, 1, 0, b""),
    ],
)
def test_a_frame_that_cannot_be_is_neither_written_nor_read(kind, position, synced, payload):
    with pytest.raises(ValueError, match="a frame of kind"):
        FrameBuffer(SALT).append(kind, position, synced, payload)
    data = bytes(HEADER_BYTES) + oracle.frame(SALT, kind, position, synced, payload)
    assert FrameParser(data, SALT).next() is None
    assert oracle.frame_at(data, HEADER_BYTES, SALT) is None


@given(FRAMES, st.integers(0, 60), st.integers(8, 400))
def test_a_part_of_a_segment_says_what_it_lacks(frames, skipped, size):
    """A segment that is read in parts of any size gives the same frames."""
    data = stamped(frames) + bytes(skipped * 8)
    found, at, position, parts = [], HEADER_BYTES, 0, 0
    wanted = size
    while True:
        part = data[at : at + max(wanted, size)]
        reader = FrameParser(part, SALT, at, position, base=at, limit=len(data))
        found += told(reader)
        assert reader.wanted == 0 or reader.wanted > len(part) - (reader.offset - at)
        at, position, wanted = reader.offset, reader.position, reader.wanted
        if not wanted:
            break
        parts += 1
        assert parts <= len(frames) * 3 + 3
    assert found == told(FrameParser(data, SALT))


def test_a_torn_frame_is_told_from_nothing():
    """A torn frame has a valid header and a damaged rest; a leftover of an earlier use has another position."""
    whole = stamped([(MARK, b""), (BATCH, b"p" * 1000)])
    for at in (HEADER_BYTES + 64, len(whole) - 8):
        torn = bytearray(whole)
        torn[at] ^= 1
        reader = FrameParser(torn, SALT)
        assert len(told(reader)) == 1
        assert reader.is_torn
    old = bytes(HEADER_BYTES) + oracle.frame(SALT, MARK, 9, 8, b"") + oracle.frame(SALT + 1, MARK, 3, 2, b"")
    reader = FrameParser(old, SALT)
    assert len(told(reader)) == 1
    assert not reader.is_torn


@given(FRAMES, st.data())
def test_claims_are_found_wherever_they_lie(frames, data):
    """The search agrees with the oracle's, at any multiple of 8, among any bytes."""
    segment = bytearray(stamped(frames) + bytes(128))
    chance = random.Random(data.draw(st.integers(0, 2**32)))
    for _ in range(data.draw(st.integers(0, 3))):
        segment[chance.randrange(HEADER_BYTES, len(segment))] ^= 1 << chance.randrange(8)
    inserted = chance.randrange(HEADER_BYTES, len(segment))
    segment[inserted:inserted] = chance.randbytes(chance.randrange(20))
    reader = FrameParser(segment, SALT)
    at = chance.randrange(HEADER_BYTES, len(segment))
    expected = oracle.claim(bytes(segment), SALT, at)
    assert reader.claims(at) == expected
    assert reader.claims(at, expected) == expected
    assert reader.claims(at, expected + 1) == 0


def test_a_long_claim_is_checked_in_stretches():
    """The claims of frames much longer than a stretch, at any offset within a stretch, are found."""
    chance = random.Random(17)
    frames = FrameBuffer(SALT)
    position = 0
    for size in (1, 7, 900, 1023, 1024, 1025, 5000, 70_000, 300_001):
        for _ in range(3):
            position += 1
            frames.append(BATCH, position, position - 1, chance.randbytes(size))
    data = bytes(HEADER_BYTES) + bytes(frames.view())
    reader = FrameParser(data, SALT)
    found = told(reader)
    assert len(found) == position
    for frame in found:
        alone = FrameParser(data[: frame.end], SALT)
        assert alone.claims(frame.offset) == frame.synced
        assert alone.claims(frame.offset, frame.synced + 1) == 0
    damaged = bytearray(data)
    damaged[found[-1].end - 20] ^= 4
    assert FrameParser(damaged, SALT).claims(HEADER_BYTES) == found[-2].synced


def test_claims_within_claims():
    """Nested headers that all reach to the end, of which only the innermost is valid, take linear time."""
    count = 1 << 17
    size = count * 32
    words = bytearray()
    for number in range(count):
        words += struct.pack("<IIQQQ", 0, size - 32 * number - 32, 2**40, number + 1, BATCH)
    words += oracle.frame(SALT, MARK, 2**40, 7, b"")
    assert FrameParser(words, SALT, 0).claims(0) == 7


def test_frames_stay_while_somebody_looks():
    """A view forbids changes, which would move the bytes during a write."""
    frames = FrameBuffer(SALT)
    assert bytes(frames.view()) == b""
    frames.append(MARK, 1, 0, b"")
    view = frames.view()
    assert view.readonly
    for refused in (lambda: frames.append(MARK, 2, 0, b""), lambda: frames.clear(SALT)):
        with pytest.raises(BufferError):
            refused()
    assert bytes(view) == oracle.frame(SALT, MARK, 1, 0, b"")
    view.release()
    frames.clear(SALT + 1)
    assert frames.size_bytes == 0
    frames.append(MARK, 9, 8, b"")
    assert bytes(frames.view()) == oracle.frame(SALT + 1, MARK, 9, 8, b"")


def test_large_frames_let_their_memory_go():
    frames = FrameBuffer(SALT)
    frames.append(BATCH, 1, 0, bytes(5 << 20))
    frames.clear(SALT)
    frames.append(MARK, 2, 1, b"")
    assert bytes(frames.view()) == oracle.frame(SALT, MARK, 2, 1, b"")


def test_a_reader_stands_in_its_file():
    """A reader refuses offsets where no frame can begin, and offsets outside the file."""
    data = bytes(64)
    for arguments in ({"offset": 4}, {"offset": 0, "base": 8}, {"offset": 0, "limit": 63}):
        with pytest.raises(ValueError, match="no frame can begin"):
            FrameParser(data, SALT, **arguments)
    with pytest.raises(ValueError, match="lies before"):
        FrameParser(data, SALT, 8, base=8).claims(0)
    assert FrameParser(data, SALT, 4096, limit=4096).next() is None
    assert FrameParser(b"", SALT, 1 << 40, limit=1 << 41).next() is None
    assert FrameParser(data, SALT, 0).claims(1 << 60) == 0
