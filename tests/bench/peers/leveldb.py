"""LevelDB through plyvel."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from tests.bench.peers.base import Engine

try:
    import plyvel
except ImportError:
    plyvel = None

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.bench.data import Record

CACHE_BYTES = 2 << 30
BLOOM_BITS_PER_KEY = 10
BATCH = 10_000


class LevelDB(Engine):
    """Compacted into its lowest level before it is read."""

    name = "LevelDB"
    settings = "compression=None, bloom filter of 10 bits, 2 GiB cache (holds all), compacted after filling"
    batched = False

    def __init__(self, path: Path) -> None:
        self._db = plyvel.DB(
            str(path), compression=None, lru_cache_size=CACHE_BYTES, bloom_filter_bits=BLOOM_BITS_PER_KEY
        )
        self.get = self._db.get

    @classmethod
    def missing(cls) -> str | None:
        return "pip install plyvel (no wheel for Python 3.13)" if plyvel is None else None

    @classmethod
    def build(cls, path: Path, records: list[Record]) -> None:
        database = plyvel.DB(
            str(path),
            create_if_missing=True,
            compression=None,
            write_buffer_size=64 << 20,
            bloom_filter_bits=BLOOM_BITS_PER_KEY,
        )
        for begin in range(0, len(records), BATCH):
            with database.write_batch() as batch:
                for key, value in records[begin : begin + BATCH]:
                    batch.put(key, value)
        database.compact_range()
        database.close()

    def scan(self) -> Iterator[Record]:
        return iter(self._db.iterator())

    def first(self, start: bytes, count: int) -> list[Record]:
        return list(islice(self._db.iterator(start=start), count))

    def close(self) -> None:
        self._db.close()
