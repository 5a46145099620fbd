"""Counters of a node, second by second."""

from __future__ import annotations

import pytest

from gossipkv.http.page.history import KEPT, LONGEST_S, NodeHistory
from gossipkv.status.codec import decode
from gossipkv.status.reports import InfoReport


def info(gets=0, errors=0, **latency):
    """Return a node's counters since its start."""
    counters = {"gets": gets, "scans": 1, "errors_internal": errors}
    return decode(InfoReport, {"counters": counters, "latency": latency})


def counted(*buckets, sum_us=0):
    """Return a histogram of (bound, cumulative count) buckets."""
    return {"count": buckets[-1][1], "sum_us": sum_us, "buckets": [list(bucket) for bucket in buckets]}


def intervals(*looks):
    """Return the intervals between reports that are a second apart."""
    history = NodeHistory()
    for at_s, look in enumerate(looks):
        history.add(float(at_s), look)
    return history.intervals()


def test_what_happened_between_two_looks():
    """Rates and percentiles cover this interval alone; requests answered by other nodes are counted apart."""
    before = info(100, 3, local=counted((10, 90), (100, 100), sum_us=1000), forwarded=counted((10, 0), (100, 5)))
    after = info(300, 5, local=counted((10, 90), (100, 300), sum_us=21_000), forwarded=counted((10, 9), (100, 14)))
    (found,) = intervals(before, after)
    assert (found.requests_per_s, found.errors_per_s) == (200, 2)
    assert (found.here.p50_us, found.here.p99_us, found.here.mean_us) == (100, 100, 100)
    assert (found.elsewhere.p50_us, found.elsewhere.p99_us) == (10, 10)


def test_the_percentile_is_the_bound_of_the_bucket_that_reaches_it():
    """The median and the 99th percentile are exact in the middle of buckets and at their edges."""
    look = counted((10, 50), (20, 98), (50, 99), (100, 100))
    (found,) = intervals(info(local=counted((10, 0), (20, 0), (50, 0), (100, 0))), info(local=look))
    assert (found.here.p50_us, found.here.p99_us) == (10, 50)


def test_a_node_without_buckets_has_a_mean():
    (found,) = intervals(info(local={"count": 10, "sum_us": 50.0}), info(local={"count": 30, "sum_us": 450.0}))
    assert (found.here.p99_us, found.here.mean_us) == (None, 20)
    assert found.elsewhere.mean_us is None


def test_a_second_without_requests_has_no_latency():
    """An unknown latency is None and not zero."""
    (found,) = intervals(info(5, local=counted((10, 5))), info(5, local=counted((10, 5))))
    assert (found.requests_per_s, found.here.p50_us, found.here.mean_us) == (0, None, None)


@pytest.mark.parametrize("later", [info(3), info(10, -1), info(10, local={"count": 0})])
def test_a_node_that_was_started_again_begins_anew(later):
    """A counter that falls shows a restart of the node."""
    assert intervals(info(10, local={"count": 7}), later) == []


def test_what_nobody_looked_at_is_left_out():
    """Intervals of minutes are left out, and so are two reports of the same moment."""
    history = NodeHistory()
    for at_s in (0.0, 1.0, 1.0 + LONGEST_S + 1, 2.0 + LONGEST_S + 1, 2.0 + LONGEST_S + 1):
        history.add(at_s, info())
    assert [found.end_s for found in history.intervals()] == [1.0, 2.0 + LONGEST_S + 1]


def test_memory_is_bounded():
    """Five minutes are kept."""
    history = NodeHistory()
    for at_s in range(3 * KEPT):
        history.add(float(at_s), info(at_s))
    assert len(history.intervals()) == KEPT - 1
    assert history.intervals()[-1].end_s == 3 * KEPT - 1


@pytest.mark.parametrize("buckets", [None, "x", [1], [[1]], [["a", 2]], [[1, 2, 3]]])
def test_buckets_that_are_none_are_not_believed(buckets):
    """A histogram with invalid buckets has a mean and no percentiles."""
    before, after = ({"count": count, "sum_us": count, "buckets": buckets} for count in (0, 10))
    (found,) = intervals(info(local=before), info(local=after))
    assert (found.here.p50_us, found.here.mean_us) == (None, 1)
