"""From `info` to samples: each number is in its metric with its labels, and none is invented."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossipkv.http.answers import STATUS_BY_CODE
from gossipkv.http.metric_table import METRICS, MetricKind
from gossipkv.http.samples import Histogram, samples
from tests.unit.http.node_info import SPARSE, counters, database, histogram, info, metric_at


def test_every_metric_is_found():
    assert samples(info()).keys() == {metric.name for metric in METRICS}


def test_labels_come_from_the_path():
    """A star of the path becomes the label: the database, the state, or the rest of a counter's name."""
    found = samples(info(("geo", "users")))
    assert found["gossipkv_read_requests_total"] == {("geo",): 50, ("users",): 50}
    assert found["gossipkv_versions"][("users", "RETIRING")] == 2
    assert found["gossipkv_members"] == {("alive",): 3, ("suspect",): 1, ("dead",): 0, ("left",): 2}
    assert found["gossipkv_gossip_dropped_total"][("checksum",)] == 7
    assert found["gossipkv_active_version"] == {("geo", "v2"): 1, ("users", "v2"): 1}


def test_the_longest_beginning_is_meant():
    """`gossip_asks_failed_…` is not an event, though the prefix of events matches as well."""
    found = samples(info())
    assert found["gossipkv_gossip_ask_failures_total"] == {("econnrefused",): 10}
    events = found["gossipkv_gossip_events_total"]
    assert (events[("asks_refused",)], events[("refutations",)]) == (11, 12)
    assert not [label for (label,) in events if label.startswith(("dropped_", "asks_failed_", "send_failed_", "lost"))]


def test_errors_by_code_are_complete():
    """Errors from the loop and from Python add up by code."""
    told = counters() | {"bad_requests": 10, "duplicate_ids": 20, "overloaded": 30, "replies_too_large": 40}
    found = samples(info(counters=told | {"errors_overloaded": 5}))["gossipkv_errors_total"]
    assert found[("BAD_REQUEST",)] == 10 + 20 + 4
    assert (found[("OVERLOADED",)], found[("TOO_LARGE",)], found[("UNKNOWN_DATABASE",)]) == (35, 40, 3)


def test_a_first_event_is_seen_as_growth():
    """Codes, reasons and events start at 0, so that a rate sees the first one."""
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
    found = samples(info())
    assert found["gossipkv_active_version_timestamp_seconds"] == {("geo",): 1_700_000_000.25}
    assert found["process_start_time_seconds"] == {(): 1_700_000_001.5}
    assert found["process_cpu_seconds_total"] == {(): 1.25}
    local = found["gossipkv_request_duration_seconds"][("local",)]
    assert local == Histogram(((8.192e-06, 1), (2e-05, 2), (5e-05, 3), (0.0001, 4), (0.001, 5), (10.0, 6)), 7, 2.5)


def test_words_become_whether_there_are_any():
    """A reason counts as 1, a list as its length and a flag as 0 or 1."""
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
    """A missing field gives no sample, and not 0."""
    found = samples(SPARSE)
    assert "gossipkv_connections_accepted_total" in found
    for name in ("read_requests_total", "request_duration_seconds", "members", "active_version", "joined"):
        assert f"gossipkv_{name}" not in found
    assert samples({}) == {}


def test_a_database_without_a_version():
    """Nil version and time give no sample; counts do."""
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
    """A histogram with missing or falling buckets is omitted; the others stay."""
    found = samples(info(latency={"local": wrong, "forwarded": histogram(1, 2, 3, 4, 5, 6)}))
    assert found["gossipkv_request_duration_seconds"].keys() == {("forwarded",)}


def test_no_place_is_for_two():
    for metric in METRICS:
        for place in metric.places:
            assert metric_at(tuple(name.replace("*", "x") for name in place.path)) is metric


def test_what_is_not_in_the_table_has_no_metric():
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
    """Values of any type at any place give samples with the right labels and types."""
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
