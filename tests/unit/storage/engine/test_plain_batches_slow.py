"""Tests over real processes, sockets, threads or time; `test_plain_batches.py` has the others."""

from __future__ import annotations

import trio

from gossipkv.environment import trio_world
from gossipkv.storage.engine import shell
from gossipkv.storage.engine._engine import Batch
from gossipkv.storage.engine.options import EngineOptions


async def test_those_who_are_woken_share_the_next_sync(tmp_path):
    """Sixteen tasks write one batch after the other, and each group after the first few has sixteen batches."""
    async with shell.open_store(tmp_path / "s", trio_world.real(), EngineOptions(segment_bytes=1 << 20)) as store:
        space, batch = store.reserve_space(), Batch()
        batch.new_space(space)
        await store.write(batch)

        async def write(number: int) -> None:
            for turn in range(20):
                await store.put(space, b"%d-%d" % (number, turn), b"v")
                assert store.get(space, b"%d-%d" % (number, turn)) == b"v"

        before = store.engine.counts.groups
        async with trio.open_nursery() as nursery:
            for number in range(16):
                nursery.start_soon(write, number)
        assert store.engine.counts.groups - before <= 20 + 4
