"""Bytes of which only written blocks take memory, and copies share unchanged blocks.

Blocks are replaced and never changed, so a write costs the blocks that it touches, and a copy a reference to each.  A
missing block is zeros: a hole, or a range that was only allocated.
"""

from __future__ import annotations

from typing import Final

BLOCK_BYTES: Final = 4096
ZEROS: Final = bytes(BLOCK_BYTES)


class SparseBytes:
    """The content of a file."""

    __slots__ = ("blocks", "size_bytes")

    def __init__(self, blocks: dict[int, bytes] | None = None, size_bytes: int = 0) -> None:
        self.blocks = {} if blocks is None else blocks  # By number; each is whole, with zeros after the end.
        self.size_bytes = size_bytes

    def copied(self) -> SparseBytes:
        """Return the same bytes, independent of later writes here."""
        return SparseBytes(self.blocks.copy(), self.size_bytes)

    def block(self, number: int) -> bytes:
        return self.blocks.get(number, ZEROS)

    def read(self, offset: int, size_bytes: int) -> bytes:
        """Return up to `size_bytes` from `offset`; fewer only at the end."""
        end = min(offset + size_bytes, self.size_bytes)
        if offset >= end:
            return b""
        first, begin = divmod(offset, BLOCK_BYTES)
        last = (end - 1) // BLOCK_BYTES
        if first == last:
            return self.block(first)[begin : begin + end - offset]
        parts = [self.block(number) for number in range(first, last + 1)]
        parts[0] = parts[0][begin:]
        parts[-1] = parts[-1][: end - last * BLOCK_BYTES]
        return b"".join(parts)

    def mapped(self, size_bytes: int) -> memoryview:
        """Return the first `size_bytes` as they are now, read-only; zeros take memory only when read."""
        size_bytes = min(size_bytes, self.size_bytes)
        whole = bytearray(size_bytes)
        for number, block in self.blocks.items():
            begin = number * BLOCK_BYTES
            if begin < size_bytes:
                part = block[: size_bytes - begin]
                whole[begin : begin + len(part)] = part
        return memoryview(whole).toreadonly()

    def write(self, offset: int, data: bytes) -> None:
        """Write `data` at `offset`; a gap after the present end is zeros."""
        done = 0
        while done < len(data):
            number, begin = divmod(offset + done, BLOCK_BYTES)
            part = data[done : done + BLOCK_BYTES - begin]
            done += len(part)
            if len(part) < BLOCK_BYTES:
                old = self.block(number)
                part = b"".join((old[:begin], part, old[begin + len(part) :]))
            self.blocks[number] = part
        if data:
            self.grow(offset + len(data))

    def grow(self, size_bytes: int) -> None:
        """Extend to at least `size_bytes`, with zeros."""
        self.size_bytes = max(self.size_bytes, size_bytes)
