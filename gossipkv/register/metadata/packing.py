"""Values of METADATA in MessagePack, each in its only encoding, so that bytes can be compared instead of contents."""

from __future__ import annotations

from typing import TypeGuard

import msgpack

from gossipkv.errors import ProtocolError
from gossipkv.register.metadata.known import MAX_CONFIG


def pack(value: object) -> bytes:
    """Encode a value in its only encoding."""
    data: bytes = msgpack.packb(value)
    return data


def unpack(data: bytes, most_bytes: int) -> object:
    """Decode the result of `pack`, with arrays as tuples.

    Raises:
        ProtocolError: the data is larger than `most_bytes`, no MessagePack, or not in its only encoding.
    """
    if len(data) > most_bytes:
        raise ProtocolError(f"the data has {len(data)} bytes, at most {most_bytes} are allowed")
    try:
        value: object = msgpack.unpackb(data, use_list=False)
        if pack(value) == data:
            return value
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise ProtocolError(f"the bytes are not MessagePack: {error}") from None
    raise ProtocolError("the bytes are not in the canonical form")


def is_whole(value: object, most: int = MAX_CONFIG) -> TypeGuard[int]:
    """Return True for a number from 0 to `most`; bools do not count, since they have other bytes."""
    return type(value) is int and 0 <= value <= most
