"""A record of a table by `struct` and slices, from the drawing of its bytes."""

from __future__ import annotations

import struct

PUT, DELETED, EXPIRING = 1, 2, 3
HEAD = struct.Struct(">QQQB")
MAX_LENGTH_BYTES = 5
EXPIRY = struct.Struct(">Q")
Fields = tuple[int, int, int, int, bytes, bytes, int]


def varint(number: int) -> bytes:
    """Encode a number in LEB128: seven bits a byte, the lowest first, the high bit if more follow."""
    low, rest = number & 0x7F, number >> 7
    return bytes([low | 0x80]) + varint(rest) if rest else bytes([low])


def encode(fields: Fields) -> bytes:
    *head, dependencies, value, expires_ms = fields
    expiry = EXPIRY.pack(expires_ms) if expires_ms else b""
    return HEAD.pack(*head) + varint(len(dependencies)) + dependencies + expiry + value


def decode(data: bytes) -> Fields | None:
    """Return the fields; None for bytes that `encode` would not have written."""
    for width in range(1, MAX_LENGTH_BYTES + 1):
        at = HEAD.size + width
        if len(data) >= at and not data[at - 1] & 0x80:
            length = sum((byte & 0x7F) << 7 * place for place, byte in enumerate(data[HEAD.size : at]))
            head, rest, expires_ms = HEAD.unpack_from(data), data[at + length :], 0
            _, _, counter, kind = head
            if kind == EXPIRING and len(rest) >= EXPIRY.size:
                ((expires_ms,), rest) = EXPIRY.unpack_from(rest), rest[EXPIRY.size :]
            fields = (*head, data[at : at + length], rest, expires_ms)
            sound = counter > 0 and (
                kind == PUT or (kind == DELETED and not rest) or (kind == EXPIRING and expires_ms > 0)
            )
            return fields if sound and encode(fields) == data and length <= len(data) - at else None
    return None
