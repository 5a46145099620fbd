"""The histogram against an oracle that keeps every duration, and at its edges."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossipkv.wire.latency import RANGE_NS, LatencyHistogram
from tests.oracle import histogram as oracle

LONGEST = 2**64 - 1
# Any duration, and the edges of buckets: sixteenths of a power of two and their neighbours.
EDGES = st.builds(
    lambda sixteenths, shift, off: max(0, (sixteenths << shift) + off),
    st.integers(16, 32),
    st.integers(0, 37),
    st.integers(-1, 1),
).filter(lambda ns: ns < RANGE_NS)
DURATIONS = st.integers(0, 100) | EDGES | st.integers(0, RANGE_NS - 1)
COUNTED = st.lists(st.tuples(DURATIONS, st.integers(0, 5)), max_size=40)
SHARES = st.sampled_from([0.0, 0.5, 0.9, 0.99, 0.999, 1.0]) | st.floats(0, 1)


def both(counted: list[tuple[int, int]]) -> tuple[LatencyHistogram, oracle.Durations]:
    ours, plain = LatencyHistogram(), oracle.Durations()
    for ns, count in counted:
        ours.record(ns, count)
        plain.record(ns, count)
    return ours, plain


@given(COUNTED, SHARES)
def test_answers_are_the_oracles_within_a_32nd(counted: list[tuple[int, int]], share: float) -> None:
    """Count and maximum are exact, the mean up to rounding, a quantile off by at most 1/32 of itself."""
    ours, plain = both(counted)
    assert (ours.count, ours.maximum) == (len(plain.kept), plain.maximum)
    assert ours.mean == pytest.approx(plain.mean, rel=1e-12)
    assert abs(ours.quantile(share) - plain.quantile(share)) * 32 <= plain.quantile(share)


@given(COUNTED, COUNTED, SHARES)
def test_added_is_counted_together(first: list[tuple[int, int]], second: list[tuple[int, int]], share: float) -> None:
    """A sum answers as a single histogram of all would, and the other operand is unchanged."""
    ours, _ = both(first)
    other, _ = both(second)
    before = other.to_map()
    ours.add(other)
    together, _ = both(first + second)
    assert (ours.count, ours.maximum, ours.quantile(share)) == (
        together.count,
        together.maximum,
        together.quantile(share),
    )
    assert ours.mean == pytest.approx(together.mean, rel=1e-12)
    assert other.to_map() == before


@given(COUNTED)
def test_buckets_are_the_oracles(counted: list[tuple[int, int]]) -> None:
    """Each bucket counts exactly the durations below its bound; the sum is the oracle's up to rounding."""
    ours, plain = both(counted)
    assert [count for _, count in ours.buckets()] == [plain.below(us) for us, _ in ours.buckets()]
    assert ours.total == pytest.approx(sum(plain.kept), rel=1e-12)


def test_bounds_of_buckets() -> None:
    """Bounds are powers of two in ns, from below 10 us to beyond 10 s; longer durations are in no bucket."""
    ours, _ = both([(RANGE_NS - 1, 1), (1 << 34, 1), ((1 << 34) - 1, 1)])
    assert [us for us, _ in ours.buckets()] == [(1 << bits) / 1000 for bits in range(13, 35)]
    assert (ours.buckets()[0][0], ours.buckets()[-1]) == (8.192, (17_179_869.184, 1))


@given(DURATIONS)
def test_one_duration_is_all_its_quantiles(ns: int) -> None:
    ours, _ = both([(ns, 1)])
    assert {ours.quantile(share) for share in (0.0, 0.5, 1.0)} == {ns}


@given(st.lists(DURATIONS, min_size=1, max_size=40), SHARES, SHARES)
def test_quantiles_grow(durations: list[int], one: float, other: float) -> None:
    ours, _ = both([(ns, 1) for ns in durations])
    assert ours.quantile(min(one, other)) <= ours.quantile(max(one, other)) <= ours.maximum


def test_the_empty_one() -> None:
    assert set(LatencyHistogram().to_map().values()) == {0}
    assert LatencyHistogram().quantile(0.5) == 0


@pytest.mark.parametrize("ns", [RANGE_NS, RANGE_NS + 1, LONGEST])
def test_beyond_the_range(ns: int) -> None:
    """A longer duration counts in the last bucket, and the maximum stays exact."""
    ours, _ = both([(ns, 3), (RANGE_NS - 1, 1)])
    assert ours.maximum == ns
    assert RANGE_NS * 31 // 32 <= ours.quantile(0.5) <= RANGE_NS
    assert ours.mean == pytest.approx((3 * ns + RANGE_NS - 1) / 4)


def test_as_a_map() -> None:
    """The map has microseconds under the names that `info` uses."""
    ours, plain = both([(1000 * us, 1) for us in range(1, 1001)])
    answer = ours.to_map()
    assert list(answer) == ["count", "mean_us", "p50_us", "p90_us", "p99_us", "p999_us", "max_us"]
    assert (answer["count"], answer["mean_us"], answer["max_us"]) == (1000, 500.5, 1000.0)
    for name, share in (("p50_us", 0.5), ("p90_us", 0.9), ("p99_us", 0.99), ("p999_us", 0.999)):
        assert answer[name] == pytest.approx(plain.quantile(share) / 1000, rel=1 / 32)


@pytest.mark.parametrize("share", [-0.1, 1.1, float("nan")])
def test_no_such_share(share: float) -> None:
    with pytest.raises(ValueError, match="share"):
        LatencyHistogram().quantile(share)


@pytest.mark.parametrize("wrong", [-1, LONGEST + 1])
def test_no_such_duration(wrong: int) -> None:
    """Negative numbers and numbers over 64 bits are refused, and nothing is counted."""
    ours = LatencyHistogram()
    for arguments in ((wrong, 1), (1, wrong)):
        with pytest.raises(OverflowError):
            ours.record(*arguments)
    assert ours.count == 0
