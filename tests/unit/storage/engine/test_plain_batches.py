"""What most batches take: the short way into the log, and one sync for all who write at once."""

from __future__ import annotations

import pytest
import trio

from gossipkv.environment import trio_world
from gossipkv.errors import StorageError
from gossipkv.storage.engine import shell
from gossipkv.storage.engine._log import Batch
from gossipkv.storage.engine.engine import Engine
from gossipkv.storage.engine.options import Options
from tests.world.blocking_store import Store
from tests.world.simulated_files import SimulatedFiles


def test_most_batches_take_the_short_way(monkeypatch):
    """The long way is for those that need it: what is not plain, and a look at the pressure now and then."""
    files, long_way, take_it = SimulatedFiles(), [], Engine._append
    files.make_directory("/d")
    monkeypatch.setattr(Engine, "_append", lambda self, batch: long_way.append(batch) or take_it(self, batch))
    with Store.open("/d/s", files=files) as store:
        making, space = Batch(), store.reserve_space()
        making.new_space(space)
        store.write(making)
        for number in range(2000):
            store.put(space, b"%d" % number, bytes(100))
        assert len(long_way) < 10
        with pytest.raises(ValueError, match="no space"):
            store.put(space + 1, b"k", b"v")
        assert len(long_way) < 12
    with pytest.raises(StorageError, match="closed"):
        store.put(space, b"k", b"v")


async def test_those_who_are_woken_share_the_next_sync(tmp_path):
    """Sixteen tasks that write one batch after the other: a group has all sixteen, but for the first ones."""
    async with shell.open_store(tmp_path / "s", trio_world.real(), Options(segment_bytes=1 << 20)) as store:
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
