"""The store as the benchmark speaks to it: blocking, or through its Trio shell, with one space of records."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final, final

import trio

from gossipkv.environment import trio_world
from gossipkv.errors import Overloaded
from gossipkv.storage.engine import shell as storage
from tests.world.blocking_store import Batch, Store

if TYPE_CHECKING:
    import random
    from collections.abc import AsyncIterator, Iterable
    from pathlib import Path, PurePath
    from typing import Self

    from gossipkv.environment.seam import Files
    from gossipkv.storage.engine.options import Options
    from tests.bench.data import Record

POLL_S: Final = 0.01
MEMTABLES: Final = 2  # One that is written to, and one that is merged.


def batch_of(space: int, records: Iterable[Record]) -> Batch:
    """A batch that puts all of them."""
    batch = Batch()
    for key, value in records:
        batch.put(space, key, value)
    return batch


@final
class Blocking:
    """The blocking store at `path`, made anew or opened again, and its first space."""

    def __init__(
        self,
        path: PurePath,
        options: Options,
        *,
        files: Files | None = None,
        chance: random.Random | None = None,
    ) -> None:
        self.store = Store.open(path, files=files, random=chance, options=options)
        self.space = min(self.store.engine.spaces, default=0) or self._make_space()

    def _make_space(self) -> int:
        space = self.store.reserve_space()
        batch = Batch()
        batch.new_space(space)
        self.store.write(batch)
        return space

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.store.close()

    def get(self, key: bytes) -> bytes | None:
        """The value of a key."""
        return self.store.get(self.space, key)

    def write_batch(self, records: list[Record]) -> None:
        """All at once, or nothing."""
        self.store.write(batch_of(self.space, records))

    def maintain(self) -> None:
        """Do what there is to do beside the writing, until nothing is left."""
        while self.store.maintain():
            pass


@asynccontextmanager
async def shell(path: Path, options: Options) -> AsyncIterator[Shell]:
    """The store as a node has it, and a new space."""
    async with storage.open_store(path, trio_world.real(), options) as store:
        space = store.reserve_space()
        batch = Batch()
        batch.new_space(space)
        await store.write(batch)
        yield Shell(store, space)


@final
class Shell:
    """A store that is open under Trio."""

    def __init__(self, store: storage.Store, space: int) -> None:
        self.store = store
        self.space = space

    def get(self, key: bytes) -> bytes | None:
        """The value of a key."""
        return self.store.get(self.space, key)

    async def write_each(self, records: list[Record]) -> None:
        """One record after the other, each on its own."""
        write, space = self.store.write, self.space
        for key, value in records:
            batch = Batch()
            batch.put(space, key, value)
            await write(batch)

    async def write_batch(self, records: list[Record]) -> int:
        """All at once, or nothing, tried again while merges are behind; how often it was refused."""
        batch, refused = batch_of(self.space, records), 0
        while True:
            try:
                await self.store.write(batch)
            except Overloaded:
                refused += 1
                await trio.sleep(POLL_S)
            else:
                return refused

    def merged_bytes(self) -> int:
        """What the merge into the oldest run has to read, while there is one; else 0."""
        engine = self.store.engine
        begun = engine.state().begun
        if begun is None or begun.below:
            return 0
        return sum(run.size_bytes for run in [*engine.manifest.young, engine.manifest.oldest][-begun.count - 1 :])

    async def idle(self) -> None:
        """Until nothing is written out or merged."""
        while (state := self.store.engine.state()).is_merging or state.begun is not None:
            await trio.sleep(POLL_S)
