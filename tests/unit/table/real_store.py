"""A data directory with tables, as a node leaves them: a store that the engine made, and NODE that names it."""

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
SEGMENT_BYTES = 1 << 20  # The least that a node takes.
BATCH_AT = 4096 + 32 + 8  # Behind the header, and the frame with which the life begins.
RECORDS = {f"key {number:03}".encode(): b"value" * number for number in range(50)}


def write_store(path: Path, records: Mapping[bytes, bytes] = RECORDS, seed: int = 7) -> StoreManifest:
    """Write records to a space of their own in the store at `path`, which is made if it is not there."""
    with Store.open(path, random=random.Random(seed), options=EngineOptions(segment_bytes=SEGMENT_BYTES)) as store:
        batch, space = Batch(), store.reserve_space()
        batch.new_space(space)
        for key, value in records.items():
            batch.put(space, key, value)
        store.write(batch)
        return store.manifest


def keep_log(path: Path) -> list[Path]:
    """Write to a store until log is in runs that its followers alone need; the segments of that."""
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
    """Have a node live in `data`, which has tables."""
    with DataDirectory.open(data, FILES, cluster=cluster, random=random.Random(1), node=node) as directory:
        manifest = write_store(data / TABLES)
        directory.keep(store=manifest.store, life=manifest.life)
    return manifest
