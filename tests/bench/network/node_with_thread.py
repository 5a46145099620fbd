"""A node beside a thread of its own that computes, and so wants the interpreter's lock all the time.

`python -m tests.bench.network.node_with_thread …`, as for `gossipkv serve`.  SIGUSR1 starts the thread, another one
ends it, so the same node is measured with and without.
"""

from __future__ import annotations

import signal
import sys
import threading

import trio

from gossipkv import cli
from gossipkv.node import wiring as node


def _compute(stop: threading.Event) -> None:
    while not stop.is_set():
        for _ in range(1000):
            pass


async def _switch() -> None:
    with trio.open_signal_receiver(signal.SIGUSR1) as signals:
        while True:
            await anext(signals)
            stop = threading.Event()
            thread = threading.Thread(target=_compute, args=[stop])
            thread.start()
            await anext(signals)
            stop.set()
            thread.join()


def main(arguments: list[str]) -> None:
    """`serve`, with the thread beside it."""
    original = node.run

    async def run(*given: object, **options: object) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_switch)
            await original(*given, **options)
            nursery.cancel_scope.cancel()

    node.run = run
    sys.exit(cli.run(["serve", *arguments]))


if __name__ == "__main__":
    main(sys.argv[1:])
