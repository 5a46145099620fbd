"""Load on one server by this process alone, and its outcome, for tests and for measurements from Python.

    outcome = run("127.0.0.1:7070", "geo", records, Load(connections=64, in_flight=16, duration_s=10))

Every value is compared with the one in `records` (None: the key must be absent). Faults are counted and never raised:
only an unreachable server raises. The warm-up's requests do not count, but its faults do.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self, final

from gossipkv.address import Address, parse_address
from gossipkv.loadtest._loadtest import Generator, HttpDialect, RedisDialect, RpcDialect
from gossipkv.loadtest.load_child import dial, wrong_in_words

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from types import TracebackType

    from gossipkv.loadtest._loadtest import Dialect
    from gossipkv.wire.latency import LatencyHistogram

__all__ = ["HttpDialect", "Load", "Outcome", "RedisDialect", "RpcDialect", "Traffic", "run"]

SLICE_MS = 50  # The time without the GIL; a Ctrl-C waits for so long.
NANOSECONDS = 1_000_000_000
MILLISECONDS = 1000
MAX_SLOTS = 1 << 24  # 16 million requests in flight take half a gibibyte here, and more of the server.


@dataclass(frozen=True, kw_only=True)
class Load:
    """The way a server is asked.

    Args:
        connections: Number of connections, each with `in_flight` requests open.
        in_flight: Requests open on each connection.
        batch: Keys of a request; 1 is `get`, more is `get_many`.
        rate: Requests a second in all, sent when due whatever the server does (an open loop); None sends the next
            request after an answer (a closed loop).
        duration_s: The run ends after this time, None: after `requests`.
        requests: The run ends after so many, None: after `duration_s`.
        warm_up_s: Load before the run, which does not count.
        timeout_s: A server that leaves a request unanswered for so long loses the connection.
        seed: Seed of the random keys.

    Raises:
        ValueError: An argument makes no sense.
    """

    connections: int = 1
    in_flight: int = 1
    batch: int = 1
    rate: float | None = None
    duration_s: float | None = 10.0
    requests: int | None = None
    warm_up_s: float = 0.0
    timeout_s: float = 5.0
    seed: int = 1

    def __post_init__(self) -> None:
        for name in ("connections", "in_flight", "batch"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        for name in ("rate", "duration_s", "requests"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ValueError(f"{name} is more than 0, got {value}")
        if self.duration_s is None and self.requests is None:
            raise ValueError("a load ends after duration_s, after requests, or after the first of both; got neither")
        if not (self.warm_up_s >= 0 and self.timeout_s * MILLISECONDS >= 1):
            raise ValueError(
                f"warm_up_s is not negative and timeout_s at least 0.001, got {self.warm_up_s} and {self.timeout_s}"
            )
        if self.connections * self.in_flight * self.batch > MAX_SLOTS:
            raise ValueError(f"more than {MAX_SLOTS} keys would be in flight")


@dataclass(frozen=True)
class Outcome:
    """The outcome of a load.

    `requests` were answered with values, for `keys`; `latency` is theirs. `errors` counts the requests answered with an
    error, by code; `lost` those whose connection broke before the answer; `unsent` those that fell due while every
    connection was busy, and were never sent. `wrong_values` counts wrong, missing and surplus values, and `first_wrong`
    describes the first. `broken` counts connections by reason. `duration_s` ends with the last answer.
    """

    requests: int
    keys: int
    wrong_values: int
    errors: dict[str, int]
    lost: int
    unsent: int
    broken: dict[str, int]
    duration_s: float
    latency: LatencyHistogram
    first_wrong: str | None
    bytes_received: int

    @property
    def rate(self) -> float:
        return self.requests / self.duration_s if self.duration_s > 0 else 0.0

    @property
    def is_clean(self) -> bool:
        """True if every request was answered, and every answer right."""
        return not (self.wrong_values or self.errors or self.lost or self.unsent or self.broken)


@final
class Traffic:
    """Open connections to one server, for one run after another.

    Args:
        dialect: The protocol; of several with the same records, each connection takes the next.

    Raises:
        Unavailable: A connection cannot be had.
    """

    def __init__(self, address: str | Address, dialect: Dialect | Sequence[Dialect], load: Load) -> None:
        self.load = load
        where = parse_address(address) if isinstance(address, str) else address
        several = isinstance(dialect, list)
        with contextlib.ExitStack() as stack:
            sockets = [
                stack.enter_context(dial(where, load.timeout_s, number, load.connections))
                for number in range(load.connections)
            ]
            self._generator = Generator(
                dialect,
                sockets,
                in_flight=load.in_flight,
                batch=load.batch,
                timeout_ms=int(load.timeout_s * MILLISECONDS),
                seed=load.seed,
                targets=[number % len(dialect) for number in range(load.connections)] if several else None,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self, *, reset: bool = False) -> None:
        """End the connections.

        Args:
            reset: Reset the connections, since a normal close would hold a local port for a minute: for callers that
                open thousands repeatedly.
        """
        self._generator.close(reset=reset)

    def run(
        self,
        *,
        duration_s: float | None = None,
        requests: int | None = None,
        until: Callable[[], bool] = lambda: False,
    ) -> Outcome:
        """Run once; the run ends when the last request has been answered or lost.

        Args:
            duration_s: Stop asking after this time.
            requests: Stop asking after so many requests.
            until: Stop asking once this is true; it is called now and then.

        Connections that broke in an earlier run stay broken.
        """
        self._generator.begin(
            rate=self.load.rate or 0,
            duration_ns=int((duration_s or 0) * NANOSECONDS),
            requests=requests or 0,
        )
        while self._generator.step(SLICE_MS):
            if until():
                self._generator.stop()
        return self._outcome()

    def _outcome(self) -> Outcome:
        tally = self._generator.tally
        return Outcome(
            requests=tally.answered,
            keys=tally.keys,
            wrong_values=tally.wrong,
            errors=tally.errors(),
            lost=tally.lost,
            unsent=self._generator.unsent,
            broken=tally.broken(),
            duration_s=self._generator.duration_ns / NANOSECONDS,
            latency=tally.histogram,
            first_wrong=wrong_in_words(tally.first_wrong()),
            bytes_received=tally.bytes_received,
        )


def run(
    address: str | Address, database: str, records: Iterable[tuple[bytes, bytes | None]], load: Load | None = None
) -> Outcome:
    """Put one node under load.

    Raises:
        Unavailable: The node cannot be reached.
    """
    load = Load() if load is None else load
    with Traffic(address, RpcDialect(database, records), load) as traffic:
        before = traffic.run(duration_s=load.warm_up_s) if load.warm_up_s > 0 else None
        outcome = traffic.run(duration_s=load.duration_s, requests=load.requests)
    return outcome if before is None else _with_faults(outcome, before)


def _with_faults(outcome: Outcome, before: Outcome) -> Outcome:
    return replace(
        outcome,
        wrong_values=before.wrong_values + outcome.wrong_values,
        errors=_sum(before.errors, outcome.errors),
        lost=before.lost + outcome.lost,
        unsent=before.unsent + outcome.unsent,
        broken=_sum(before.broken, outcome.broken),
        first_wrong=before.first_wrong or outcome.first_wrong,
    )


def _sum(one: dict[str, int], other: dict[str, int]) -> dict[str, int]:
    return {name: one.get(name, 0) + other.get(name, 0) for name in one | other}
