"""Single values of MessagePack in plain Python, from its specification: the first value of some bytes, and its size."""

from __future__ import annotations

# The first byte, and the size of the number that follows.
UNSIGNED = {0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8}
SIGNED = {0xD0: 1, 0xD1: 2, 0xD2: 4, 0xD3: 8}
RESERVED = 0xC1  # No value begins with this byte, so it stands for an empty input.
LENGTHS = {
    "bin": {0xC4: 1, 0xC5: 2, 0xC6: 4},
    "str": {0xD9: 1, 0xDA: 2, 0xDB: 4},
    "array": {0xDC: 2, 0xDD: 4},
    "map": {0xDE: 2, 0xDF: 4},
}
LENGTHS["blob"] = LENGTHS["bin"] | LENGTHS["str"]
# The short forms: ranges of first bytes that include the length.
SHORT = {"array": range(0x90, 0xA0), "map": range(0x80, 0x90), "str": range(0xA0, 0xC0), "blob": range(0xA0, 0xC0)}


def read(kind: str, data: bytes) -> tuple[int | bytes | None, int] | None:
    """Return the value of this kind at the start, and its size; None if the value has another kind or is incomplete.

    The value of an array or map is the number of its elements or pairs; the size is that of the head.
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
    """Return the size of the head and the length in it; 0 and 0 if the kind differs or the head is incomplete."""
    head = data[0] if data else RESERVED
    if head in SHORT.get(kind, ()):
        return 1, head - SHORT[kind].start
    at = 1 + LENGTHS[kind].get(head, len(data))
    return (at, int.from_bytes(data[1:at], "big")) if len(data) >= at else (0, 0)


def read_unsigned(data: bytes) -> tuple[int, int] | None:
    """Return a non-negative integer in any form, and its size."""
    if data and data[0] < 0x80:
        return data[0], 1
    size = 1 + (UNSIGNED | SIGNED).get(data[0] if data else RESERVED, len(data))
    if len(data) < size:
        return None
    number = int.from_bytes(data[1:size], "big", signed=data[0] in SIGNED)
    return (number, size) if number >= 0 else None
