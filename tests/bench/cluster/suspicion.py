"""What the serving thread of a node spends on a member that is suspected and has published very many partitions.

Two nodes, each a process of its own: one says that it has all partitions, and is stopped (SIGSTOP) until the other
suspects it, which tells what its thread used around that moment.  Beside it the same two with few partitions.
"""

from __future__ import annotations

import json
import signal
import sys
from contextlib import ExitStack
from dataclasses import dataclass
from time import monotonic, sleep
from typing import TYPE_CHECKING

import msgpack

from tests.bench import goals, machine
from tests.bench.cluster import nodes
from tests.bench.cluster.owner_of_many import DATABASE, VERSION
from tests.bench.measurement import Measurement
from tests.bench.serving import BUILD_TIMEOUT_S, POLL_PERIOD_S, Client, process

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Iterator
    from pathlib import Path

MODULES = "tests.bench.cluster"


@dataclass(frozen=True)
class Load:
    """How many partitions, how often."""

    partitions: int = 65_536  # As many as a version may have.
    few: int = 16
    rest_s: float = 1.0
    rounds: int = 9


class Pair:
    """An owner, and a node that watches it."""

    def __init__(self, stack: ExitStack, directory: Path, partitions: int) -> None:
        self._partitions = partitions
        self._owner, address = self._start(stack, directory / "owner", "owner_of_many", str(partitions))
        self._watcher, watcher = self._start(stack, directory / "watcher", "watched_node", "--join", address)
        self._control = Client(*nodes.address_of(watcher))
        stack.callback(self._control.close)
        stack.callback(self._owner.send_signal, signal.SIGCONT)  # Else it would not hear that it is to end.

    def _start(
        self, stack: ExitStack, directory: Path, module: str, *options: str
    ) -> tuple[subprocess.Popen[str], str]:
        directory.mkdir(mode=0o700, parents=True)
        command = [sys.executable, "-m", f"{MODULES}.{module}", *options, "--data", str(directory)]
        command += ["--listen", "127.0.0.1:0", "--profile", "local"]
        for name, value in nodes.SETTINGS.items():
            command += [f"--{name.replace('_', '-')}", value]
        running, line = stack.enter_context(process(command, ready=lambda line: line.startswith("ready ")))
        return running, line.split()[1]

    def wait_until_active(self) -> None:
        """Return when the watcher's clients would have others answer from all those partitions."""
        expected = {"name": DATABASE, "kind": "dataset", "version": VERSION, "partitions": self._partitions}
        self._wait("databases", lambda found: any(expected.items() <= each.items() for each in found))

    def suspect(self, rest_s: float) -> dict[str, float]:
        """One suspicion, after both have rested."""
        self._wait("members", lambda found: all(each["state"] in {"alive", "silent"} for each in found))
        sleep(rest_s)
        self._owner.send_signal(signal.SIGSTOP)
        try:
            assert self._watcher.stdout is not None
            told: dict[str, float] = json.loads(self._watcher.stdout.readline())
        finally:
            self._owner.send_signal(signal.SIGCONT)
        return told

    def _wait(self, method: str, holds: Callable[[list[dict[str, object]]], bool]) -> None:
        deadline = monotonic() + BUILD_TIMEOUT_S

        def decode(reply: bytes) -> bool:
            _, _, error, result = msgpack.unpackb(reply)
            return error is None and holds(result)

        while not self._control.exchange(msgpack.packb([0, 1, method, []]), decode):
            if monotonic() > deadline:
                raise RuntimeError(f"{method} did not become as expected within {BUILD_TIMEOUT_S:.0f} s")
            sleep(POLL_PERIOD_S)


def measure(directory: Path, load: Load, notes: list[str]) -> Iterator[Measurement]:
    """The row."""
    samples: dict[str, list[float]] = {"GossipKV": [], goals.FEW: []}
    longest_ms = 0.0
    with ExitStack() as stack:
        pairs = {
            name: Pair(stack, directory / str(count), count)
            for name, count in (("GossipKV", load.partitions), (goals.FEW, load.few))
        }
        for pair in pairs.values():
            pair.wait_until_active()
        for number in range(load.rounds + 1):
            for name, pair in pairs.items():
                told = pair.suspect(load.rest_s)
                machine.say(f"    {name}: {told['used_ms']:.2f} ms, the longest turn {told['longest_ms']:.2f} ms")
                if number > 0:
                    samples[name].append(told["used_ms"])
                    longest_ms = max(longest_ms, told["longest_ms"])
    yield Measurement(goals.CLUSTER_SUSPECTED, "ms", "GossipKV", samples)
    notes.append(
        f"a suspicion: two nodes, one of which has published {load.partitions:,} partitions (without files: so many "
        "cannot be mapped) and is stopped; processor time of the other's serving thread in the 0.3 s around the moment "
        f"in which its databases learn of it, all that it did; the longest turn of its loop took {longest_ms:.1f} ms; "
        f"beside it the same with {load.few} partitions; {load.rounds} rounds"
    )
