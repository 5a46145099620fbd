"""Who takes part: ourselves always, the peers that this machine has, and a note for each that it has not."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from tests.bench import machine, verification
from tests.bench.peers.leveldb import LevelDB
from tests.bench.peers.lmdb import Lmdb
from tests.bench.peers.ours import GossipKV, GossipKVCompressed
from tests.bench.peers.python_dict import PythonDict
from tests.bench.peers.rocksdb import RocksDB, RocksDBCompressed, RocksDBCompressedSmallCache, RocksDBMapped
from tests.bench.peers.tinycdb import TinyCDB

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.bench.data import Data
    from tests.bench.peers.base import Engine

# Ours comes first everywhere.
READ_SMALL = (GossipKV, Lmdb, TinyCDB, PythonDict, RocksDB, RocksDBMapped, LevelDB)
READ_LARGE = (GossipKV, Lmdb, TinyCDB, RocksDB)
READ_COMPRESSED = (GossipKVCompressed, Lmdb, RocksDBCompressed, RocksDBCompressedSmallCache)
BUILD = (GossipKV, RocksDB, Lmdb, TinyCDB)
ALL = (*READ_SMALL, GossipKVCompressed, RocksDBCompressed, RocksDBCompressedSmallCache)
OURS = frozenset({GossipKV.name, GossipKVCompressed.name})


class Field:
    """The engines that can run here and were asked for."""

    def __init__(self, peers: frozenset[str] | None) -> None:
        """With `peers` None, all that are installed; what is missing stands in `notes`."""
        self.notes: list[str] = []
        self.present: list[type[Engine]] = []
        for engine in ALL:
            if peers is not None and engine.name not in peers | OURS:
                continue
            missing = engine.missing()
            if missing is None:
                self.present.append(engine)
            else:
                self.notes.append(f"{engine.name} takes no part; it needs: {missing}")

    def of(self, wanted: tuple[type[Engine], ...]) -> list[type[Engine]]:
        """Those of `wanted` that are here, in the order of `wanted`."""
        return [engine for engine in wanted if engine in self.present]


@contextmanager
def opened(engines: list[type[Engine]], data: Data, directory: Path) -> Iterator[list[Engine]]:
    """Every engine filled, opened and proven right, all at once in this process."""
    with ExitStack() as stack:
        ready = []
        for number, engine in enumerate(engines):
            machine.say(f"  filling and checking {engine.name}")
            path = directory / f"{number}.gkv"
            engine.build(path, data.records)
            instance = engine.open(path, data.records)
            stack.callback(instance.close)
            ready.append(instance)
        for instance in ready:
            verification.check(instance, data)
        yield ready
