"""Single values of MessagePack in plain Python, from its specification: what begins some bytes, and what it takes."""

from __future__ import annotations

# The first byte, and what follows it: a number of so many bytes.
UNSIGNED = {0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8}
SIGNED = {0xD0: 1, 0xD1: 2, 0xD2: 4, 0xD3: 8}
RESERVED = 0xC1  # No value begins with it: as if nothing were there.
LENGTHS = {
    "bin": {0xC4: 1, 0xC5: 2, 0xC6: 4},
    "str": {0xD9: 1, 0xDA: 2, 0xDB: 4},
    "array": {0xDC: 2, 0xDD: 4},
    "map": {0xDE: 2, 0xDF: 4},
}
LENGTHS["blob"] = LENGTHS["bin"] | LENGTHS["str"]
# The short forms: a range of first bytes that are the length as well.
SHORT = {"array": range(0x90, 0xA0), "map": range(0x80, 0x90), "str": range(0xA0, 0xC0), "blob": range(0xA0, 0xC0)}


def read(kind: str, data: bytes) -> tuple[int | bytes | None, int] | None:
    """The value of this kind at the start, and its size; None if there is another, or a part of one.

    Of an array and a map the value is the number of elements or pairs, the size that of the head.
    """
    if kind == "nil":
        return (None, 1) if data[:1] == b"\xc0" else None
    if kind == "unsigned":
        return read_unsigned(data)
    at, length = read_length(kind, data)
    if at == 0:
        return None
    if kind in {"array", "map"}:
        return length, at
    return (data[at : at + length], at + length) if len(data) >= at + length else None


def read_length(kind: str, data: bytes) -> tuple[int, int]:
    """The size of the head, and the length that it tells; 0 and 0 if it is of another kind, or not whole."""
    head = data[0] if data else RESERVED
    if head in SHORT.get(kind, ()):
        return 1, head - SHORT[kind].start
    at = 1 + LENGTHS[kind].get(head, len(data))
    return (at, int.from_bytes(data[1:at], "big")) if len(data) >= at else (0, 0)


def read_unsigned(data: bytes) -> tuple[int, int] | None:
    """An integer that is not negative, in any form."""
    if data and data[0] < 0x80:
        return data[0], 1
    size = 1 + (UNSIGNED | SIGNED).get(data[0] if data else RESERVED, len(data))
    if len(data) < size:
        return None
    number = int.from_bytes(data[1:size], "big", signed=data[0] in SIGNED)
    return (number, size) if number >= 0 else None
