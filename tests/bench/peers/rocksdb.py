"""RocksDB through rocksdict: read through its block cache, plain and in lz4 blocks."""

from __future__ import annotations

from itertools import islice
from operator import itemgetter
from typing import TYPE_CHECKING, ClassVar

from tests.bench.peers.base import Engine

try:
    import rocksdict
except ImportError:
    rocksdict = None

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.bench.data import Record

CACHE_BYTES = 2 << 30
BLOCK_BYTES = 4 << 10
BLOOM_BITS_PER_KEY = 10


class RocksDB(Engine):
    """RocksDB with everything in the block cache, as most deployments read."""

    name = "RocksDB"
    settings = (
        "raw mode, read-only, one ingested sorted file, no compression, blocks of 4 KiB, full bloom filter of 10 bits, "
        "2 GiB block cache (holds all); built by sorting, SstFileWriter and a moving ingest, synced"
    )
    compressed: ClassVar[bool] = False
    cache_bytes: ClassVar[int] = CACHE_BYTES

    def __init__(self, path: Path) -> None:
        self._db = rocksdict.Rdict(str(path), self.options(), access_type=rocksdict.AccessType.read_only())
        self.get = self._db.get
        self.get_many = self._db.get
        self.scan = self._db.items

    @classmethod
    def missing(cls) -> str | None:
        return "pip install rocksdict" if rocksdict is None else None

    @classmethod
    def blocks(cls) -> rocksdict.BlockBasedOptions:
        blocks = rocksdict.BlockBasedOptions()
        blocks.set_block_size(BLOCK_BYTES)
        blocks.set_bloom_filter(BLOOM_BITS_PER_KEY, False)  # noqa: FBT003  # Positional only.
        blocks.set_block_cache(rocksdict.Cache(cls.cache_bytes))
        return blocks

    @classmethod
    def options(cls) -> rocksdict.Options:
        options = rocksdict.Options(raw_mode=True)
        options.set_block_based_table_factory(cls.blocks())
        kind = rocksdict.DBCompressionType
        options.set_compression_type(kind.lz4() if cls.compressed else kind.none())
        return options

    @classmethod
    def build(cls, path: Path, records: list[Record]) -> None:
        table = str(path.with_suffix(".sst"))
        writer = rocksdict.SstFileWriter(cls.options())
        writer.open(table)
        for key, value in sorted(records, key=itemgetter(0)):
            writer[key] = value
        writer.finish()
        database = rocksdict.Rdict(str(path), cls.options())
        move = rocksdict.IngestExternalFileOptions()
        move.set_move_files(True)
        database.ingest_external_file([table], move)
        database.close()

    def scan(self) -> Iterator[Record]:
        return self._db.items()

    def first(self, start: bytes, count: int) -> list[Record]:
        return list(islice(self._db.items(from_key=start), count))

    def close(self) -> None:
        self._db.close()


class RocksDBCompressed(RocksDB):
    """RocksDB in lz4, with every block unpacked in the cache."""

    name = "RocksDB lz4"
    settings = "as RocksDB with lz4, the 2 GiB cache holding every block unpacked"
    compressed = True
