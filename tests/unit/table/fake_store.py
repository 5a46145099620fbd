"""A store for node tests: its manifest is real, and its calls are recorded."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING

import trio

from gossipkv.errors import StorageError
from gossipkv.storage.directories import make_directory
from gossipkv.storage.engine.manifest import SegmentName, StoreManifest, read_manifest, write_manifest

if TYPE_CHECKING:
    from gossipkv.errors import Detail


class NoTables:
    def to_map(self) -> dict[str, Detail]:
        return {"state": "none", "why": None, "store": None, "life": 0}


def manifest_of(store: int, life: int) -> StoreManifest:
    first = SegmentName(1, 1)
    return StoreManifest(
        store=store, life=life, spaces=frozenset(), next_space=1, next_merge=1, recovery_floor=first, log_floor=first
    )


def put_store(files, path, store: int, life: int) -> None:
    make_directory(files, path)
    write_manifest(files, path, manifest_of(store, life))


class FakeStore:
    def __init__(self, manifest: StoreManifest) -> None:
        self.manifest = manifest
        self.closed: str | None = None
        self.log_damage: str | None = None
        self._failed = trio.Event()

    async def failed(self):
        await self._failed.wait()

    def fail(self, why):
        self.closed = why
        self._failed.set()

    first_space = None

    def get(self, space, key):
        raise AssertionError(f"space {space} has no {key!r}, since it is not there")

    def describe(self):
        return {"groups": 3, "syncs": 2, "sync_ns": 1_000}


class FakeStores:
    """Opens stores; as in a real one, the manifest gets the next life first. A new store has the id `new`."""

    def __init__(self, new: int = 0xABC) -> None:
        self.new = new
        self.damage: str | None = None  # The damage that the next stores report.
        self.open: list[FakeStore] = []
        self.ends: list[int] = []  # Lives that were closed properly.
        self.refuses: list[BaseException] = []  # Errors of the next openings, before anything is written.
        self.fails: list[BaseException] = []  # The same, after the manifest has the next life.

    @contextlib.asynccontextmanager
    async def __call__(self, path, environment, *, expected, create):
        if self.refuses:
            raise self.refuses.pop(0)
        files = environment.files

        def begin() -> StoreManifest:
            try:
                known = read_manifest(files, path)
            except FileNotFoundError:
                if not create:
                    raise StorageError("no store") from None
                put_store(files, path, self.new, 1)
                return read_manifest(files, path)
            assert expected is not None, "a store that is there must be expected"
            assert (known.store, known.life) == expected
            write_manifest(files, path, replace(known, life=known.life + 1))
            return read_manifest(files, path)

        manifest = await environment.threads.run(begin)
        if self.fails:
            raise self.fails.pop(0)
        store = FakeStore(manifest)
        store.log_damage = self.damage
        self.open.append(store)
        try:
            yield store
            self.ends.append(manifest.life)
        finally:
            self.open.remove(store)
