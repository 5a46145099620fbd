"""A record of a table by `struct` and slices, from the drawing of its bytes."""

from __future__ import annotations

import struct

PUT, DELETED = 1, 2
HEAD = struct.Struct(">QQQB")
MAX_LENGTH_BYTES = 5
Fields = tuple[int, int, int, int, bytes, bytes]


def varint(number: int) -> bytes:
    """Encode a number in LEB128: seven bits a byte, the lowest first, the high bit if more follow."""
    low, rest = number & 0x7F, number >> 7
    return bytes([low | 0x80]) + varint(rest) if rest else bytes([low])


def encode(fields: Fields) -> bytes:
    *head, dependencies, value = fields
    return HEAD.pack(*head) + varint(len(dependencies)) + dependencies + value


def decode(data: bytes) -> Fields | None:
    """Return the fields; None for bytes that `encode` would not have written."""
    for width in range(1, MAX_LENGTH_BYTES + 1):
        at = HEAD.size + width
        if len(data) >= at and not data[at - 1] & 0x80:
            length = sum((byte & 0x7F) << 7 * place for place, byte in enumerate(data[HEAD.size : at]))
            fields = (*HEAD.unpack_from(data), data[at : at + length], data[at + length :])
            _, _, counter, kind, _, value = fields
            sound = counter > 0 and (kind == PUT or (kind == DELETED and not value))
            return fields if sound and encode(fields) == data and length <= len(data) - at else None
    return None
