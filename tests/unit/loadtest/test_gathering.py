"""The reports of a run's processes, joined: frozen seconds, latencies and buckets."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossipkv.address import Address
from gossipkv.loadtest.gathering import SECOND_NS, Gathering, LatencyBuckets, middle_ns, upper_ns
from gossipkv.loadtest.plan import LoadPlan, LoadStep, LoadTarget
from gossipkv.loadtest.result import PERCENTILES, LatencyResult
from gossipkv.wire.latency import LatencyHistogram

BEGUN_NS = 5 * SECOND_NS


class Run:
    """Reports of two processes, at seconds since the run began."""

    def __init__(self, rate=None):
        plan = LoadPlan(
            targets=(LoadTarget("gossipkv", Address("a", 1)),), database="db", keys="k", steps=(LoadStep(rate, 60.0),)
        )
        self.gathering = Gathering(plan, BEGUN_NS)
        self.counted = {0: {"requests": 0, "wrong": 0}, 1: {"requests": 0, "wrong": 0}}

    def hear(self, process, at_s, **more):
        """Deliver a report; return the frozen interval in seconds since the run began, or None."""
        told = self.counted[process]
        for name, number in more.items():
            told[name] = told.get(name, 0) + number if isinstance(number, int) else number
        tallies = [[0, 0, {}, None, dict(told)]] if more else []
        news = {"at_ns": BEGUN_NS + round(at_s * SECOND_NS), "tallies": tallies, "versions": []}
        return self.in_seconds(self.gathering.hear_news(process, news))

    def frozen_at_the_end(self, at_s):
        return self.in_seconds(self.gathering.frozen(BEGUN_NS + round(at_s * SECOND_NS)))

    @staticmethod
    def in_seconds(found):
        return None if found is None else tuple((at - BEGUN_NS) / SECOND_NS for at in found)


def test_a_second_without_any_answer_is_told_when_it_ends():
    """The first answer of any process ends the interval; answers of the other process prevent one."""
    run = Run()
    for quarter in range(1, 9):
        assert run.hear(0, quarter / 4, requests=5) is None
        assert run.hear(1, quarter / 4) is None
    for quarter in range(9, 14):
        assert run.hear(0, quarter / 4) is None
        assert run.hear(1, quarter / 4, lost=1) is None, "what is lost is no answer"
    assert run.frozen_at_the_end(3.25) == (2.0, 3.25)
    assert run.hear(1, 3.5, requests=1) == (2.0, 3.25)
    assert run.hear(0, 3.5, requests=1) is None
    assert run.hear(0, 4.0) is None
    assert run.hear(0, 4.25, errors={"OVERLOADED": 3}) is None
    assert run.hear(0, 4.75) is None
    assert run.hear(0, 5.0, requests=1) is None, "a refusal is an answer"
    assert run.frozen_at_the_end(5.5) is None


@pytest.mark.parametrize(("rate", "frozen"), [(5.0, None), (100.0, (0.0, 1.5))])
def test_a_slow_load_has_pauses(rate, frozen):
    """A low rate has pauses that do not count as frozen."""
    run = Run(rate)
    assert run.hear(0, 1.5) is None
    assert run.hear(0, 1.75, requests=1) == frozen


DURATIONS = st.lists(st.integers(0, 2**41), min_size=1, max_size=60)
SHARES = [0.0, 0.01, 0.5, 0.9, 0.99, 0.999, 0.9999, 1.0]


def bucket_of(ns: int) -> int:
    """Return the bucket of a duration by the documented rule."""
    if ns < 16:
        return ns
    power = ns.bit_length() - 5
    return power * 16 + (ns >> power)


def counts_of(durations: list[int]) -> LatencyBuckets:
    counts = LatencyBuckets()
    for ns in durations:
        counts.take(1, float(ns), ns, [bucket_of(ns), 1])
    return counts


@given(DURATIONS, DURATIONS)
def test_percentiles_of_a_sum_are_those_of_all(one: list[int], other: list[int]) -> None:
    """Two added histograms equal one of all durations, and agree with the extension."""
    whole = LatencyHistogram()
    for ns in one + other:
        whole.record(ns)
    counts = counts_of(one)
    counts.add(counts_of(other))
    assert counts.count == whole.count
    assert counts.quantiles_ns(SHARES) == [whole.quantile(share) for share in SHARES]
    assert counts.latency().mean_us == pytest.approx(whole.mean / 1000)


@given(DURATIONS)
def test_a_latency_says_what_the_durations_are(durations: list[int]) -> None:
    """Percentiles are exact within a 32nd, and buckets are cumulative."""
    found = counts_of(durations).latency()
    for name in PERCENTILES:
        exact = sorted(durations)[max(1, -(-len(durations) * int(float(name) * 100) // 10000)) - 1] / 1000
        assert found.percentiles[name] == pytest.approx(exact, rel=1 / 31, abs=0.0011)
    for upper_us, count in found.buckets:
        assert count == sum(ns <= upper_us * 1000 + 0.5 for ns in durations)
    assert found.buckets[-1][1] == found.count == len(durations)


@given(st.integers(0, 2**41))
def test_a_bucket_has_its_duration(ns: int) -> None:
    """A duration lies between the bounds of its bucket, and near its middle."""
    bucket = bucket_of(ns)
    assert (upper_ns(bucket - 1) if bucket else -1) < ns <= upper_ns(bucket)
    assert abs(middle_ns(bucket) - ns) <= max(1, ns / 16)


def test_nothing_says_nothing() -> None:
    """An empty histogram has no percentiles and causes no error."""
    assert LatencyBuckets().latency() == LatencyResult()
    assert LatencyBuckets().quantiles_ns([0.5, 1.0]) == [0, 0]
