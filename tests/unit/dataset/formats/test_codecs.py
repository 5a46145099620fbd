from __future__ import annotations

import struct
import zlib

import lz4.block
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gossipkv.dataset.formats import codecs
from gossipkv.dataset.formats.codecs import DamagedError, decompressor
from tests.oracle import sequence_file as oracle
from tests.unit.dataset.formats.sequence_files import CODECS, short

STREAMS = [name for name in CODECS if short(name) not in {"SnappyCodec", "Lz4Codec"}]
CHUNKS = [name for name in CODECS if name not in STREAMS]
MIB = 1 << 20


def test_the_codecs_are_those_of_hadoop():
    """Codecs go by the names of their classes."""
    assert set(codecs.CODECS) == set(CODECS)
    assert decompressor("org.apache.hadoop.io.compress.PassthroughCodec") is None
    assert decompressor("DefaultCodec") is None


@settings(max_examples=settings.default.max_examples * 3)
@given(st.sampled_from(CODECS), st.binary(max_size=2000) | st.builds(bytes, st.integers(0, 400_000)), st.integers(1, 5))
def test_what_is_compressed_comes_back(codec, data, pieces):
    """The data comes in one or several streams or chunks; exactly enough room suffices, a byte less does not."""
    packed = oracle.COMPRESS[codec](data, pieces)
    decompress = decompressor(codec)
    for limit in (len(data), len(data) + 1, 4 * MIB):
        assert decompress(packed, limit) == data
        assert decompress(memoryview(b"x" + packed + b"y")[1:-1], limit) == data
    if data:
        with pytest.raises(DamagedError, match=r"more than|corrupt|failed"):
            decompress(packed, len(data) - 1)


@pytest.mark.parametrize("codec", CODECS, ids=short)
def test_every_cut_is_found(codec):
    """Only at the end of a whole stream or block is a cut file merely shorter."""
    data = b"some text, and some more text, and more"
    packed = oracle.COMPRESS[codec](data, 2)
    whole = []
    for size in range(len(packed)):
        try:
            whole.append(decompressor(codec)(packed[:size], len(data)))
        except DamagedError:
            continue
    assert whole == [b"", data[: (len(data) + 1) // 2]]


@pytest.mark.parametrize("codec", CODECS, ids=short)
@pytest.mark.parametrize("behind", [b"\0", b"\xff", b"garbage", bytes(100)])
def test_nothing_may_follow(codec, behind):
    """Even zeros are refused, which some readers of gzip accept."""
    packed = oracle.COMPRESS[codec](b"some text", 1)
    with pytest.raises(DamagedError):
        decompressor(codec)(packed + behind, 1000)


@pytest.mark.parametrize("codec", STREAMS, ids=short)
def test_a_great_many_empty_streams(codec):
    """Passing a stream must not cost time in proportion to all that follow."""
    empty = oracle.COMPRESS[codec](b"", 1)
    packed = empty * 20_000 + oracle.COMPRESS[codec](b"the end", 1)
    assert decompressor(codec)(packed, 7) == b"the end"


INFLATED = {"DefaultCodec": (zlib.MAX_WBITS, zlib.adler32, "big"), "GzipCodec": (31, zlib.crc32, "little")}


def as_zlib(codec, data):
    """Return zlib's result for consecutive streams, or None if zlib refuses or the last one is incomplete."""
    found = b""
    while data:
        stream = zlib.decompressobj(INFLATED[short(codec)][0])
        try:
            found += stream.decompress(data)
        except zlib.error:
            return None
        if not stream.eof:
            return None
        data = stream.unused_data
    return found


@st.composite
def damaged_streams(draw):
    """Draw a codec and one or two zlib streams of any kind with a few bytes changed, removed or added."""
    codec = draw(st.sampled_from([name for name in CODECS if short(name) in INFLATED]))
    window = INFLATED[short(codec)][0]
    data = bytearray()
    for _ in range(draw(st.integers(1, 2))):
        text = draw(
            st.binary(max_size=200)
            | st.builds(lambda part, times: part * times, st.binary(max_size=9), st.integers(0, 3000))
        )
        level, strategy = draw(st.sampled_from([0, 1, 6, 9])), draw(st.integers(0, zlib.Z_FIXED))
        stream = zlib.compressobj(level, zlib.DEFLATED, window - draw(st.integers(0, 6)), 8, strategy)
        data += stream.compress(text) + stream.flush()
    for _ in range(draw(st.integers(0, 2))):
        first, last = sorted(draw(st.tuples(*[st.integers(0, len(data))] * 2)))
        last = last if draw(st.booleans()) else min(last, first + 2)
        data[first:last] = draw(st.binary(max_size=3))
    return codec, bytes(data)


@settings(max_examples=settings.default.max_examples * 10)
@given(damaged_streams(), st.integers(1, 50))
def test_the_same_as_zlib(case, step):
    """In one step or many, the result is zlib's; data that only zlib refuses must match its checksum."""
    codec, data = case
    expected = as_zlib(codec, data)
    try:
        found = decompressor(codec)(data, MIB)
    except DamagedError:
        found = None
    if expected is not None:
        assert found == expected
    elif found is not None:
        _, checksum, order = INFLATED[short(codec)]
        whole = [found[first:] for first in range(len(found) + 1)]  # The length of the last of two streams is unknown.
        assert any(checksum(last).to_bytes(4, order) in data for last in whole)
    start = codecs.zlib_stream if short(codec) == "DefaultCodec" else codecs.gzip_member
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(codecs, "FIRST_PIECE_BYTES", step)
        patch.setattr(codecs, "STEP_BYTES", step)
        try:
            in_steps = codecs._streams(start, (codecs.INFLATE_ERROR,), data, MIB)
        except DamagedError:
            in_steps = None
    assert in_steps == found


def word(number):
    return struct.pack(">I", number)


CHUNK = {CHUNKS[0]: oracle.snappy_raw, CHUNKS[1]: oracle.lz4_raw}


@pytest.mark.parametrize("codec", CHUNKS, ids=short)
def test_the_stream_of_blocks_that_hadoop_writes(codec):
    """Several chunks fill a raw size; the bytes are those drawn in the documentation."""
    a, b, c = (CHUNK[codec](part) for part in (b"first ", b"second ", b"third"))
    packed = word(13) + word(len(a)) + a + word(len(b)) + b + word(5) + word(len(c)) + c
    assert decompressor(codec)(packed, 100) == b"first second third"
    assert decompressor(codec)(word(0), 0) == b""


@pytest.mark.parametrize("codec", CHUNKS, ids=short)
@pytest.mark.parametrize("raw", [1, 8, 10, 1000, 2**31 - 1, 2**31, 2**32 - 1])
def test_raw_sizes_that_lie(codec, raw):
    """The sizes are too small for the chunk, too large, or beyond any memory."""
    chunk = CHUNK[codec](b"some text")
    with pytest.raises(DamagedError):
        decompressor(codec)(word(raw) + word(len(chunk)) + chunk, 1000)


@pytest.mark.parametrize("codec", CHUNKS, ids=short)
@pytest.mark.parametrize("size", [0, 1, 2**31, 2**32 - 1])
def test_compressed_sizes_that_lie(codec, size):
    chunk = CHUNK[codec](b"some text")
    with pytest.raises(DamagedError):
        decompressor(codec)(word(9) + word(size) + chunk, 1000)


def test_an_lz4_chunk_that_begins_like_a_length():
    """The first four bytes are not the size of the raw data, as cramjam assumes unless told that size."""
    data = word(162) + b"v" * 162
    chunk = lz4.block.compress(data, store_size=False)
    assert decompressor(CHUNKS[1])(word(len(data)) + word(len(chunk)) + chunk, len(data)) == data
