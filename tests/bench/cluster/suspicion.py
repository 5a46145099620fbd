"""What the serving thread of a node spends on a member that is suspected and has published very many partitions.

Two nodes, each a process of its own: one says that it has all partitions, and is stopped (SIGSTOP) until the other
suspects it, which tells what its thread used around that moment.  Beside it the same two with few partitions.
"""

from __future__ import annotations

import json
import signal
from contextlib import ExitStack
from time import sleep
from typing import TYPE_CHECKING

from tests.bench import goals
from tests.bench.cluster import nodes
from tests.bench.cluster.owner_of_many import DATABASE, VERSION
from tests.bench.measurement import OURS
from tests.bench.processes import connect, serve, serving, wait_for

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.bench.measurement import Bench
    from tests.bench.processes import Server

MODULES = "tests.bench.cluster"
MOST_PARTITIONS, FEW = 65_536, 16  # As many as a version may have.


def measure(bench: Bench, *, rest_s: float = 1.0, rounds: int = 9) -> None:
    """The row."""
    longest_ms: list[float] = []
    with ExitStack() as stack:
        sides = {
            name: _pair(stack, bench, partitions, rest_s, longest_ms)
            for name, partitions in ((OURS, MOST_PARTITIONS), (goals.FEW, FEW))
        }
        bench.compare(goals.CLUSTER_SUSPECTED, sides, rounds)
    bench.notes.append(f"a suspicion: the longest turn of the loop took {max(longest_ms):.1f} ms; {rounds} rounds")


def _pair(
    stack: ExitStack, bench: Bench, partitions: int, rest_s: float, longest_ms: list[float]
) -> Callable[[], float]:
    """An owner and a node that watches it; returns what has the one suspected by the other, after both have rested."""

    def start(module: str, *words: str, **settings: str) -> Server:
        directory = bench.directory / f"{module}-{partitions}"
        directory.mkdir(mode=0o700)
        command = serve(directory, *nodes.options(**settings), module=("-m", f"{MODULES}.{module}", *words))
        return stack.enter_context(serving(command))

    owner = start("owner_of_many", str(partitions))
    watcher = start("watched_node", join=str(owner.address))
    control = stack.enter_context(connect(watcher.address))
    stack.callback(owner.process.send_signal, signal.SIGCONT)  # Else it would not hear that it is to end.
    expected = {"name": DATABASE, "kind": "dataset", "version": VERSION, "partitions": partitions}
    wait_for(lambda: any(expected.items() <= each.items() for each in control.databases()), "an active version")

    def suspect() -> float:
        wait_for(lambda: all(each["state"] in {"alive", "silent"} for each in control.members()), "both to live")
        sleep(rest_s)
        owner.process.send_signal(signal.SIGSTOP)
        try:
            assert watcher.process.stdout is not None
            told = json.loads(watcher.process.stdout.readline())
        finally:
            owner.process.send_signal(signal.SIGCONT)
        longest_ms.append(told["longest_ms"])
        return told["used_ms"]

    return suspect
