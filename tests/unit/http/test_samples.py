"""From `info` to samples: each number in its metric with its labels, and nothing made up."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossipkv.http.answers import STATUS_BY_CODE
from gossipkv.http.metric_table import METRICS, MetricKind
from gossipkv.http.samples import Histogram, samples
from tests.unit.http.node_info import SPARSE, counters, database, histogram, info, metric_at


def test_every_metric_is_found():
    """A node that says everything has samples of every metric of the table."""
    assert samples(info()).keys() == {metric.name for metric in METRICS}


def test_labels_come_from_the_path():
    """What a star stood for is the label: the database, the state, the rest of a counter's name."""
    found = samples(info(("geo", "users")))
    assert found["gossipkv_read_requests_total"] == {("geo",): 50, ("users",): 50}
    assert found["gossipkv_versions"][("users", "RETIRING")] == 2
    assert found["gossipkv_members"] == {("alive",): 3, ("suspect",): 1, ("dead",): 0, ("left",): 2}
    assert found["gossipkv_gossip_dropped_total"][("checksum",)] == 7
    assert found["gossipkv_active_version"] == {("geo", "v2"): 1, ("users", "v2"): 1}


def test_the_longest_beginning_is_meant():
    """`gossip_asks_failed_…` is not one of the other counters of gossip, whose names it begins like."""
    found = samples(info())
    assert found["gossipkv_gossip_ask_failures_total"] == {("econnrefused",): 10}
    events = found["gossipkv_gossip_events_total"]
    assert (events[("asks_refused",)], events[("refutations",)]) == (11, 12)
    assert not [label for (label,) in events if label.startswith(("dropped_", "asks_failed_", "send_failed_", "lost"))]


def test_errors_by_code_are_complete():
    """Refusals of the loop and of Python make one number a code, in the wire's capitals."""
    told = counters() | {"bad_requests": 10, "duplicate_ids": 20, "overloaded": 30, "replies_too_large": 40}
    found = samples(info(counters=told | {"errors_overloaded": 5}))["gossipkv_errors_total"]
    assert found[("BAD_REQUEST",)] == 10 + 20 + 4
    assert (found[("OVERLOADED",)], found[("TOO_LARGE",)], found[("UNKNOWN_DATABASE",)]) == (35, 40, 3)


def test_a_first_event_is_seen_as_growth():
    """Codes, reasons and events that did not happen yet are 0, and not absent: a rate over them sees the first one."""
    found = samples({"counters": {}})
    assert found.keys() >= {
        "gossipkv_errors_total",
        "gossipkv_gossip_events_total",
        "gossipkv_connections_closed_total",
    }
    assert found["gossipkv_errors_total"] == {(code,): 0 for code in STATUS_BY_CODE}
    assert found["gossipkv_gossip_events_total"][("defects",)] == 0
    assert found["gossipkv_connections_closed_total"][("memory",)] == 0


def test_units_are_base_units():
    """Milliseconds and microseconds become seconds."""
    found = samples(info())
    assert found["gossipkv_active_version_timestamp_seconds"] == {("geo",): 1_700_000_000.25}
    assert found["process_start_time_seconds"] == {(): 1_700_000_001.5}
    assert found["process_cpu_seconds_total"] == {(): 1.25}
    local = found["gossipkv_request_duration_seconds"][("local",)]
    assert local == Histogram(((8.192e-06, 1), (2e-05, 2), (5e-05, 3), (0.0001, 4), (0.001, 5), (10.0, 6)), 7, 2.5)


def test_words_become_whether_there_are_any():
    """A reason is 1, none is 0; a list is its length; a flag is 0 or 1."""
    names = (
        "silent",
        "publish_refused",
        "names_claimed_twice",
        "source_unreadable",
        "isolated",
        "draining",
        "tables_closed",
        "tables_log_damaged",
    )
    well = samples(info())
    assert [well[f"gossipkv_{name}"][()] for name in names] == [0] * 8
    ill = samples(
        info(
            silent="full", publish_error="", claimed_twice=["a", "b"], source_error="denied", isolated=True,
            ready={"joined": True, "opened": True, "draining": True},
            tables={"state": "closed", "why": "lost", "log_damage": "a bit"},
        )
    )  # fmt: skip
    assert [ill[f"gossipkv_{name}"][()] for name in names] == [1, 1, 2, 1, 1, 1, 1, 1]


def test_a_node_that_says_little_has_fewer():
    """What it does not say is absent and not 0."""
    found = samples(SPARSE)
    assert "gossipkv_connections_accepted_total" in found
    for name in ("read_requests_total", "request_duration_seconds", "members", "active_version", "joined"):
        assert f"gossipkv_{name}" not in found
    assert samples({}) == {}


def test_a_database_without_a_version():
    """Version and time that are nil have no sample, what is counted has."""
    found = samples(info(by_database={"geo": database(None, time=None, versions={"BUILDING": 1})}))
    assert "gossipkv_active_version" not in found
    assert "gossipkv_active_version_timestamp_seconds" not in found
    assert found["gossipkv_versions"] == {("geo", "BUILDING"): 1}


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"count": 3},
        {"count": 3, "sum_us": 1, "buckets": None},
        {"count": None, "sum_us": 1, "buckets": [[10, 3]]},
        {"count": 3, "sum_us": None, "buckets": [[10, 3]]},
        {"count": 3, "sum_us": 1, "buckets": [[10]]},
        {"count": 3, "sum_us": 1, "buckets": [["10", 3]]},
        histogram(1, 2, 3, 4, 5, 6) | {"buckets": [[10, 2], [20, 1]]},
        histogram(1, 2, 3, 4, 5, 6) | {"buckets": [[20, 1], [10, 2]]},
        histogram(1, 2, 3, 4, 5, 6) | {"buckets": [[10, 1], [10, 2]]},
        histogram(1, 2, 3, 4, 5, 6) | {"count": 5},
    ],
)
def test_a_histogram_that_makes_no_sense_is_left_out(wrong):
    """No buckets, or such as fall: none is told, rather than one that nobody can read; the others are."""
    found = samples(info(latency={"local": wrong, "forwarded": histogram(1, 2, 3, 4, 5, 6)}))
    assert found["gossipkv_request_duration_seconds"].keys() == {("forwarded",)}


def test_no_place_is_for_two():
    """Each counter that the table names belongs to the metric that names it, and to no other."""
    for metric in METRICS:
        for place in metric.places:
            assert metric_at(tuple(name.replace("*", "x") for name in place.path)) is metric


def test_what_is_not_in_the_table_has_no_metric():
    """A field that nobody knows belongs to nothing, and is not told."""
    assert metric_at(("counters", "moons")) is None
    assert metric_at(("by_database", "geo", "moons")) is None
    assert metric_at(("moons", "counters", "gets")) is None
    assert samples(info() | {"moons": 3}) == samples(info())


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3) | st.binary(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["v", "buckets", b"v"]), inner, max_size=3)
    ),
    max_leaves=8,
)
PATHS = sorted({place.path for metric in METRICS for place in metric.places})


@given(st.lists(st.tuples(st.sampled_from(PATHS), st.integers(0, 4), VALUES), max_size=12))
def test_nonsense_is_no_crash(planted):
    """Any value at any place, or anywhere above it: numbers or histograms by as many labels as the metric has."""
    told = info()
    for path, depth, value in planted:
        at = told
        for name in path[: min(depth, len(path) - 1)]:
            key = name.replace("*", "x")
            at[key] = at[key] if isinstance(at.get(key), dict) else {}
            at = at[key]
        at[path[min(depth, len(path) - 1)].replace("*", "x")] = value
    by_name = {metric.name: metric for metric in METRICS}
    for name, by_labels in samples(told).items():
        for labels, sample in by_labels.items():
            assert len(labels) == len(by_name[name].labels)
            assert isinstance(sample, Histogram if by_name[name].kind is MetricKind.HISTOGRAM else int | float)
