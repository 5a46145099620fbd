"""Trio's loop wakes in time even if another component sleeps in its place."""

import os
import select
import signal
import threading
import time
from contextlib import suppress

import outcome
import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from gossipkv.environment.trio_loop import TrioLoop, find_loop

PATIENCE_S = 60
LONG_S = 1000


class Sleeper:
    """Sleep as a serving loop without connections does."""

    def __init__(self, loop):
        self.loop = loop
        self.slept_s = []
        loop.sleep_by(self.rest)

    def rest(self, seconds):
        self.slept_s.append(seconds)
        select.select([self.loop.fileno()], [], [], seconds)


@pytest.fixture
async def sleeper():
    """Yield a sleeper in the place of this test's loop."""
    loop = await find_loop()
    assert loop is not None, "this Trio is not the one that is known: see gossipkv/environment/trio_loop.py"
    sleeper = Sleeper(loop)
    yield sleeper
    loop.close()
    assert sleeper.slept_s


async def test_it_sleeps_until_the_next_deadline(sleeper):
    """The loop does not sleep while a task can run."""
    with trio.fail_after(PATIENCE_S):
        while not any(0 < seconds <= 0.05 for seconds in sleeper.slept_s):  # A busy machine may miss the moment.
            before = trio.current_time()
            await trio.sleep(0.05)
            assert trio.current_time() >= before + 0.05
    sleeper.slept_s.clear()
    for _ in range(5):
        await trio.lowlevel.checkpoint()
    assert sleeper.slept_s == [0] * 5


async def test_a_descriptor_that_is_readable_ends_the_sleep(sleeper):
    """A task waits for the descriptor."""
    reading, writing = os.pipe()
    try:
        with trio.fail_after(PATIENCE_S):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(trio.lowlevel.wait_readable, reading)
                await wait_all_tasks_blocked()
                threading.Timer(0.01, os.write, (writing, b"x")).start()
    finally:
        os.close(reading)
        os.close(writing)


async def test_a_thread_that_is_done_ends_the_sleep(sleeper):
    """The result arrives at once, whatever the next deadline."""
    with trio.fail_after(PATIENCE_S):
        assert await trio.to_thread.run_sync(lambda: time.sleep(0.01) or 7) == 7


async def test_a_signal_ends_the_sleep(sleeper):
    with trio.fail_after(PATIENCE_S), trio.open_signal_receiver(signal.SIGTERM) as signals:
        threading.Timer(0.01, os.kill, (os.getpid(), signal.SIGTERM)).start()
        assert await anext(signals) == signal.SIGTERM


def test_an_interrupt_ends_the_sleep():
    """Ctrl-C is raised in the main task."""

    async def interrupted():  # Interrupts as early as possible; on a busy machine the timer is early.
        threading.Timer(0.01, os.kill, (os.getpid(), signal.SIGINT)).start()
        await trio.sleep(PATIENCE_S)

    async def main():
        Sleeper(await find_loop())
        with pytest.raises(KeyboardInterrupt):
            await interrupted()
        return True

    assert trio.run(main)


async def test_a_cancelled_task_goes_on_at_once(sleeper):
    """The loop does not sleep while the cancelled task can run."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.sleep_forever)
        await wait_all_tasks_blocked(0.01)
        nursery.cancel_scope.cancel()


async def test_a_sleeper_that_returns_early_is_asked_again(sleeper):
    """`wait_all_tasks_blocked` does not return early."""
    sleeper.loop.sleep_by(sleeper.slept_s.append)
    before = time.monotonic()
    await wait_all_tasks_blocked(0.02)
    assert time.monotonic() >= before + 0.02
    assert len(sleeper.slept_s) > 2


async def test_it_is_left_as_it_was():
    """Trio has its own epoll again, and a second search meanwhile finds none."""
    loop = await find_loop()
    assert isinstance(loop, TrioLoop)
    assert await find_loop() is None
    loop.close()
    again = await find_loop()
    assert isinstance(again, TrioLoop)
    again.close()
    await trio.lowlevel.checkpoint()


def test_virtual_time_jumps_as_it_did():
    """The loop does not sleep under a test's clock."""

    async def main():
        sleeper = Sleeper(await find_loop())
        with trio.fail_after(2 * LONG_S):
            await trio.sleep(LONG_S)
        return sleeper.slept_s

    before = time.monotonic()
    assert set(trio.run(main, clock=MockClock(autojump_threshold=0))) == {0}
    assert time.monotonic() < before + PATIENCE_S


@pytest.mark.parametrize("name", ["trio._core._moved", "trio._core._exceptions"])
async def test_a_trio_that_is_not_known_is_left_alone(name):
    """The module is gone, or lacks the attribute."""
    assert await find_loop(name) is None


async def test_a_trio_that_does_not_ask_its_epoll_is_left_alone(monkeypatch):
    """A loop that Trio does not poll cannot sleep for it."""
    manager = trio._core._run.GLOBAL_RUN_CONTEXT.runner.io_manager
    own = manager._epoll
    monkeypatch.setattr(TrioLoop, "poll", lambda self, timeout, most: own.poll(timeout, most))
    assert await find_loop() is None
    assert manager._epoll is own


async def test_a_cancelled_search_leaves_nothing():
    manager = trio._core._run.GLOBAL_RUN_CONTEXT.runner.io_manager
    with trio.CancelScope() as scope:
        scope.cancel()
        await find_loop()
    assert scope.cancelled_caught
    assert isinstance(manager._epoll, select.epoll)


def test_a_guest_is_left_alone():
    """The host of a guest sleeps."""
    todo, done = [], []
    trio.lowlevel.start_guest_run(
        find_loop,
        run_sync_soon_threadsafe=todo.append,
        done_callback=done.append,
    )
    until = time.monotonic() + PATIENCE_S
    while not done and time.monotonic() < until:
        with suppress(IndexError):
            todo.pop(0)()
    assert done == [outcome.Value(None)]
