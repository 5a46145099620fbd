"""The measurement of a row: servers in turn under the same load, and the use per request, round by round."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from tests.bench import goals
from tests.bench.data import SEED
from tests.bench.measurement import OURS, WrongAnswerError
from tests.load import Load, Traffic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.bench.measurement import Bench, Row
    from tests.bench.processes import Server
    from tests.load import Outcome

MICROSECOND_NS = 1e3
MICROSECONDS = 1e6
TIMEOUT_S = 20.0  # A busy machine is no fault of the server.
MANY = 2000  # So many connections are open only while their server is asked: descriptors are limited.


@dataclass(frozen=True)
class Shape:
    connections: int
    in_flight: int = 1
    batch: int = 1
    run_s: float = 1.0


@dataclass(frozen=True)
class Figure:
    requests: int
    cpu_us: float  # The server's time per request.
    wall_us: float  # The time per request.
    p99_us: float


def checked(outcome: Outcome, name: str) -> Outcome:
    if not outcome.is_clean or outcome.requests == 0:
        raise WrongAnswerError(
            f"{name}: {outcome.requests} answered, {outcome.wrong_values} wrong values ({outcome.first_wrong}), "
            f"errors {outcome.errors}, {outcome.lost} lost, connections {outcome.broken}"
        )
    return outcome


def p99_beside(bench: Bench, row: Row, gets: Traffic, seconds: float, work: Callable[[], object]) -> None:
    """Add the p99 of gets that begin with `work`, and the p99 before; return when the work has ended."""
    before = checked(gets.run(duration_s=seconds), OURS)
    with ThreadPoolExecutor(1) as pool:
        working = pool.submit(work)
        beside = checked(gets.run(duration_s=seconds), OURS)
        working.result()
    bench.add(row, beside.latency.quantile(0.99) / MICROSECOND_NS)
    bench.add(row, before.latency.quantile(0.99) / MICROSECOND_NS, goals.BEFORE)


def run(server: Server, traffic: Traffic, seconds: float) -> Figure:
    """Ask for so long; raise if an answer is wrong."""
    before_ns = server.cpu_ns()
    outcome = checked(traffic.run(duration_s=seconds), server.name)
    used_ns = server.cpu_ns() - before_ns
    return Figure(
        requests=outcome.requests,
        cpu_us=used_ns / MICROSECOND_NS / outcome.requests,
        wall_us=outcome.duration_s * MICROSECONDS / outcome.requests,
        p99_us=outcome.latency.quantile(0.99) / MICROSECOND_NS,
    )


def open_traffic(server: Server, shape: Shape) -> Traffic:
    """Open connections, each of which has been used at least once."""
    assert server.dialect is not None
    load = Load(
        connections=shape.connections,
        in_flight=shape.in_flight,
        batch=shape.batch,
        duration_s=None,
        requests=1,
        timeout_s=TIMEOUT_S,
        seed=SEED,
    )
    traffic = Traffic(server.address, server.dialect, load)
    checked(traffic.run(requests=shape.connections * shape.in_flight), server.name)
    return traffic


@contextmanager
def opened_for_once(server: Server, shape: Shape) -> Iterator[Traffic]:
    with open_traffic(server, shape) as traffic:
        yield traffic
        traffic.close(reset=True)


def _run_apart(server: Server, shape: Shape) -> float:
    with opened_for_once(server, shape) as traffic:
        return run(server, traffic, shape.run_s).cpu_us


def compare(bench: Bench, row: Row, servers: list[Server], shape: Shape, rounds: int) -> None:
    with ExitStack() as stack:
        if shape.connections >= MANY:
            sides = {server.name: partial(_run_apart, server, shape) for server in servers}
        else:
            sides = {}
            for server in servers:
                traffic = stack.enter_context(open_traffic(server, shape))
                sides[server.name] = lambda server=server, traffic=traffic: run(server, traffic, shape.run_s).cpu_us
        bench.compare(row, sides, rounds)
