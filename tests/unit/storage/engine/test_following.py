"""Followers of a store's log under Trio are read for in threads, and told when the log was removed."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
import trio

from gossipkv.errors import GossipKVError, StorageError
from gossipkv.storage.engine._engine import PUT
from gossipkv.storage.engine.log_reader import Slice
from gossipkv.storage.engine.reading import BelowFloor
from tests.unit.storage.engine.shell_world import TINY, Inline, World, made_space, put
from tests.world.faulty_files import Action, Fault, FaultyFiles
from tests.world.simulated_files import SimulatedFiles

WIDE = replace(TINY, segment_bytes=64 << 10, table_log=1)


class Beside(Inline):
    """Counts the slices that threads read, and calls a hook before each."""

    def __init__(self):
        super().__init__()
        self.slices = 0
        self.before = trio.lowlevel.checkpoint

    async def run(self, function, *arguments, limiter=None, abandon_on_cancel=False):
        if getattr(function, "__func__", None) is Slice.read:
            self.slices += 1
            await self.before()
        return await super().run(function, *arguments)


async def filled(store, space, least):
    """Write until the log begins after a position."""
    for number in itertools.count():
        await store.write(put(space, b"%d" % number, bytes(2000)))
        if store.engine.log_floor > least:
            return


async def test_a_follower_is_read_for_beside_the_loop(autojump_clock):
    """A follower far behind is read for in threads, slice by slice; at the end of the log no thread is needed."""
    world = World(options=WIDE)
    world.threads = Beside()
    async with world.open() as store:
        space = await made_space(store)
        cursor, found = store.follow({space}, store.engine.synced_position), []
        written = [await store.write(put(space, b"%d" % number, bytes(2000))) for number in range(25)]
        while (answer := await store.read_log(cursor, most_bytes=5000))[0]:
            found += answer[0]
        assert found == [(at, [(PUT, space, b"%d" % number, bytes(2000))]) for number, at in enumerate(written)]
        assert answer == ([], store.engine.synced_position)
        slices = world.threads.slices
        assert slices >= 8
        with trio.fail_after(1):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(store.write, put(space, b"next", b"1"))
                await store.wait(cursor.position + 1)
        assert await store.read_log(cursor) == (
            [(cursor.position, [(PUT, space, b"next", b"1")])], store.engine.synced_position
        )  # fmt: skip
        assert world.threads.slices == slices


async def test_the_log_is_let_go_of_meanwhile(autojump_clock):
    """A segment is removed or reused during the read, so the follower is told that the log begins later."""
    world = World(options=WIDE)
    world.threads = Beside()
    async with world.open() as store:
        space = await made_space(store)
        cursor = store.follow({space}, 0)
        for number in range(20):
            await store.write(put(space, b"%d" % number, bytes(2000)))

        async def let_go():
            await filled(store, space, 40)
            await trio.sleep(10)

        world.threads.before = let_go
        refusal = None
        try:
            await store.read_log(cursor)
        except GossipKVError as error:
            refusal = error
        assert isinstance(refusal, BelowFloor)
        assert refusal.details == {"floor": store.engine.log_floor}
        assert store.log_damage is None
        assert world.threads.slices == 1
        with pytest.raises(BelowFloor):
            await store.read_log(cursor)


async def test_a_log_that_the_system_refuses(autojump_clock):
    """The error names the store; the cursor stays, and the next read succeeds."""
    faulty = FaultyFiles(SimulatedFiles())
    async with World(faulty).open() as store:
        space = await made_space(store)
        cursor = store.follow({space}, store.engine.synced_position)
        at = await store.write(put(space, b"a", b"1"))
        faulty.strike(Fault(0, Action.FAIL, kinds={"pread"}))
        with pytest.raises(StorageError, match="the log cannot be read"):
            await store.read_log(cursor)
        assert await store.read_log(cursor) == ([(at, [(PUT, space, b"a", b"1")])], at)
