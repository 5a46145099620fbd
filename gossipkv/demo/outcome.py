"""The counts of a run of the demo, and the bounds that each of them must keep."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple, final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gossipkv.wire.rpc import Value

MAX_TOLD_FAILURES: Final = 3  # Enough to see the cause.


class Required(NamedTuple):
    """A count that must keep its bounds: its name, its least and most values, and its words for people."""

    name: str
    least: int
    most: int | None
    words: str


@final
@dataclass(slots=True)
class DemoOutcome:
    """The numbers of a run."""

    required: tuple[Required, ...]
    counts: Counter[str] = field(default_factory=Counter)
    versions: list[str] = field(default_factory=list)
    records: list[int] = field(default_factory=list)
    reads_per_s: int = 0
    latency: dict[str, dict[str, float]] = field(default_factory=dict)  # By phase, in the form of the histogram.
    seconds: float = 0.0
    trouble: list[str] = field(default_factory=list)  # The first failures, in words.

    def fail(self, why: str) -> None:
        """Count a failure, and remember the first few."""
        self.counts["failures"] += 1
        if len(self.trouble) < MAX_TOLD_FAILURES:
            self.trouble.append(why)

    def holds(self, name: str) -> bool:
        """Return True if that count is within its bounds."""
        required = next(bound for bound in self.required if bound.name == name)
        return self.counts[name] >= required.least and (required.most is None or self.counts[name] <= required.most)

    @property
    def is_success(self) -> bool:
        """True if every required count is within its bounds."""
        return all(self.holds(required.name) for required in self.required)

    def to_map(self) -> dict[str, Value]:
        """Return everything as plain values, the counts beside the rest."""
        return {
            **{required.name: self.counts[required.name] for required in self.required},
            "unknown": self.counts["unknown"],
            "versions": [*self.versions],
            "records": [*self.records],
            "reads_per_s": self.reads_per_s,
            "latency": {phase: {**summary} for phase, summary in self.latency.items()},
            "seconds": self.seconds,
            "trouble": [*self.trouble],
            "success": self.is_success,
        }

    def report(self) -> Iterable[str]:
        """Yield the numbers for people, a line each, with their bounds."""
        for name, least, most, words in self.required:
            wanted = "none" if most == 0 else f"at least {least:,}"
            verdict = "ok" if self.holds(name) else "NOT OK"
            yield f"{words:<36}{self.counts[name]:>10,}   {wanted:<18}{verdict}"
        yield f"{'reads per second':<36}{self.reads_per_s:>10,}   every answer was checked"
        yield ""
        yield f"{'latency of answers':<36}{'p50':>10}{'p99':>12}"
        for phase, summary in self.latency.items():
            p50_ms, p99_ms = summary["p50_us"] / 1000, summary["p99_us"] / 1000
            yield f"{phase:<36}{p50_ms:>7.1f} ms{p99_ms:>9.1f} ms   of {summary['count']:,.0f}"
        yield from (f"failure: {line}" for line in self.trouble)
