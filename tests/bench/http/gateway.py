"""What a get by HTTP costs the gateway, and what it costs those who read beside it."""

from __future__ import annotations

import threading
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.bench import data, goals, machine
from tests.bench.http import servers as http
from tests.bench.measurement import Measurement
from tests.bench.network import rows, servers
from tests.bench.network.rows import Shape

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.bench.network.servers import Cores, Server

CONNECTIONS = 64
READERS = 4


@dataclass(frozen=True)
class Load:
    """How much is asked, and how often."""

    keys: int = 100_000
    run_s: float = 1.5
    rounds: int = 5


def gets(directory: Path, load: Load, notes: list[str]) -> Iterator[Measurement]:
    """Processor time of the gateway a request, beside servers that answer constant bytes."""
    cores = servers.Cores.of_this_machine()
    records = data.make(load.keys, data.SMALL_VALUE_BYTES).records
    keys = [key for key, _ in records]
    with ExitStack() as stack:
        _, gateway = stack.enter_context(http.gateway(directory / "node", records, cores))
        others = [
            stack.enter_context(http.quart(keys, cores)),
            stack.enter_context(http.nginx(directory / "nginx", keys, cores)),
        ]
        stack.enter_context(machine.pinned(cores.load))
        shape = Shape(goals.HTTP_GET, CONNECTIONS, run_s=load.run_s)
        contestants: list[Server] = [gateway, *(each for each in others if each is not None)]
        yield rows.interleaved(shape, contestants, load.rounds, lambda figure: figure.cpu_us)
    notes.append(
        f"HTTP get: {CONNECTIONS} connections, one request in flight on each, values of {data.SMALL_VALUE_BYTES} "
        "bytes, every one checked; the gateway's process alone, on a core of its own, in front of a node on the core "
        "of the load; quart-trio under hypercorn (one worker, Trio) and nginx (one process) answer constant bytes and "
        "ask nobody"
    )


def beside(directory: Path, load: Load, notes: list[str]) -> Iterator[Measurement]:
    """The p99 of a get in MessagePack-RPC with the gateway at its limit on the other core, and without."""
    cores = servers.Cores.of_this_machine()
    records = data.make(load.keys, data.SMALL_VALUE_BYTES).records
    samples: dict[str, list[float]] = {servers.NODE: [], goals.WITHOUT: []}
    failed = 0
    with ExitStack() as stack:
        node, gateway = stack.enter_context(http.gateway(directory / "node", records, cores))
        stack.enter_context(machine.pinned(cores.load))
        traffic = stack.enter_context(rows.open_traffic(node, Shape(goals.HTTP_BESIDE, READERS, run_s=load.run_s)))
        for number in range(load.rounds + 1):
            quiet = rows.run(node, traffic, load.run_s)
            with _at_its_limit(gateway, cores, load.run_s) as asked:
                busy = rows.run(node, traffic, load.run_s)
            failed += asked.failed
            if number > 0:
                samples[servers.NODE].append(busy.p99_us)
                samples[goals.WITHOUT].append(quiet.p99_us)
                machine.say(f"    p99 {busy.p99_us:.0f} us beside {asked.requests:,} gets by HTTP, {quiet.p99_us:.0f}")
    assert failed == 0
    yield Measurement(goals.HTTP_BESIDE, "us", servers.NODE, samples)
    notes.append(
        f"get beside HTTP: {READERS} connections to the node in a closed loop, on the node's core, while {CONNECTIONS} "
        "connections keep the gateway at its limit, it and their load on the other core"
    )


class _Asked:
    """How much was asked by HTTP."""

    requests = 0
    failed = 0


@contextmanager
def _at_its_limit(gateway: Server, cores: Cores, seconds: float) -> Iterator[_Asked]:
    """A closed loop over HTTP in a thread, on the gateway's core."""
    asked, is_over = _Asked(), threading.Event()
    shape = Shape(goals.HTTP_BESIDE, CONNECTIONS)

    def ask() -> None:
        with machine.pinned(cores.server), rows.open_traffic(gateway, shape) as traffic:
            started.set()
            while not is_over.is_set():
                outcome = traffic.run(duration_s=seconds / 10)
                asked.requests += outcome.requests
                asked.failed += not outcome.is_clean

    started = threading.Event()
    thread = threading.Thread(target=ask)
    thread.start()
    try:
        started.wait(rows.TIMEOUT_S)
        yield asked
    finally:
        is_over.set()
        thread.join()
