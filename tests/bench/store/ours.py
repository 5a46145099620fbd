"""The store under the benchmark: through its Trio shell, with one space of records."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final, final

import trio

from gossipkv.environment import trio_world
from gossipkv.errors import Overloaded
from gossipkv.storage.engine import shell as storage
from tests.world.blocking_store import Batch

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable
    from pathlib import Path

    from gossipkv.storage.engine.options import EngineOptions
    from tests.bench.data import Record

POLL_S: Final = 0.01


def batch_of(space: int, records: Iterable[Record]) -> Batch:
    batch = Batch()
    for key, value in records:
        batch.put(space, key, value)
    return batch


@asynccontextmanager
async def shell(path: Path, options: EngineOptions) -> AsyncIterator[Shell]:
    """Open a store as a node has it, with a new space."""
    async with storage.open_store(path, trio_world.real(), options) as store:
        space = store.reserve_space()
        batch = Batch()
        batch.new_space(space)
        await store.write(batch)
        yield Shell(store, space)


@final
class Shell:
    def __init__(self, store: storage.Store, space: int) -> None:
        self.store = store
        self.space = space

    def get(self, key: bytes) -> bytes | None:
        return self.store.get(self.space, key)

    async def write_each(self, records: list[Record]) -> None:
        """Write one record after the other, each in its own batch."""
        write, space = self.store.write, self.space
        for key, value in records:
            batch = Batch()
            batch.put(space, key, value)
            await write(batch)

    async def write_batch(self, records: list[Record]) -> int:
        """Write all records in one batch, with retries while merges lag; return the number of refusals."""
        batch, refused = batch_of(self.space, records), 0
        while True:
            try:
                await self.store.write(batch)
            except Overloaded:
                refused += 1
                await trio.sleep(POLL_S)
            else:
                return refused

    async def idle(self) -> None:
        while (state := self.store.engine.state()).is_merging or state.begun is not None:
            await trio.sleep(POLL_S)
