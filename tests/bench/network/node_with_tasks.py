"""A node with other work in its event loop: N tasks that wake every 10 ms, evenly spread.

`python -m tests.bench.network.node_with_tasks N …`, the rest as for `gossipkv serve`.  SIGUSR1 starts the tasks,
another one ends them, so the same node is measured with and without.
"""

from __future__ import annotations

import signal
import sys

import trio

from gossipkv import cli
from gossipkv.node import node

PERIOD_S = 0.010


async def wake(delay_s: float) -> None:
    """One of the tasks."""
    await trio.sleep(delay_s)
    while True:
        await trio.sleep(PERIOD_S)


async def _switch(count: int) -> None:
    with trio.open_signal_receiver(signal.SIGUSR1) as signals:
        while True:
            await anext(signals)
            async with trio.open_nursery() as nursery:
                for number in range(count):
                    nursery.start_soon(wake, number * PERIOD_S / count)
                await anext(signals)
                nursery.cancel_scope.cancel()


def main(count: int, arguments: list[str]) -> None:
    """`serve`, with the tasks in its nursery."""
    original = node.run

    async def run(*given: object, **options: object) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_switch, count)
            await original(*given, **options)
            nursery.cancel_scope.cancel()

    node.run = run
    sys.exit(cli.run(["serve", *arguments]))


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
