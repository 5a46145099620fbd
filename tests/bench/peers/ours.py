"""GossipKV's sorted file, plain and in lz4 blocks."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from gossipkv.storage.sorted_file import SortedFile
from tests.bench.peers.base import Engine
from tests.world.sorted_files import build

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.bench.data import Record

ENOUGH_MEMORY_BYTES = 4 << 30  # The peers sort in memory, so GossipKV may as well.


class GossipKV(Engine):
    name = "GossipKV"
    settings = "one sorted file, uncompressed, page checksums on"
    compression: ClassVar[str] = "none"

    def __init__(self, path: Path) -> None:
        self.file = SortedFile(path)
        self.get = self.file.get
        self.get_many = self.file.get_many
        self.scan = self.file.scan

    @classmethod
    def build(cls, path: Path, records: list[Record]) -> None:
        build(path, records, memory_bytes=ENOUGH_MEMORY_BYTES, compression=cls.compression)

    def first(self, start: bytes, count: int) -> list[Record]:
        return list(self.file.scan(start, limit=count))

    def scan(self) -> Iterator[Record]:
        return self.file.scan()

    def close(self) -> None:
        self.file.close()


class GossipKVCompressed(GossipKV):
    """A sorted file in lz4 blocks of 4 KiB."""

    name = "GossipKV lz4"
    settings = "one sorted file in lz4 blocks of 4 KiB, the block cache at its default size"
    compression = "lz4"
