"""Threads that look are counted, also those for which nobody waits any more."""

import threading

import pytest
import trio
import trio.testing

from gossipkv.dataset.source.look_threads import LookThreads
from gossipkv.environment.trio_world import RealThreads
from tests.unit.dataset.world import until


class Stalled:
    """A look that takes until it is let go."""

    def __init__(self):
        self.begun = 0
        self.go_on = threading.Event()

    def __call__(self):
        self.begun += 1
        assert self.go_on.wait(60)
        return "found"


async def abandoned(looks, own, stalled):
    """A look that has begun and is waited for no more."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(looks.run, own, stalled)
        await until(lambda: stalled.begun)
        nursery.cancel_scope.cancel()


async def test_a_look_brings_what_it_finds():
    """Or raises what it meets; then its place is free."""
    looks, own = LookThreads(RealThreads()), trio.CapacityLimiter(1)
    assert await looks.run(own, lambda: 7) == 7
    with pytest.raises(ZeroDivisionError):
        await looks.run(own, lambda: 1 // 0)
    await until(lambda: own.available_tokens == 1)
    assert looks._places.borrowed_tokens == 0


async def test_one_database_has_one_look_at_a_time():
    """A second one waits; so it does when the first one was abandoned, until that ends."""
    looks, own, stalled = LookThreads(RealThreads()), trio.CapacityLimiter(1), Stalled()
    await abandoned(looks, own, stalled)
    for _ in range(5):
        with trio.move_on_after(0.01):
            await looks.run(own, stalled)
    assert stalled.begun == 1
    assert looks._places.borrowed_tokens == 1
    stalled.go_on.set()
    assert await looks.run(own, stalled) == "found"


async def test_all_together_have_so_many():
    """A hundred databases of a store that hangs come to that many threads, however often they are looked at."""
    looks, stalled = LookThreads(RealThreads(), 4), Stalled()
    owns = [trio.CapacityLimiter(1) for _ in range(100)]
    try:
        for _ in range(3):
            async with trio.open_nursery() as nursery:
                for own in owns:
                    nursery.start_soon(looks.run, own, stalled)
                await trio.testing.wait_all_tasks_blocked()
                nursery.cancel_scope.cancel()
        await until(lambda: stalled.begun == 4)
        assert looks._places.borrowed_tokens == 4
        # Whoever was cancelled while waiting for a common place has given its own back.
        assert sum(own.available_tokens for own in owns) == 96
    finally:
        stalled.go_on.set()


async def test_a_thread_that_is_abandoned_before_it_begins():
    """Its places stay taken until it has looked, too."""
    gate = threading.Event()

    class Late:
        async def run(self, function, **how):
            return await trio.to_thread.run_sync(lambda: gate.wait(60) and function(), **how)

    looks, own = LookThreads(Late()), trio.CapacityLimiter(1)
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(looks.run, own, lambda: 7)
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
        assert own.available_tokens == 0
        assert looks._places.borrowed_tokens == 1
    finally:
        gate.set()
    await until(lambda: own.available_tokens == 1)
    assert looks._places.borrowed_tokens == 0


async def test_databases_that_hang_leave_room_for_others():
    """As long as they are fewer than the places, and whoever waits for its own look takes none."""
    looks, stalled = LookThreads(RealThreads(), 2), Stalled()
    own = trio.CapacityLimiter(1)
    async with trio.open_nursery() as nursery:
        for _ in range(5):
            nursery.start_soon(looks.run, own, stalled)
        await until(lambda: stalled.begun == 1)
        assert await looks.run(trio.CapacityLimiter(1), lambda: "other") == "other"
        stalled.go_on.set()


def test_a_look_may_end_after_everything_else():
    """Its thread finds nobody to give its place back to, and ends in peace."""
    stalled = Stalled()
    looks = []

    async def run():
        looks.append(LookThreads(RealThreads()))
        await abandoned(looks[0], trio.CapacityLimiter(1), stalled)

    trio.run(run)
    stalled.go_on.set()
    assert stalled.begun == 1
