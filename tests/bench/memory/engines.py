"""The contestants, each set up by its own rules for data that is larger than memory."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from tests.bench.peers.lmdb import Lmdb
from tests.bench.peers.ours import GossipKV, GossipKVCompressed
from tests.bench.peers.rocksdb import RocksDB
from tests.bench.peers.tinycdb import TinyCDB

try:
    import rocksdict
except ImportError:
    rocksdict = None

if TYPE_CHECKING:
    from typing import Self

    from tests.bench.data import Record
    from tests.bench.peers.base import Engine

MADV_RANDOM = 1
HASH_TABLE_RATIO = 0.75  # The ratio of entries to buckets in a block, as in `OptimizeForPointLookup`.


class LmdbShort(Lmdb):
    settings = "MDB_NORDAHEAD (readahead=False), read-only, lock=False, one long read transaction"

    def __init__(self, path: Path) -> None:
        super().__init__(path, readahead=False)


class RocksDBShort(RocksDB):
    """RocksDB with direct reads and a block cache that takes the available memory."""

    settings = (
        "direct reads, block cache of four fifths of the memory less filters and indexes (which stay in memory), "
        "blocks of 4 KiB with a hash index each, full bloom filter of 10 bits, one ingested sorted file, no compression"
    )

    @classmethod
    def blocks(cls) -> rocksdict.BlockBasedOptions:
        blocks = super().blocks()
        blocks.set_data_block_index_type(rocksdict.DataBlockIndexType.binary_and_hash())
        blocks.set_data_block_hash_ratio(HASH_TABLE_RATIO)
        return blocks

    @classmethod
    def options(cls) -> rocksdict.Options:
        options = super().options()
        options.set_use_direct_reads(enabled=True)
        return options


class RocksDBShortCompressed(RocksDBShort):
    name = "RocksDB lz4"
    settings = "as RocksDB, its blocks in lz4; the cache has them unpacked"
    compressed = True


class TinyCDBShort(TinyCDB):
    settings = "its mapping advised MADV_RANDOM"

    @classmethod
    def open(cls, path: Path, records: list[Record]) -> Self:
        engine = super().open(path, records)
        advise_random(path)
        return engine


def advise_random(path: Path) -> None:
    """Advise the kernel to read only touched pages, for every mapping of this file in this process."""
    libc = ctypes.CDLL(None, use_errno=True)
    name = str(path.resolve())
    mappings = [line.split() for line in Path("/proc/self/maps").read_text().splitlines() if line.endswith(name)]
    assert mappings, f"{name} is not mapped"
    for words in mappings:
        first, last = (int(address, 16) for address in words[0].split("-"))
        if libc.madvise(ctypes.c_void_p(first), ctypes.c_size_t(last - first), MADV_RANDOM) != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


class GossipKVShort(GossipKV):
    """GossipKV in paged mode, as a node has files that do not fit in memory."""

    settings: ClassVar[str] = "one sorted file, uncompressed, page checksums on; paged, its index read ahead"

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.file.set_paged(True)
        self.file.prewarm(*self.file.index_range)


class GossipKVShortCompressed(GossipKVCompressed):
    """GossipKV in lz4, which is always paged."""

    settings: ClassVar[str] = "one sorted file in lz4 blocks of 4 KiB, block cache at its default; its index read ahead"

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.file.prewarm(*self.file.index_range)


PLAIN: tuple[type[Engine], ...] = (GossipKVShort, LmdbShort, RocksDBShort, TinyCDBShort)
COMPRESSED: tuple[type[Engine], ...] = (GossipKVShortCompressed, RocksDBShortCompressed)
ALL = {engine.name: engine for engine in (*PLAIN, *COMPRESSED)}
