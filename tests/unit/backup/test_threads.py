"""Places that never answer: a cancelled caller waits for a while, and leaves the thread."""

import threading

import pytest
import trio

from gossipkv.backup.threads import MAX_THREADS, PatientThreads


class Stuck:
    """Threads that wait until they are released; Trio's time moves by `autojump_clock`."""

    def __init__(self):
        self.release = threading.Event()

    async def run(self, function, *arguments, limiter, abandon_on_cancel):
        assert abandon_on_cancel
        async with limiter:
            begun = threading.Event()
            threading.Thread(target=lambda: (begun.set(), function(*arguments)), daemon=True).start()
            begun.wait()
            await trio.sleep_forever()


async def test_a_thread_that_hangs_is_left(autojump_clock):
    stuck = Stuck()
    threads = PatientThreads(stuck)
    began = trio.current_time()
    with trio.move_on_after(1):
        await threads.run(stuck.release.wait)
    assert trio.current_time() - began == pytest.approx(6, abs=0.1)
    with trio.move_on_after(1):
        await threads.run(stuck.release.wait, abandon_on_cancel=True)
    assert trio.current_time() - began == pytest.approx(7, abs=0.1)
    stuck.release.set()


async def test_they_are_few(autojump_clock, nursery):
    """Hanging ones of backups leave the other threads of the process alone."""
    stuck = Stuck()
    threads = PatientThreads(stuck)
    for _ in range(MAX_THREADS + 5):
        nursery.start_soon(threads.run, int)
    await trio.sleep(1)
    assert threads._limiter.borrowed_tokens == MAX_THREADS
    nursery.cancel_scope.cancel()
