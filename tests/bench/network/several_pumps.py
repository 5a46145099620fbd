"""Two pumps on two cores, beside one: the clients are processes on the same two cores.

The maximum of two cores follows from a run of one pump, in which no process waits for a core: a request takes some
processor time of the server and of its client, and two cores have two seconds of both per second.
"""

from __future__ import annotations

import os
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from multiprocessing import get_context
from time import process_time
from typing import TYPE_CHECKING, NamedTuple

from tests.bench import data, goals, machine
from tests.bench.measurement import OURS
from tests.bench.network import rows
from tests.bench.network.rows import MICROSECONDS, Shape
from tests.bench.processes import DATABASE, NO_POLLING, Cores, Server, node, pin
from tests.load import RpcDialect

if TYPE_CHECKING:
    from gossipkv.address import Address
    from tests.bench.measurement import Bench

PUMPS = 2
SHAPES = (Shape(64), Shape(64, 16), Shape(16, 1, 100))


class Run(NamedTuple):
    """The times of a run of all clients, per request."""

    wall_us: float
    server_us: float
    client_us: float


def measure(bench: Bench, *, keys: int = 100_000, run_s: float = 1.0, rounds: int = 7) -> None:
    """Measure the time, and the processor time of the server, per request."""
    records = data.make(keys).records
    with ExitStack() as stack:
        pool = stack.enter_context(ProcessPoolExecutor(PUMPS, get_context("spawn")))
        servers = []
        for pumps in (1, PUMPS):
            options = (*NO_POLLING, "--pumps", str(pumps))
            server = stack.enter_context(
                node(bench.directory / f"of-{pumps}", records, Cores.of_this_machine(), *options)
            )
            pin(server.pid, None)
            servers.append(server)
        one, several = servers
        order = [(goals.ONE_PUMP, one), (OURS, several)]
        shapes = [replace(shape, run_s=run_s) for shape in SHAPES]
        for (wall, cpu), shape in zip(goals.PUMPS, shapes, strict=True):
            machine.say(f"  {wall}")
            for number in range(1 + rounds):
                sides = order[:: 1 - 2 * (number % 2)]
                runs = {name: run(pool, DATABASE, keys, server, shape) for name, server in sides}
                if number:
                    alone, together = runs[goals.ONE_PUMP], runs[OURS]
                    bench.add(wall, together.wall_us)
                    bench.add(wall, (alone.server_us + alone.client_us) / PUMPS, goals.BOTH_CORES)
                    bench.add(cpu, together.server_us)
                    bench.add(cpu, alone.server_us, goals.ONE_PUMP)
    cores = len(os.sched_getaffinity(0))
    bench.notes.append(
        f"pumps: {keys:,} records, {PUMPS} pumps, {PUMPS} clients as processes, all on the same {cores} cores; what "
        "two cores can do is half of the processor time that a request takes of server and client with one pump"
    )


def run(pool: ProcessPoolExecutor, database: str, keys: int, server: Server, shape: Shape) -> Run:
    """Let the processes of the pool ask, each over its share of the connections."""
    share = replace(shape, connections=shape.connections // PUMPS)
    before_ns = server.cpu_ns()
    asked = [pool.submit(ask, server.name, server.address, database, keys, share) for _ in range(PUMPS)]
    outcomes = [each.result() for each in asked]
    used_us = (server.cpu_ns() - before_ns) / rows.MICROSECOND_NS
    requests = sum(outcome[0] for outcome in outcomes)
    rate = sum(outcome[0] / outcome[1] for outcome in outcomes)
    return Run(
        MICROSECONDS / rate, used_us / requests, MICROSECONDS * sum(outcome[2] for outcome in outcomes) / requests
    )


def ask(name: str, address: Address, database: str, keys: int, shape: Shape) -> tuple[int, float, float]:
    """Ask as a separate client; return the number of checked answers, the duration and the processor time."""
    server = Server(name, None, address, RpcDialect(database, data.make(keys).records))
    with rows.opened_for_once(server, shape) as traffic:
        began_s = process_time()
        outcome = rows.checked(traffic.run(duration_s=shape.run_s), server.name)
        return outcome.requests, outcome.duration_s, process_time() - began_s
