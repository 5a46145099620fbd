"""The bounding scanner in plain Python, from MessagePack's specification: recursive, slow, from the first byte."""

from __future__ import annotations

from dataclasses import dataclass

SCALARS = {0xC0: 0, 0xC2: 0, 0xC3: 0, 0xCA: 4, 0xCB: 8, 0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8}
SCALARS |= {0xD0: 1, 0xD1: 2, 0xD2: 4, 0xD3: 8}
STRINGS = {0xC4: 1, 0xC5: 2, 0xC6: 4, 0xD9: 1, 0xDA: 2, 0xDB: 4}
ARRAYS = {0xDC: 2, 0xDD: 4}
MAPS = {0xDE: 2, 0xDF: 4}
EXTENSIONS = {0xC7, 0xC8, 0xC9, 0xD4, 0xD5, 0xD6, 0xD7, 0xD8}


class PartialError(Exception):
    """More bytes are needed."""


class RefusedError(Exception):
    """The value breaks a limit, or is not the MessagePack of our wire format."""

    def __init__(self, reason: str, offset: int) -> None:
        super().__init__(reason, offset)
        self.reason = reason
        self.offset = offset


@dataclass
class Scan:
    data: bytes
    max_size: int
    max_depth: int
    max_elements: int
    elements: int = 0

    def value(self, at: int, depth: int) -> int:
        """Return the end of the value that starts at `at` inside `depth` containers."""
        if at >= self.max_size:
            raise RefusedError("size", at)
        if at >= len(self.data):
            raise PartialError
        head = self.data[at]
        if head in EXTENSIONS or head == 0xC1:
            raise RefusedError("extension" if head in EXTENSIONS else "reserved", at)
        if head in ARRAYS or 0x90 <= head <= 0x9F:
            count = self.length(at, ARRAYS[head]) if head in ARRAYS else head & 0x0F
            return self.children(at, at + 1 + ARRAYS.get(head, 0), count, depth)
        if head in MAPS or 0x80 <= head <= 0x8F:
            count = self.length(at, MAPS[head]) if head in MAPS else head & 0x0F
            return self.children(at, at + 1 + MAPS.get(head, 0), 2 * count, depth)
        if head in STRINGS:
            return self.skip(at, 1 + STRINGS[head] + self.length(at, STRINGS[head]))
        return self.skip(at, 1 + (head & 0x1F if 0xA0 <= head <= 0xBF else SCALARS.get(head, 0)))

    def skip(self, at: int, size: int) -> int:
        """Return the end of `size` bytes, which may still be missing."""
        if at + size > self.max_size:
            raise RefusedError("size", at)
        return at + size

    def length(self, at: int, width: int) -> int:
        if at + 1 + width > self.max_size:
            raise RefusedError("size", at)
        if at + 1 + width > len(self.data):
            raise PartialError
        return int.from_bytes(self.data[at + 1 : at + 1 + width], "big")

    def children(self, at: int, first: int, count: int, depth: int) -> int:
        if depth >= self.max_depth:
            raise RefusedError("depth", at)
        self.elements += count
        if self.elements > self.max_elements:
            raise RefusedError("elements", at)
        for _ in range(count):
            first = self.value(first, depth + 1)
        return first


def scan(data: bytes, *, max_size: int, max_depth: int, max_elements: int) -> int | tuple[str, int] | None:
    """Return the length of the first value; None if it is incomplete; `(reason, offset)` if it is refused."""
    try:
        end = Scan(data, max_size, max_depth, max_elements).value(0, 0)
    except PartialError:
        return None
    except RefusedError as refused:
        return refused.reason, refused.offset
    return end if end <= len(data) else None
