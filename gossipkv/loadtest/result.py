"""The result of a load test: one document, the source of the report, the comparison and the limits.

    Result          everything, of all processes and rounds; `to_json` is the document, `documents.parse` reads it
    RunTotals       counts: of everything, of a step, of a target, of a round
    RunProgress     the report once a second during the run
    LatencyResult   a histogram: exact counts by bucket, and percentiles made from them

Percentiles are never averaged: buckets of processes, seconds and rounds are added, and percentiles taken from the sum.
Times in `seconds` and `events` are seconds since the first counted request (a warm-up is below zero).  Durations are
microseconds.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Final, TypeAlias

FORMAT: Final = 1
PERCENTILES: Final = ("50", "90", "99", "99.9", "99.99", "100")

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"


@dataclass(frozen=True)
class LatencyResult:
    """Latencies of requests.

    `buckets` are `[upper bound in microseconds, cumulative count]`, without empty buckets; the last one holds all.
    `percentiles` has the keys "50", "90", "99", "99.9", "99.99" and "100", of which the last is exact.
    """

    count: int = 0
    mean_us: float = 0.0
    percentiles: dict[str, float] = field(default_factory=dict)
    buckets: list[list[float]] = field(default_factory=list)


@dataclass(frozen=True)
class RunTotals:
    """Counts of requests and values.

    Each sent request ends in one of three ways: answered (`requests`), refused (`errors`, by code) or lost with its
    connection (`lost`).  Of the `keys` in answers, `wrong` had a wrong value, and `unchecked` could not be compared for
    lack of a truth for the version or key.  `misses` are keys that the server did not have.  `unsent` fell due while
    every connection was busy or broken, and were never sent.  `steps_back` are answers from an older version than the
    server had answered with before the request was sent.  `broken` counts connections by reason; `reconnects` those
    that were made again.  `rate` is answered requests a second.
    """

    requests: int = 0
    keys: int = 0
    misses: int = 0
    wrong: int = 0
    unchecked: int = 0
    steps_back: int = 0
    errors: dict[str, int] = field(default_factory=dict)
    lost: int = 0
    unsent: int = 0
    broken: dict[str, int] = field(default_factory=dict)
    reconnects: int = 0
    bytes_received: int = 0
    bytes_sent: int = 0
    duration_s: float = 0.0
    rate: float = 0.0


@dataclass(frozen=True)
class OfVersion:
    """The answers of one version; the version "" covers answers that name none.

    `unchecked` are values without a truth of this version.
    """

    requests: int = 0
    wrong: int = 0
    unchecked: int = 0


@dataclass(frozen=True)
class OfTarget:
    """The results of one target; `name` is its URL."""

    name: str
    totals: RunTotals
    latency: LatencyResult
    by_version: dict[str, OfVersion] = field(default_factory=dict)
    node: str | None = None  # Its node name, if reported.
    version: str | None = None  # The version of its program.


@dataclass(frozen=True)
class OfStep:
    """The results of one step of the rate, a second in a ramp; `rate` is None in a closed loop."""

    begins_s: float
    duration_s: float
    rate: float | None
    totals: RunTotals
    latency: LatencyResult
    lateness: LatencyResult | None = None


@dataclass(frozen=True)
class Second:
    """One second of the run, by the time of the answers; `t` is its beginning."""

    t: int
    requests: int = 0
    errors: int = 0  # Both refused and lost requests count.
    wrong: int = 0
    p50_us: float = 0.0
    p99_us: float = 0.0
    max_us: float = 0.0


@dataclass(frozen=True)
class Event:
    """An event in the cluster, or of the test itself.

    `what` is one of `member` (`who`: the node, `detail`: "alive -> suspect"), `version` (`who`: node and database,
    `detail`: "1 -> 2"), `silent` and `answers` (`who`: the watched node), `frozen` (`detail`: the duration, from `t`
    on, without any answer), `truth` (`who`: a version that appeared during the run, `detail`: the outcome of reading
    it) and `generator` (one of the test's processes ended).
    """

    t: float
    what: str
    who: str
    detail: str


@dataclass(frozen=True)
class ServerCpu:
    """The processor time of a server during the run; `us_per_request` is per request that its target answered."""

    cpu_s: float
    us_per_request: float | None


@dataclass(frozen=True)
class OfRound:
    """One of several equal runs."""

    totals: RunTotals
    latency: dict[str, LatencyResult]
    server_cpu: dict[str, ServerCpu] = field(default_factory=dict)


@dataclass(frozen=True)
class Result:
    """The complete result of a load test.

    `latency` has "all" and each requested kind (`get`, `get_many`, `scan`); in an open loop it counts from when a
    request was due.  `lateness` is the delay of sending, None in a closed loop: large values mean that connections were
    busy, or that the generator lacked a processor.  `first_wrong` describes the first wrong value.  `generator_cpu_s`
    is the processor time of the test's processes.  `ended` is "done", "interrupted", or a sentence about the early end.
    """

    began: str  # The time is ISO 8601, in UTC.
    command: list[str]
    plan: dict[str, Json]
    machine: dict[str, Json]
    totals: RunTotals
    latency: dict[str, LatencyResult]
    targets: list[OfTarget] = field(default_factory=list)
    lateness: LatencyResult | None = None
    steps: list[OfStep] = field(default_factory=list)
    seconds: list[Second] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    by_version: dict[str, OfVersion] = field(default_factory=dict)
    server_cpu: dict[str, ServerCpu] = field(default_factory=dict)
    generator_cpu_s: float = 0.0
    rounds: list[OfRound] = field(default_factory=list)
    first_wrong: str | None = None
    ended: str = "done"
    format: int = FORMAT

    @property
    def is_clean(self) -> bool:
        """True if every request was answered, and every answer right."""
        totals = self.totals
        return self.ended == "done" and not (
            totals.wrong or totals.errors or totals.lost or totals.unsent or totals.steps_back or totals.broken
        )

    def to_json(self) -> dict[str, Json]:
        """Return the document, `format` first."""
        return {"format": self.format, **asdict(self)}


@dataclass(frozen=True)
class RunProgress:
    """The state of the run, reported once a second.

    `second` is the last complete one, or the last one of a run; `events` are those since the last report.  `totals` and
    `latency` (of all kinds) count from the first counted request of this round.  `phase` is "records" (they
    are written first), "warm-up", "load" or "check" (what was written is read again).
    """

    phase: str
    round: int  # Rounds count from 1.
    rounds: int
    elapsed_s: float  # The time elapsed in this phase.
    planned_s: float
    rate_asked: float | None
    second: Second | None
    totals: RunTotals
    latency: LatencyResult
    events: list[Event]
