"""The decoder of opaque strings refuses what is over a limit before it decodes anything."""

from __future__ import annotations

import tracemalloc
import zlib

import msgpack
import pytest

from gossipkv.wire.opaque import OpaqueLimits, unpack

PLAIN = OpaqueLimits(max_bytes=1 << 20, max_elements=6, max_depth=2)
ZIPPED = OpaqueLimits(max_bytes=1 << 16, max_elements=6, max_depth=2, max_unzipped=1 << 20)
VALUE = [b"bound", ["text", 1], None]
MANY = b"\xdd" + (500_000).to_bytes(4, "big") + b"\x90" * 500_000


def test_a_string_within_the_limits_is_decoded():
    data = msgpack.packb(VALUE)
    assert unpack(data, PLAIN) == VALUE
    assert unpack(zlib.compress(data), ZIPPED) == VALUE
    assert unpack(data, PLAIN, raw=True) == [b"bound", [b"text", 1], None]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        MANY,
        MANY.replace(b"\x90", b"\x80"),
        msgpack.packb([[[]]]),
        msgpack.packb([1] * 7),
        msgpack.packb(VALUE)[:-1],
        msgpack.packb(VALUE) + b"\0",
        msgpack.packb([b"a" * (1 << 20)]),
        msgpack.packb([msgpack.ExtType(1, b"")]),
        b"\x91\xc1",
        b"\x91\xa1\xff",
        b"\x81\x01\x02",
    ],
)
def test_other_strings_are_refused(data):
    for given, limits in ((data, PLAIN), (zlib.compress(data), ZIPPED)):
        with pytest.raises(ValueError):  # noqa: PT011  # The caller words the error.
            unpack(given, limits)


@pytest.mark.parametrize("behind", [b"\0", bytes(1000), zlib.compress(b"\xc0")])
def test_bytes_behind_a_compressed_string_are_refused(behind):
    with pytest.raises(ValueError, match="followed by other bytes"):
        unpack(zlib.compress(msgpack.packb(VALUE)) + behind, ZIPPED)


def test_a_cut_or_wrong_stream_is_refused():
    for data in (zlib.compress(msgpack.packb(VALUE))[:-1], b"no stream"):
        with pytest.raises(ValueError, match=r"cut|decompressed"):
            unpack(data, ZIPPED)


def test_refusals_cost_no_more_memory_than_the_limits():
    bombs = [(MANY, PLAIN), (zlib.compress(bytes(40 << 20), 9), ZIPPED), (zlib.compress(MANY, 9), ZIPPED)]
    tracemalloc.start()
    try:
        for data, limits in bombs:
            with pytest.raises(ValueError):  # noqa: PT011  # The caller words the error.
                unpack(data, limits)
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()
