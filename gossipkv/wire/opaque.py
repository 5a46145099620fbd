"""The decoder of *opaque* strings: MessagePack that a client or a peer returns inside a string.

The scanner of frames counts such a string as one element. So this decoder bounds it again: its bytes before and after
decompression, its elements and its depth, before anything is made of it. A test finds other calls of `unpackb`.
"""

from __future__ import annotations

import zlib
from typing import NamedTuple

import msgpack

from gossipkv.errors import ProtocolError
from gossipkv.wire.frames import MAX_DEPTH, check_value


class OpaqueLimits(NamedTuple):
    """The limits of a kind of opaque string."""

    max_bytes: int
    max_elements: int
    max_depth: int = MAX_DEPTH
    max_unzipped: int = 0  # Bytes after decompression; 0: strings of this kind are not compressed.


def unpack(data: bytes, limits: OpaqueLimits, *, raw: bool = False) -> object:
    """Decode an opaque string; `raw`: text stays bytes.

    Raises:
        ValueError: the string is over a limit, no MessagePack, or has bytes behind its end.
    """
    if len(data) > limits.max_bytes:
        raise ValueError(f"the string has {len(data):,} bytes, the limit is {limits.max_bytes:,}")
    if limits.max_unzipped:
        data = _unzipped(data, limits.max_unzipped)
    try:
        check_value(data, max_elements=limits.max_elements, max_depth=limits.max_depth)
        value: object = msgpack.unpackb(data, raw=raw, strict_map_key=True)
    except ProtocolError as error:
        raise ValueError(error.message) from error
    return value


def _unzipped(data: bytes, most: int) -> bytes:
    stream = zlib.decompressobj()
    try:
        found = stream.decompress(data, most)
    except zlib.error as error:
        raise ValueError(f"the string cannot be decompressed: {error}") from error
    if not stream.eof or stream.unused_data:
        raise ValueError(f"the compressed string is longer than {most:,} bytes, cut, or followed by other bytes")
    return found
