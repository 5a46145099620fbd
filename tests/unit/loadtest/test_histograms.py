"""Histograms outside of the extension: the very numbers that it has inside."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossipkv.loadtest.histograms import Counts, middle_ns, upper_ns
from gossipkv.loadtest.result import PERCENTILES, Latency
from gossipkv.wire.latency import LatencyHistogram

DURATIONS = st.lists(st.integers(0, 2**41), min_size=1, max_size=60)
SHARES = [0.0, 0.01, 0.5, 0.9, 0.99, 0.999, 0.9999, 1.0]


def bucket_of(ns: int) -> int:
    """The bucket of a duration, by the description."""
    if ns < 16:
        return ns
    power = ns.bit_length() - 5
    return power * 16 + (ns >> power)


def counts_of(durations: list[int]) -> Counts:
    """As an extension tells them."""
    counts = Counts()
    for ns in durations:
        counts.take(1, float(ns), ns, [bucket_of(ns), 1])
    return counts


@given(DURATIONS, DURATIONS)
def test_percentiles_of_a_sum_are_those_of_all(one: list[int], other: list[int]) -> None:
    """Two histograms added up are one of all durations, and say what the extension says of it."""
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
    """Percentiles within a 32nd of the exact ones, and buckets that hold all that took at most that."""
    found = counts_of(durations).latency()
    for name in PERCENTILES:
        exact = sorted(durations)[max(1, -(-len(durations) * int(float(name) * 100) // 10000)) - 1] / 1000
        assert found.percentiles[name] == pytest.approx(exact, rel=1 / 31, abs=0.0011)
    for upper_us, count in found.buckets:
        assert count == sum(ns <= upper_us * 1000 + 0.5 for ns in durations)
    assert found.buckets[-1][1] == found.count == len(durations)


@given(st.integers(0, 2**41))
def test_a_bucket_has_its_duration(ns: int) -> None:
    """A duration lies below the bound of its bucket and above that of the one before; the middle between them."""
    bucket = bucket_of(ns)
    assert (upper_ns(bucket - 1) if bucket else -1) < ns <= upper_ns(bucket)
    assert abs(middle_ns(bucket) - ns) <= max(1, ns / 16)


def test_nothing_says_nothing() -> None:
    """No duration: no percentile, and no error."""
    assert Counts().latency() == Latency()
    assert Counts().quantiles_ns([0.5, 1.0]) == [0, 0]
