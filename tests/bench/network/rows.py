"""How a row is measured: servers in turn under the same load, what each used for a request, round by round."""

from __future__ import annotations

import random
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from tests.bench import data, machine
from tests.bench.measurement import Measurement
from tests.load import Load, Traffic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gossipkv.loadtest._dialect import Dialect
    from tests.bench.network.servers import Server
    from tests.load import Outcome

MICROSECOND_NS = 1e3
MICROSECONDS = 1e6
TIMEOUT_S = 20.0  # A machine that does something else meanwhile is no fault of the server.
MANY = 2000  # With so many connections they are open only while their server is asked: descriptors are limited.


class WrongAnswerError(Exception):
    """A server that answers wrongly, or not at all, is not measured."""


@dataclass(frozen=True)
class Shape:
    """What is asked, and for how long each time."""

    row: str
    connections: int
    in_flight: int = 1
    batch: int = 1
    run_s: float = 1.0

    @property
    def load(self) -> Load:
        """For the generator."""
        return Load(
            connections=self.connections,
            in_flight=self.in_flight,
            batch=self.batch,
            duration_s=None,
            requests=1,
            timeout_s=TIMEOUT_S,
            seed=data.SEED,
        )


@dataclass(frozen=True)
class Figure:
    """One run of one server."""

    requests: int
    cpu_us: float  # of the server, a request
    wall_us: float  # a request
    p50_us: float
    p99_us: float

    @property
    def busy(self) -> float:
        """How much of a core the server had."""
        return self.cpu_us / self.wall_us


def checked(outcome: Outcome, name: str) -> Outcome:
    """The outcome, if everything was right."""
    if not outcome.is_clean or outcome.requests == 0:
        raise WrongAnswerError(
            f"{name}: {outcome.requests} answered, {outcome.wrong_values} wrong values ({outcome.first_wrong}), "
            f"errors {outcome.errors}, {outcome.lost} lost, connections {outcome.broken}"
        )
    return outcome


def run(server: Server, traffic: Traffic, seconds: float) -> Figure:
    """Ask for so long; every answer is right, else it raises."""
    before_ns = server.cpu_ns()
    outcome = checked(traffic.run(duration_s=seconds), server.name)
    used_ns = server.cpu_ns() - before_ns
    return Figure(
        requests=outcome.requests,
        cpu_us=used_ns / MICROSECOND_NS / outcome.requests,
        wall_us=outcome.duration_s * MICROSECONDS / outcome.requests,
        p50_us=outcome.latency.quantile(0.5) / MICROSECOND_NS,
        p99_us=outcome.latency.quantile(0.99) / MICROSECOND_NS,
    )


def open_traffic(server: Server, shape: Shape, dialect: Dialect | None = None) -> Traffic:
    """Connections over which each has been asked once at least."""
    spoken = dialect or server.dialect
    assert spoken is not None
    traffic = Traffic(server.address, spoken, shape.load)
    checked(traffic.run(requests=shape.connections * shape.in_flight), server.name)
    return traffic


@contextmanager
def opened_for_once(server: Server, shape: Shape) -> Iterator[Traffic]:
    """Connections that leave no port behind."""
    with open_traffic(server, shape) as traffic:
        yield traffic
        traffic.close(reset=True)


def interleaved(
    shape: Shape, servers: list[Server], rounds: int, figure_of: Callable[[Figure], float], unit: str = "us"
) -> Measurement:
    """Each server once a round, in a new random order; the first round does not count."""
    rng = random.Random(f"{data.SEED} {shape.row}")
    samples: dict[str, list[float]] = {server.name: [] for server in servers}
    figures: dict[str, list[Figure]] = {server.name: [] for server in servers}
    with ExitStack() as stack:
        kept: dict[str, Traffic] = {}
        if shape.connections < MANY:
            kept = {server.name: stack.enter_context(open_traffic(server, shape)) for server in servers}
        for number in range(rounds + 1):
            for server in rng.sample(servers, len(servers)):
                if server.name in kept:
                    figure = run(server, kept[server.name], shape.run_s)
                else:
                    with opened_for_once(server, shape) as traffic:
                        figure = run(server, traffic, shape.run_s)
                if number > 0:
                    samples[server.name].append(figure_of(figure))
                    figures[server.name].append(figure)
    for name, found in figures.items():
        say(name, found)
    return Measurement(shape.row, unit, servers[0].name, samples)


def say(name: str, figures: list[Figure]) -> None:
    """One server's medians, for whoever waits."""
    cpu_us, wall_us, busy, p50_us, p99_us = (
        median(getattr(figure, what) for figure in figures)
        for what in ("cpu_us", "wall_us", "busy", "p50_us", "p99_us")
    )
    machine.say(
        f"    {name:14} CPU {cpu_us:8.3f} us, {MICROSECONDS / wall_us:11,.0f}/s, busy {busy:4.0%}, "
        f"p50 {p50_us:8.1f} us, p99 {p99_us:8.1f} us"
    )
