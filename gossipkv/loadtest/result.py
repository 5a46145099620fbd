"""What a load test found: one document, which the report, the comparison and the limits are made from.

    Result         all of it, of all processes and rounds; `to_json` is the document, `documents.parse` reads it back
    Totals         what was counted: of everything, of a step, of a target, of a round
    Progress       what is told once a second while it runs
    Latency        a histogram that can be written down: exact counts by bucket, percentiles made from them

Percentiles are never averaged: buckets of processes, seconds and rounds are added up, and percentiles are taken from
the sum.  Times in `seconds` and `events` are seconds since the first request that counts (a warm-up is before it, below
zero).  Durations are microseconds.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Final, TypeAlias

FORMAT: Final = 1
PERCENTILES: Final = ("50", "90", "99", "99.9", "99.99", "100")

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"


@dataclass(frozen=True)
class Latency:
    """How long requests took.

    `buckets` are `[upper bound in microseconds, how many took at most that]`, the counts cumulative, buckets without
    any left out; the last one holds all.  `percentiles` has the names of `PERCENTILES`; "100" is exact.
    """

    count: int = 0
    mean_us: float = 0.0
    percentiles: dict[str, float] = field(default_factory=dict)
    buckets: list[list[float]] = field(default_factory=list)


@dataclass(frozen=True)
class Totals:
    """What was counted.

    Each request that was sent ends in one of three ways: answered (`requests`), refused (`errors`, by code) or lost
    with its connection (`lost`).  `keys` were in the answers; of them `wrong` had a value that is not the right one,
    and `unchecked` could not be compared: there was no truth for that version, or none for that key.  `misses` are keys
    that the server did not have.  `unsent` fell due while every connection was busy or broken, and were never sent.
    `steps_back` are answers from an older version than that server had answered with before the request was sent.
    `broken` counts connections by reason; `reconnects` those that were made again.  `rate` is answered requests a
    second.
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
    """What one version answered; the version "" are answers that name none.

    `unchecked` are values that nothing could be compared with, for want of a truth of this version.
    """

    requests: int = 0
    wrong: int = 0
    unchecked: int = 0


@dataclass(frozen=True)
class OfTarget:
    """What one target did; `name` is its URL."""

    name: str
    totals: Totals
    latency: Latency
    by_version: dict[str, OfVersion] = field(default_factory=dict)
    node: str | None = None  # Its name, if it told one.
    version: str | None = None  # Of its program.


@dataclass(frozen=True)
class OfStep:
    """What one step of the rate did: of a ramp, a second; `rate` is None in a closed loop."""

    begins_s: float
    duration_s: float
    rate: float | None
    totals: Totals
    latency: Latency
    lateness: Latency | None = None


@dataclass(frozen=True)
class Second:
    """One second of the run, by when the answers came; `t` is when it begins."""

    t: int
    requests: int = 0
    errors: int = 0  # Refused and lost.
    wrong: int = 0
    p50_us: float = 0.0
    p99_us: float = 0.0
    max_us: float = 0.0


@dataclass(frozen=True)
class Event:
    """Something that happened in the cluster, or to the test itself.

    `what` is one of `member` (`who`: the node, `detail`: "alive -> suspect"), `version` (`who`: node and database,
    `detail`: "1 -> 2"), `silent` and `answers` (`who`: the node that is watched), `frozen` (`detail`: for how long no
    target answered anything, from `t` on), `truth` (`who`: a version that came
    while it ran, `detail`: whether it could be read) and `generator` (one of our own processes ended).
    """

    t: float
    what: str
    who: str
    detail: str


@dataclass(frozen=True)
class ServerCpu:
    """What a server's process took during the run; `us_per_request` counts the requests that its targets answered."""

    cpu_s: float
    us_per_request: float | None


@dataclass(frozen=True)
class OfRound:
    """One of several equal runs."""

    totals: Totals
    latency: dict[str, Latency]
    server_cpu: dict[str, ServerCpu] = field(default_factory=dict)


@dataclass(frozen=True)
class Result:
    """The whole of a load test.

    `latency` has "all" and each kind that was asked (`get`, `get_many`, `scan`); in an open loop it counts from when a
    request was due.  `lateness` is how much later than due requests were sent, and None in a closed loop: large values
    say that connections were busy, or that the generator had no processor.  `first_wrong` says what the first wrong
    value was.  `generator_cpu_s` is what our own processes took.  `ended` is "done", "interrupted", or a sentence that
    says what cut it short.
    """

    began: str  # ISO 8601, UTC
    command: list[str]
    plan: dict[str, Json]
    machine: dict[str, Json]
    totals: Totals
    latency: dict[str, Latency]
    targets: list[OfTarget] = field(default_factory=list)
    lateness: Latency | None = None
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
        """Whether every request was answered, and every answer right."""
        totals = self.totals
        return self.ended == "done" and not (
            totals.wrong or totals.errors or totals.lost or totals.unsent or totals.steps_back or totals.broken
        )

    def to_json(self) -> dict[str, Json]:
        """The document, `format` first."""
        return {"format": self.format, **asdict(self)}


@dataclass(frozen=True)
class Progress:
    """What is known once a second while the load runs.

    `second` is the last whole one, of a run that ends its last one, whole or not; `events` are those since the last
    time; `totals` and `latency` (of all kinds) count from the first request of this round that counts.  `phase` is
    "warm-up" or "load".
    """

    phase: str
    round: int  # From 1.
    rounds: int
    elapsed_s: float  # Of this phase.
    planned_s: float
    rate_asked: float | None
    second: Second | None
    totals: Totals
    latency: Latency
    events: list[Event]
