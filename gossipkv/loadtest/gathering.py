"""The reports of all processes combined: totals, by step, by target, by second, by version.

A gathering covers one run, or several consecutive ones, in which each process of each run has its own number.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from math import ceil
from typing import TYPE_CHECKING, Final, final

from gossipkv.loadtest.plan import KINDS
from gossipkv.loadtest.result import PERCENTILES, Json, LatencyResult, OfStep, OfTarget, OfVersion, RunTotals, Second

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gossipkv.loadtest.plan import LoadPlan

SECOND_NS: Final = 1_000_000_000
# A run without any answer for this long is frozen: a second, less the uncertainty of quarterly news.
FROZEN_NS: Final = 750_000_000
MIN_DUE: Final = 10  # Answers expected in that time: with fewer, pauses are normal.
HALF_NEWS_NS: Final = 125_000_000  # News at the end of a quarter of a second are attributed to its middle.
NUMBERS: Final = (
    *("requests", "keys", "misses", "wrong", "unchecked", "steps_back"),
    *("lost", "reconnects", "bytes_received", "bytes_sent"),
)
BY_NAME: Final = ("errors", "broken")


@final
class Sums:
    """Counters that add up."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = defaultdict(int)
        self.by_name: dict[str, dict[str, int]] = {name: defaultdict(int) for name in BY_NAME}

    def add(self, counters: dict[str, Json]) -> None:
        """Add the counts of one process for one target in one stage."""
        for name in NUMBERS:
            self.numbers[name] += _number(counters.get(name))
        for name in BY_NAME:
            counted = counters.get(name)
            for key, count in counted.items() if isinstance(counted, dict) else ():
                self.by_name[name][key] += _number(count)

    def totals(self, duration_s: float, unsent: int = 0) -> RunTotals:
        return RunTotals(
            **{name: self.numbers[name] for name in NUMBERS},
            errors=dict(self.by_name["errors"]),
            broken=dict(self.by_name["broken"]),
            unsent=unsent,
            duration_s=duration_s,
            rate=self.numbers["requests"] / duration_s if duration_s > 0 else 0.0,
        )


@final
class _SecondCounts:
    def __init__(self) -> None:
        self.latency = LatencyBuckets()
        self.errors = 0
        self.wrong = 0


STEPS: Final = 16
NS_IN_US: Final = 1000.0
PERCENT: Final = 100.0


def upper_ns(bucket: int) -> int:
    """Return the longest duration that is counted in a bucket."""
    if bucket < STEPS:
        return bucket
    shift = bucket // STEPS - 1
    return ((bucket - shift * STEPS + 1) << shift) - 1


def middle_ns(bucket: int) -> int:
    """Return the duration that represents a bucket."""
    if bucket < STEPS:
        return bucket
    shift = bucket // STEPS - 1
    return ((bucket - shift * STEPS) << shift) + (1 << shift) // 2


@final
class LatencyBuckets:
    """Counts of durations by bucket, with the buckets of `wire/latency.pxd`.

    The extension counts; this class holds its counts in Python.  Adding is exact, so percentiles of many processes are
    those of all requests together, up to a bucket's width: a sixteenth of a power of two.
    """

    def __init__(self) -> None:
        self.count = 0
        self.total_ns = 0.0
        self.maximum_ns = 0
        self.buckets: dict[int, int] = {}

    def take(self, count: int, total_ns: float, maximum_ns: int, pairs: Sequence[int]) -> None:
        """Add the numbers of an extension's `news`: bucket and count in turn."""
        self.count += count
        self.total_ns += total_ns
        self.maximum_ns = max(self.maximum_ns, maximum_ns)
        for bucket, more in zip(pairs[::2], pairs[1::2], strict=True):
            self.buckets[bucket] = self.buckets.get(bucket, 0) + more

    def add(self, other: LatencyBuckets) -> None:
        pairs = [number for pair in other.buckets.items() for number in pair]
        self.take(other.count, other.total_ns, other.maximum_ns, pairs)

    def quantiles_ns(self, shares: Sequence[float]) -> list[int]:
        """Return the shortest times in which these ascending shares were done; 0 without counts."""
        found: list[int] = []
        ranks = [max(1, ceil(share * self.count)) for share in shares]
        seen = 0
        for bucket in sorted(self.buckets):
            seen += self.buckets[bucket]
            while len(found) < len(ranks) and ranks[len(found)] <= seen:
                is_last = ranks[len(found)] >= self.count
                found.append(self.maximum_ns if is_last else min(middle_ns(bucket), self.maximum_ns))
        return found + [self.maximum_ns] * (len(shares) - len(found))

    def latency(self) -> LatencyResult:
        if self.count == 0:
            return LatencyResult()
        quantiles = self.quantiles_ns([float(name) / PERCENT for name in PERCENTILES])
        cumulative: list[list[float]] = []
        seen = 0
        for bucket in sorted(self.buckets):
            seen += self.buckets[bucket]
            cumulative.append([min(upper_ns(bucket), self.maximum_ns) / NS_IN_US, seen])
        return LatencyResult(
            self.count,
            self.total_ns / self.count / NS_IN_US,
            {name: found / NS_IN_US for name, found in zip(PERCENTILES, quantiles, strict=True)},
            cumulative,
        )


@final
class Gathering:
    """The reports since `begun_ns`, from which seconds are counted."""

    def __init__(self, plan: LoadPlan, begun_ns: int) -> None:
        self._plan = plan
        self._begun_ns = begun_ns
        # The key is stage, target and kind.
        self._latency: dict[tuple[int, int, int], LatencyBuckets] = defaultdict(LatencyBuckets)
        self._late: dict[int, LatencyBuckets] = defaultdict(LatencyBuckets)  # The key is the stage.
        # The latest counters, by process, stage and target.
        self._counters: dict[tuple[int, int, int], dict[str, Json]] = {}
        self._versions: dict[tuple[int, int], dict[str, Json]] = {}  # The key is process and target.
        self._seconds: dict[int, _SecondCounts] = defaultdict(_SecondCounts)
        self._ended: dict[int, float] = {}  # Seconds to the last answer of each run.
        self._heard_ns: dict[int, int] = {}  # The time that the last news of each process covered.
        self._answered_ns = begun_ns  # The latest time of an answer.
        slowest = min((step.rate or MIN_DUE * SECOND_NS for step in plan.steps), default=0.0)
        self._frozen_ns = max(FROZEN_NS, round(MIN_DUE / slowest * SECOND_NS)) if slowest else FROZEN_NS
        self.all = LatencyBuckets()
        self.unsent = 0
        self.cpu_s = 0.0

    def hear_news(self, process: int, news: dict[str, Json]) -> tuple[int, int] | None:
        """Add the counts of a process since its last news.

        Returns: the bounds of a long time without any answer, if an answer in these news ends it.
        """
        at_ns = _number(news["at_ns"])
        second = self._seconds[max(0, at_ns - self._begun_ns - HALF_NEWS_NS) // SECOND_NS]
        tallies, answered = news["tallies"], 0
        for tally in tallies if isinstance(tallies, list) else ():
            assert isinstance(tally, list)
            stage, target, timings, late, counters = tally
            assert isinstance(stage, int)
            assert isinstance(target, int)
            assert isinstance(counters, dict)
            for kind, timing in timings.items() if isinstance(timings, dict) else ():
                for counts in (self._latency[stage, target, int(kind)], second.latency, self.all):
                    _take(counts, timing)
            if late is not None:
                _take(self._late[stage], late)
            before = self._counters.get((process, stage, target), {})
            answered += _answered(counters) - _answered(before)
            second.errors += _failed(counters) - _failed(before)
            second.wrong += _number(counters["wrong"]) - _number(before.get("wrong"))
            self._counters[process, stage, target] = counters
        versions = news["versions"]
        for target, counted in enumerate(versions if isinstance(versions, list) else ()):
            assert isinstance(counted, dict)
            self._versions[process, target] = counted
        since_ns, self._heard_ns[process] = self._heard_ns.get(process, self._begun_ns), at_ns
        frozen = self.frozen(since_ns) if answered else None
        if answered:
            self._answered_ns = max(self._answered_ns, at_ns)
        return frozen

    def frozen(self, until_ns: int) -> tuple[int, int] | None:
        """Return the bounds of a long time without any answer up to `until_ns`, if there was one."""
        return (self._answered_ns, until_ns) if until_ns - self._answered_ns >= self._frozen_ns else None

    def hear_done(self, run: int, report: dict[str, Json]) -> None:
        self.unsent += _number(report["unsent"])
        self.end(run, _number(report["duration_ns"]) / SECOND_NS)
        cpu_s = report["cpu_s"]
        assert isinstance(cpu_s, int | float)
        self.cpu_s += cpu_s

    def end(self, run: int, duration_s: float) -> None:
        """Note the duration of a run; the longest over all processes counts."""
        self._ended[run] = max(duration_s, self._ended.get(run, 0.0))

    @property
    def duration_s(self) -> float:
        """Return the seconds to the last answers, summed over all runs."""
        return sum(self._ended.values())

    @property
    def first_wrong(self) -> str | None:
        """Return the first wrong value in words, of the first process that met one."""
        found = (counters.get("first_wrong") for _, counters in sorted(self._counters.items()))
        return next((text for text in found if isinstance(text, str)), None)

    def totals(self, duration_s: float | None = None) -> RunTotals:
        """Return the totals; during a run, for a duration of `duration_s`."""
        sums = self._sums(self._counters.values())
        return sums.totals(self.duration_s if duration_s is None else duration_s, self.unsent)

    def latency(self) -> dict[str, LatencyResult]:
        found = {"all": self.all.latency()}
        for number, kind in enumerate(KINDS):
            if self._plan.mix.get(kind, 0):
                found[kind] = self._merged(key for key in self._latency if key[2] == number).latency()
        return found

    def lateness(self) -> LatencyResult | None:
        """Return how late requests were sent; None in a closed loop."""
        found = LatencyBuckets()
        for late in self._late.values():
            found.add(late)
        return found.latency() if self._plan.is_open else None

    def targets(self) -> list[OfTarget]:
        found = []
        for target, name in enumerate(self._plan.targets):
            sums = self._sums(counters for key, counters in self._counters.items() if key[2] == target)
            latency = self._merged(key for key in self._latency if key[1] == target).latency()
            found.append(OfTarget(str(name), sums.totals(self.duration_s), latency, self.versions(target)))
        return found

    def steps(self) -> list[OfStep]:
        found = []
        begins_s = 0.0
        for stage, step in enumerate(self._plan.steps):
            sums = self._sums(counters for key, counters in self._counters.items() if key[1] == stage)
            latency = self._merged(key for key in self._latency if key[0] == stage).latency()
            late = self._late[stage].latency() if self._plan.is_open else None
            # If a run was cut short, its last step was, too.
            lasted_s = min(step.duration_s, max(0.0, self.duration_s / max(1, len(self._ended)) - begins_s))
            totals = sums.totals(lasted_s * max(1, len(self._ended)))
            found.append(OfStep(begins_s, step.duration_s, step.rate, totals, latency, late))
            begins_s += step.duration_s
        return found

    def versions(self, target: int | None = None) -> dict[str, OfVersion]:
        """Return the answers by version, of one target or all."""
        found: dict[str, OfVersion] = {}
        for (_, of), counted in self._versions.items():
            for name, counts in counted.items() if target in {None, of} else ():
                assert isinstance(counts, list)
                requests, wrong, unchecked = (_number(number) for number in counts)
                before = found.get(name, OfVersion())
                found[name] = OfVersion(before.requests + requests, before.wrong + wrong, before.unchecked + unchecked)
        return dict(sorted(found.items()))

    def seconds(self) -> list[Second]:
        """Return every second so far, including those without an answer."""
        last = max(self._seconds, default=-1)
        return [self.second(at) for at in range(last + 1)]

    def second(self, at: int) -> Second:
        found = self._seconds.get(at, _SecondCounts())
        p50, p99, longest = found.latency.quantiles_ns([0.5, 0.99, 1.0])
        latencies_us = (p50 / NS_IN_US, p99 / NS_IN_US, longest / NS_IN_US)
        return Second(at, found.latency.count, found.errors, found.wrong, *latencies_us)

    def _merged(self, keys: Iterable[tuple[int, int, int]]) -> LatencyBuckets:
        found = LatencyBuckets()
        for key in list(keys):
            found.add(self._latency[key])
        return found

    @staticmethod
    def _sums(reports: Iterable[dict[str, Json]]) -> Sums:
        found = Sums()
        for counters in reports:
            found.add(counters)
        return found


def unknown_versions(news: dict[str, Json]) -> set[str]:
    """Return the unknown versions that occur in a process's news."""
    versions = news["versions"]
    found: set[str] = set()
    for counted in versions if isinstance(versions, list) else ():
        assert isinstance(counted, dict)
        found.update(name for name, counts in counted.items() if isinstance(counts, list) and _number(counts[2]))
    return found


def with_faults(totals: RunTotals, before: RunTotals) -> RunTotals:
    """Add the faults of `before` to the totals."""
    return replace(
        totals,
        wrong=totals.wrong + before.wrong,
        steps_back=totals.steps_back + before.steps_back,
        lost=totals.lost + before.lost,
        unsent=totals.unsent + before.unsent,
        reconnects=totals.reconnects + before.reconnects,
        errors=_sum(totals.errors, before.errors),
        broken=_sum(totals.broken, before.broken),
    )


def with_wrong(versions: dict[str, OfVersion], before: dict[str, OfVersion]) -> dict[str, OfVersion]:
    """Add the wrong values of `before`; its requests and unchecked values are not counted."""
    found = dict(versions)
    for name, of in before.items():
        if of.wrong:
            counted = versions.get(name, OfVersion())
            found[name] = replace(counted, wrong=counted.wrong + of.wrong)
    return dict(sorted(found.items()))


def _sum(first: dict[str, int], second: dict[str, int]) -> dict[str, int]:
    return {name: first.get(name, 0) + second.get(name, 0) for name in first | second}


def _take(counts: LatencyBuckets, timing: Json) -> None:
    assert isinstance(timing, list)
    count, total_ns, maximum_ns, pairs = timing
    assert isinstance(total_ns, int | float)
    assert isinstance(pairs, list)
    counts.take(_number(count), total_ns, _number(maximum_ns), [_number(number) for number in pairs])


def _failed(counters: dict[str, Json]) -> int:
    errors = counters.get("errors")
    refused = errors.values() if isinstance(errors, dict) else ()
    return _number(counters.get("lost")) + sum(map(_number, refused))


def _answered(counters: dict[str, Json]) -> int:
    return _number(counters.get("requests")) + _failed(counters) - _number(counters.get("lost"))


def _number(value: Json) -> int:
    return value if isinstance(value, int) else 0
