"""What a get by HTTP costs the gateway, and what it costs those who read beside it."""

from __future__ import annotations

import threading
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING

from gossipkv.address import Address
from tests.bench import data, goals, machine
from tests.bench.http import servers as http
from tests.bench.measurement import OURS, WrongAnswerError
from tests.bench.network import rows
from tests.bench.network.rows import Shape
from tests.bench.processes import Cores, free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.bench.measurement import Bench
    from tests.bench.processes import Server

CONNECTIONS = 64
READERS = 4


def gets(bench: Bench, *, keys: int = 100_000, run_s: float = 1.5, rounds: int = 5) -> None:
    """Processor time of the gateway a request, beside servers that answer constant bytes."""
    cores = Cores.of_this_machine()
    records = data.make(keys).records
    with ExitStack() as stack:
        _, gateway = stack.enter_context(http.gateway_alone(bench.directory / "node", records, cores))
        contestants: list[Server] = [gateway]
        for name, missing, command in (
            (goals.QUART, http.quart_missing, http.quart),
            (goals.NGINX, http.nginx_missing, partial(http.nginx, bench.directory / "nginx")),
        ):
            if bench.takes_part(name, missing()):
                address = Address("127.0.0.1", free_port())
                has = http.constants(records)
                contestants.append(stack.enter_context(http.peer(name, address, command(address), has, cores)))
        stack.enter_context(machine.pinned(cores.load))
        rows.compare(bench, goals.HTTP_GET, contestants, Shape(CONNECTIONS, run_s=run_s), rounds)
    bench.notes.append(
        f"HTTP get: {CONNECTIONS} connections, values of {data.SMALL_VALUE_BYTES} bytes, every one checked; the "
        "gateway is `gossipkv http` on a core of its own, in front of a node on the core of the load; quart-trio under "
        "hypercorn (one worker, Trio) and nginx (one process) answer constant bytes and ask nobody"
    )


def beside(bench: Bench, *, keys: int = 100_000, run_s: float = 1.5, rounds: int = 5) -> None:
    """The p99 of a get in MessagePack-RPC with the gateway at its limit on the other core, and without."""
    cores = Cores.of_this_machine()
    with (
        http.gateway_alone(bench.directory / "node", data.make(keys).records, cores) as (node, gateway),
        machine.pinned(cores.load),
        rows.open_traffic(node, Shape(READERS)) as traffic,
    ):

        def quiet() -> float:
            return rows.run(node, traffic, run_s).p99_us

        def busy() -> float:
            with _at_its_limit(gateway, cores, run_s):
                return quiet()

        bench.compare(goals.HTTP_BESIDE, {OURS: busy, goals.WITHOUT: quiet}, rounds)
    bench.notes.append(
        f"get beside HTTP: {READERS} connections to the node in a closed loop, on the node's core, while {CONNECTIONS} "
        "connections keep the gateway at its limit, it and their load on the other core"
    )


@contextmanager
def _at_its_limit(gateway: Server, cores: Cores, seconds: float) -> Iterator[None]:
    """A closed loop over HTTP in a thread, on the gateway's core."""
    started, is_over = threading.Event(), threading.Event()
    failures: list[Exception] = []

    def ask() -> None:
        with machine.pinned(cores.server), rows.open_traffic(gateway, Shape(CONNECTIONS)) as traffic:
            started.set()
            while not is_over.is_set():
                try:
                    rows.checked(traffic.run(duration_s=seconds / 10), gateway.name)
                except WrongAnswerError as error:
                    failures.append(error)
                    return

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        started.wait(rows.TIMEOUT_S)
        yield
    finally:
        is_over.set()
        thread.join()
    if failures:
        raise failures[0]
