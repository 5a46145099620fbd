"""What N tasks that wake every 10 ms cost any loop of Trio: one that does nothing else but be busy for 1 ms at a time.

`python -m tests.bench.network.loop_with_tasks N ROUNDS SECONDS` prints, for each round, the milliseconds that a turn of
the busy task took without the tasks and with them.
"""

from __future__ import annotations

import sys
from time import perf_counter_ns

import trio

from tests.bench.network.node_with_tasks import PERIOD_S, wake

BUSY_NS = 1_000_000


async def _turns(seconds: float) -> float:
    """Milliseconds of a turn."""
    begin = trio.current_time()
    turns = 0
    while trio.current_time() < begin + seconds:
        until_ns = perf_counter_ns() + BUSY_NS
        while perf_counter_ns() < until_ns:
            pass
        turns += 1
        await trio.lowlevel.checkpoint()
    return (trio.current_time() - begin) / turns * 1000


async def _measure(count: int, rounds: int, seconds: float) -> None:
    for _ in range(rounds):
        without_ms = await _turns(seconds)
        async with trio.open_nursery() as nursery:
            for number in range(count):
                nursery.start_soon(wake, number * PERIOD_S / count)
            with_ms = await _turns(seconds)
            nursery.cancel_scope.cancel()
        print(without_ms, with_ms)


if __name__ == "__main__":
    trio.run(_measure, int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]))
