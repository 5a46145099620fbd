"""The scanner against the plain-Python oracle, against msgpack's own Unpacker, and at each of its limits."""

from __future__ import annotations

import itertools
import tracemalloc
from typing import TYPE_CHECKING

import msgpack
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gossipkv.errors import ProtocolError
from gossipkv.wire.frames import MAX_DEPTH, MAX_ELEMENTS, MAX_FRAME_BYTES, FrameReader
from tests.oracle import msgpack_scanner

if TYPE_CHECKING:
    from collections.abc import Iterable

LIMITS = {"max_size": 64, "max_depth": 3, "max_elements": 12}

# Structural bytes: heads of every kind, and lengths near the limits.
STEERING = st.sampled_from(
    bytes([0x00, 0x7F, 0x80, 0x81, 0x82, 0x90, 0x91, 0x93, 0xA0, 0xA1, 0xBF, 0xE0, 0xFF, *range(0xC0, 0xE0)])
)
HOSTILE = st.lists(STEERING | st.integers(0, 255), max_size=80).map(bytes)

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False)
    | st.text(max_size=300)
    | st.binary(max_size=70_000),
    lambda inner: st.lists(inner, max_size=20) | st.dictionaries(st.text(max_size=5), inner, max_size=20),
    max_leaves=30,
)


def small_reader() -> FrameReader:
    """Return a reader with the limits that the oracle gets."""
    return FrameReader(LIMITS["max_size"], max_depth=LIMITS["max_depth"], max_elements=LIMITS["max_elements"])


def scan(pieces: Iterable[bytes]) -> int | tuple[str, int] | None:
    """Return the reader's result for the first value, in the oracle's form."""
    reader = small_reader()
    result: int | tuple[str, int] | None = None
    for piece in pieces:
        reader.feed(piece)
        try:
            frame = reader.next()
        except ProtocolError as error:
            return error.details["reason"], error.details["offset"]
        if frame is not None:
            return len(frame)
    return result


def split(data: bytes, cuts: Iterable[int]) -> list[bytes]:
    places = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return [data[begin:end] for begin, end in itertools.pairwise(places)]


@given(HOSTILE)
@example(b"\xc1")
@example(b"\xdd\xff\xff\xff\xff")
@example(b"\xdf\xff\xff\xff\xff")
@example(b"\xdb\xff\xff\xff\xff")
@example(b"\x91\x91\x91\x90")
@example(b"\x93\x93\x93\x93")
def test_agrees_with_the_oracle(data: bytes) -> None:
    assert scan([data]) == msgpack_scanner.scan(data, **LIMITS)


@given(HOSTILE, st.lists(st.integers(0, 100), max_size=8))
def test_splits_change_nothing(data: bytes, cuts: list[int]) -> None:
    assert scan(split(data, cuts)) == scan([data])


@given(HOSTILE)
def test_every_prefix_agrees(data: bytes) -> None:
    """A prefix needs more bytes or gives the result of the whole."""
    for end in range(len(data) + 1):
        assert scan([data[:end]]) == msgpack_scanner.scan(data[:end], **LIMITS)


@given(st.lists(VALUES, max_size=6), st.lists(st.integers(0, 2**20), max_size=20))
def test_frames_are_what_msgpack_reads(values: list[object], cuts: list[int]) -> None:
    """Values come out whole and in order, as msgpack's Unpacker reads the same stream."""
    stream = b"".join(msgpack.packb(value) for value in values)
    unpacker = msgpack.Unpacker(strict_map_key=False)
    unpacker.feed(stream)
    reader = FrameReader()
    frames = []
    for piece in split(stream, cuts):
        reader.feed(piece)
        frames += list(reader)
    assert [msgpack.unpackb(frame) for frame in frames] == list(unpacker) == values
    assert b"".join(frames) == stream
    assert reader.pending_bytes == 0


def test_a_large_frame_byte_by_byte() -> None:
    """A scanner that started over for each of the 300,000 feeds would need 10^10 steps."""
    frame = msgpack.packb([0, 1, b"get_many", [b"db", [b"x"] * 100_000]])
    reader = FrameReader()
    for at in range(len(frame) - 1):
        reader.feed(frame[at : at + 1])
        assert reader.next() is None
    reader.feed(frame[-1:])
    assert reader.next() == frame


@pytest.mark.parametrize(
    ("start", "reason", "offset"),
    [
        (b"", "depth", MAX_DEPTH),
        (b"\xdd\x00\x98\x96\x80", "elements", 0),
        (b"\xdf\x00\x4c\x4b\x40", "elements", 0),
        (b"\xc6\xff\xff\xff\xff", "size", 0),
    ],
)
def test_nested_and_lying_heads_cost_nothing(start: bytes, reason: str, offset: int) -> None:
    """10 MB of 0x91, or of bytes behind a false head, are refused at the head without decoding."""
    reader = FrameReader()
    reader.feed(start + b"\x91" * 10_000_000)
    tracemalloc.start()
    with pytest.raises(ProtocolError) as caught:
        reader.next()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert caught.value.details == {"reason": reason, "offset": offset}
    assert peak < 10_000


def test_empty_arrays_are_values_of_one_byte() -> None:
    reader = FrameReader()
    reader.feed(b"\x90" * 10_000_000)
    assert reader.next() == b"\x90"
    assert reader.pending_bytes == 9_999_999


@pytest.mark.parametrize("over", [0, 1])
def test_size_limit(over: int) -> None:
    """A frame of exactly the limit passes; a longer one is refused at the head that shows its size."""
    reader = FrameReader(100)
    reader.feed(b"\xc4" + bytes([98 + over]) + bytes(98 + over))
    if over:
        with pytest.raises(ProtocolError, match="limit of 100 bytes"):
            reader.next()
    else:
        assert len(reader.next() or b"") == 100


@pytest.mark.parametrize("over", [0, 1])
def test_depth_limit(over: int) -> None:
    reader = FrameReader(max_depth=5)
    reader.feed(b"\x91" * (4 + over) + b"\x90")
    if over:
        with pytest.raises(ProtocolError, match="more than 5 deep"):
            reader.next()
    else:
        assert reader.next() == b"\x91" * 4 + b"\x90"


@pytest.mark.parametrize("over", [0, 1])
def test_element_limit(over: int) -> None:
    """Elements count over the whole frame, keys and values of maps each."""
    reader = FrameReader(max_elements=6)
    data = b"\x92" + b"\x82\x01\x02\x03\x04" + (b"\x91\x05" if over else b"\x90")
    reader.feed(data)
    if over:
        with pytest.raises(ProtocolError, match="more than 6 elements"):
            reader.next()
    else:
        assert reader.next() == data


def test_scalar_only() -> None:
    reader = FrameReader(10, max_depth=0, max_elements=0)
    reader.feed(b"\x01\x90")
    assert reader.next() == b"\x01"
    with pytest.raises(ProtocolError, match="0 deep"):
        reader.next()


def test_an_error_stays() -> None:
    """A refusal loses the boundary: each later call raises the same error, whatever is fed."""
    reader = FrameReader()
    reader.feed(b"\x01\xc0\xc1")
    assert list(itertools.islice(reader, 2)) == [b"\x01", b"\xc0"]
    for _ in range(2):
        with pytest.raises(ProtocolError, match="byte 2 of the stream: the byte 0xc1"):
            reader.next()
        reader.feed(b"\x01")


def test_offset_counts_from_the_start_of_the_stream() -> None:
    reader = FrameReader()
    for _ in range(1000):
        reader.feed(b"\xa3abc")
        assert reader.next() == b"\xa3abc"
    reader.feed(b"\x91\xd4")
    with pytest.raises(ProtocolError) as caught:
        reader.next()
    assert caught.value.details == {"reason": "extension", "offset": 4001}


def test_pending_bytes_tell_a_cut_stream() -> None:
    reader = FrameReader()
    reader.feed(b"\xa3ab")
    assert list(reader) == []
    assert reader.pending_bytes == 3


def test_any_buffer_can_be_fed() -> None:
    reader = FrameReader()
    data = bytearray(b"\xa1a")
    reader.feed(data)
    data[1] = 0x62
    reader.feed(memoryview(b"\xa1c"))
    assert list(reader) == [b"\xa1a", b"\xa1c"]


@pytest.mark.parametrize(
    "limits", [{"max_frame": 0}, {"max_depth": MAX_DEPTH + 1}, {"max_depth": -1}, {"max_elements": -1}]
)
def test_limits_out_of_range(limits: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="limits out of range"):
        FrameReader(**limits)


def test_default_limits_hold_what_they_promise() -> None:
    """The largest value fits a frame, and a batch of keys fits the elements."""
    assert MAX_FRAME_BYTES > 16 * 1024 * 1024 + 65_535
    assert MAX_ELEMENTS > 100_000
