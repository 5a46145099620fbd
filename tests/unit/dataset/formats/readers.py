"""A reader of bytes in memory, which records its reads and refuses reads that no file could answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gossipkv.errors import SourceChanged

if TYPE_CHECKING:
    from collections.abc import Iterator

CHUNK_BYTES = 256 << 10


class MemoryReader:
    """The part of `gossipkv.dataset.source.reader.SourceReader` that formats use."""

    def __init__(
        self, data: bytes, name: str = "part-00000", *, listed_bytes: int | None = None, chunk_bytes: int = CHUNK_BYTES
    ) -> None:
        self.data = data
        self.name = name
        self.size_bytes = len(data) if listed_bytes is None else listed_bytes
        self.chunk_bytes = chunk_bytes
        self.reads: list[tuple[int, int]] = []

    def read_at(self, offset: int, size_bytes: int) -> bytes:
        """Return exactly so many bytes; a read beyond the listed size is a defect of the format, not of the file."""
        assert offset >= 0
        assert size_bytes >= 0
        assert offset + size_bytes <= self.size_bytes, f"asked for {offset} + {size_bytes} of {self.size_bytes}"
        self.reads.append((offset, size_bytes))
        found = self.data[offset : offset + size_bytes]
        if len(found) < size_bytes:
            raise SourceChanged(f"{self.name}: it ends at byte {len(self.data):,}", {"file": self.name})
        return found

    def chunks(self, start: int = 0) -> Iterator[bytes]:
        for offset in range(start, self.size_bytes, self.chunk_bytes):
            yield self.read_at(offset, min(self.chunk_bytes, self.size_bytes - offset))
