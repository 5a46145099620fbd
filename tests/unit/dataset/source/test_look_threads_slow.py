"""The number of threads that list sources is bounded, abandoned threads included."""

import threading

import pytest
import trio
import trio.testing

from gossipkv.dataset.source.look_threads import LookThreads
from gossipkv.environment.trio_world import RealThreads
from tests.unit.dataset.world import until


class Stalled:
    """A listing that takes until it is released."""

    def __init__(self):
        self.begun = 0
        self.go_on = threading.Event()

    def __call__(self):
        self.begun += 1
        assert self.go_on.wait(60)
        return "found"


async def abandoned(looks, own, stalled):
    """Start a listing and abandon it."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(looks.run, own, stalled)
        await until(lambda: stalled.begun)
        nursery.cancel_scope.cancel()


async def test_a_look_brings_what_it_finds():
    """The result or the error is passed on, and the place is free again."""
    looks, own = LookThreads(RealThreads()), trio.CapacityLimiter(1)
    assert await looks.run(own, lambda: 7) == 7
    with pytest.raises(ZeroDivisionError):
        await looks.run(own, lambda: 1 // 0)
    await until(lambda: own.available_tokens == 1)
    assert looks._places.borrowed_tokens == 0


async def test_one_database_has_one_look_at_a_time():
    """A second listing waits even for an abandoned one."""
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
    """A hundred databases of a store that hangs take that many threads, however often they are listed."""
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
        # A cancelled waiter for a common place has freed its own place.
        assert sum(own.available_tokens for own in owns) == 96
    finally:
        stalled.go_on.set()


async def test_a_thread_that_is_abandoned_before_it_begins():
    """The places stay taken until the thread has finished."""
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
    """Fewer hanging databases than places leave room, and waiters for their own listing take no place."""
    looks, stalled = LookThreads(RealThreads(), 2), Stalled()
    own = trio.CapacityLimiter(1)
    async with trio.open_nursery() as nursery:
        for _ in range(5):
            nursery.start_soon(looks.run, own, stalled)
        await until(lambda: stalled.begun == 1)
        assert await looks.run(trio.CapacityLimiter(1), lambda: "other") == "other"
        stalled.go_on.set()


def test_a_look_may_end_after_everything_else():
    """The thread cannot give its place back any more, and ends quietly."""
    stalled = Stalled()
    looks = []

    async def run():
        looks.append(LookThreads(RealThreads()))
        await abandoned(looks[0], trio.CapacityLimiter(1), stalled)

    trio.run(run)
    stalled.go_on.set()
    assert stalled.begun == 1
