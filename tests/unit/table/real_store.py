"""A data directory with tables, as a node leaves it: a store made by the engine, and its NODE record."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING

from gossipkv.environment.real_files import RealFiles
from gossipkv.node.directory import DataDirectory
from gossipkv.node.forgotten import TABLES
from gossipkv.storage.engine._engine import Batch
from gossipkv.storage.engine.manifest import segment_path
from gossipkv.storage.engine.options import EngineOptions
from tests.world.blocking_store import Store

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gossipkv.storage.engine.manifest import StoreManifest

FILES = RealFiles()
SEGMENT_BYTES = 1 << 20  # The minimum that a node accepts.
BATCH_AT = 4096 + 32 + 8  # The offset after the header and the first frame of the life.
RECORDS = {f"key {number:03}".encode(): b"value" * number for number in range(50)}


def write_store(path: Path, records: Mapping[bytes, bytes] = RECORDS, seed: int = 7) -> StoreManifest:
    """Write records to a new space of the store at `path`, which is made if missing."""
    with Store.open(path, random=random.Random(seed), options=EngineOptions(segment_bytes=SEGMENT_BYTES)) as store:
        batch, space = Batch(), store.reserve_space()
        batch.new_space(space)
        for key, value in records.items():
            batch.put(space, key, value)
        store.write(batch)
        return store.manifest


def keep_log(path: Path) -> list[Path]:
    """Write until log remains in runs that only followers need; return the paths of these segments."""
    with Store.open(path, options=EngineOptions(segment_bytes=SEGMENT_BYTES)) as store:
        space, number = store.engine.first_space, 0
        while len(store.manifest.kept) < 3:
            batch, number = Batch(), number + 1
            for key in RECORDS:
                batch.put(space, b"log %d of " % number + key, bytes(2_000))
            store.write(batch)
        return [Path(segment_path(path, name.number)) for name in store.manifest.kept]


def read_store(path: Path) -> dict[bytes, bytes]:
    """Return all records of the first space of a store, in a life of its own."""
    with Store.open(path, create=False) as store:
        records, following = store.scan(1)
        assert following is None
        return dict(records)


def make_tables(data: Path, *, cluster: str = "gossipkv", node: str = "n1") -> StoreManifest:
    """Make a data directory with tables, as a node would; return the manifest of the store."""
    with DataDirectory.open(data, FILES, cluster=cluster, random=random.Random(1), node=node) as directory:
        manifest = write_store(data / TABLES)
        directory.keep(store=manifest.store, life=manifest.life)
    return manifest
