"""`/metrics` as scrapers' own parsers read it, and `/debug/vars` beside it."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import openmetrics, parser
from prometheus_client.openmetrics import parser as openmetrics_parser

from gossipkv.errors import TimedOut, Unavailable
from gossipkv.http.metric_table import METRICS, MetricKind
from gossipkv.http.metrics import InfoCollector, as_json, debug_vars, metrics
from gossipkv.http.samples import Histogram, samples
from tests.unit.http.node_info import SPARSE, Node, counters, database, info

OPENMETRICS = b"application/json, Application/OpenMetrics-Text; version=1.0.0; charset=utf-8"
# Prometheus sends this header.
PROMETHEUS = b"application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.1"
ODD = 'n"1\\ \n<script>'


def scraped(answer):
    """Return all samples of an answer by name and labels, as Prometheus' parser finds them."""
    families = parser.text_string_to_metric_families(answer.body.decode())
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in families
        for sample in family.samples
    }


async def test_every_metric_is_scraped():
    """Each sample has its name, labels, value, type and help."""
    answer = await metrics(Node(info=info(("geo", "users"))))
    assert (answer.status, answer.headers) == (200, [(b"Content-Type", b"text/plain; version=0.0.4; charset=utf-8")])
    found = scraped(answer)
    expected = 1  # The metric of the node's identity.
    for metric in METRICS:
        for labels, sample in samples(info(("geo", "users")))[metric.name].items():
            named = tuple(sorted(zip(metric.labels, labels, strict=True)))
            suffix = {MetricKind.TEXT: "_info", MetricKind.HISTOGRAM: "_count"}.get(metric.kind, "")
            value = sample.count if isinstance(sample, Histogram) else sample
            assert found[metric.name + suffix, named] == value
            expected += len(sample.buckets) + 3 if isinstance(sample, Histogram) else 1
        assert f"# HELP {metric.name}".encode() in answer.body
    assert len(found) == expected
    for name, kind in (
        ("read_hits_total", "counter"),
        ("versions", "gauge"),
        ("request_duration_seconds", "histogram"),
    ):
        assert f"# TYPE gossipkv_{name} {kind}\n".encode() in answer.body


async def test_the_histogram_is_prometheus_own():
    """Buckets are cumulative and in seconds, the last one is infinite and equals the count."""
    found = scraped(await metrics(Node(info=info())))
    buckets = {
        dict(labels)["le"]: value
        for (name, labels), value in found.items()
        if name == "gossipkv_request_duration_seconds_bucket" and ("path", "local") in labels
    }
    assert buckets == {"8.192e-06": 1, "2e-05": 2, "5e-05": 3, "0.0001": 4, "0.001": 5, "10.0": 6, "+Inf": 7}
    assert found["gossipkv_request_duration_seconds_count", (("path", "local"),)] == 7
    assert found["gossipkv_request_duration_seconds_sum", (("path", "local"),)] == 2.5


async def test_openmetrics_is_given_to_whoever_wants_nothing_else():
    """The strict OpenMetrics parser reads the same numbers."""
    answer = await metrics(Node(info=info()), OPENMETRICS)
    assert answer.headers[0][1].startswith(b"application/openmetrics-text; version=1.0.0")
    assert answer.body.endswith(b"# EOF\n")
    families = openmetrics_parser.text_string_to_metric_families(answer.body.decode())
    strict = {(one.name, tuple(sorted(one.labels.items()))): one.value for family in families for one in family.samples}
    assert strict == scraped(await metrics(Node(info=info())))


@pytest.mark.parametrize(
    "accept",
    [
        *(
            PROMETHEUS,
            b"",
            b"*/*",
            b"application/openmetrics-text, text/plain",
            b"application/openmetrics-text,text/*;q=0.1",
        ),
        *(
            b"text/html",
            b"text/plain;version=x",
            b"text/plain; version=",
            b"\xff;=,;",
            b"," * 999,
            b"application/openmetrics",
        ),
    ],
)
async def test_any_accept_gets_something(accept):
    """Prometheus' text costs least, and is the default."""
    answer = await metrics(Node(info=info()), accept)
    assert answer.headers == [(b"Content-Type", b"text/plain; version=0.0.4; charset=utf-8")]


@given(st.binary(max_size=80) | st.text("/;,=.qversionaplicatetx0123", max_size=80).map(str.encode))
async def test_no_accept_is_a_crash(accept):
    """Any bytes in the header give one of the two forms."""
    answer = await metrics(Node(info={"counters": {}}), b"application/openmetrics-text;" + accept)
    ((_, content_type),) = answer.headers
    assert content_type in {
        b"text/plain; version=0.0.4; charset=utf-8",
        openmetrics.exposition.CONTENT_TYPE_LATEST.encode(),
    }


@pytest.mark.parametrize(("error", "status"), [(Unavailable("refused\nby all"), 502), (TimedOut("late"), 504)])
@pytest.mark.parametrize("ask", [metrics, debug_vars])
async def test_without_a_node(ask, error, status):
    """An empty answer would look like zeroes; the answer is an error of one line."""
    answer = await ask(Node(info=error))
    assert (answer.status, answer.body.count(b"\n")) == (status, 1)
    assert (b"X-GossipKV-Error", error.code.encode()) in answer.headers


async def test_each_scrape_has_its_own_verdict():
    """A scrape is one `info` and one new verdict, whose level it shows; nothing is left of an earlier one."""
    node = Node(info=info(), verdict={"level": "trouble"})
    assert scraped(await metrics(node))["gossipkv_verdict", ()] == 2
    node.answers["verdict"] = {"level": "well"}
    assert json.loads((await debug_vars(node)).body)["gossipkv_verdict"] == 0
    assert node.asked == [("info",), ("verdict",)] * 2


async def test_names_are_escaped():
    """A parser reads every name of nodes, versions and states back unchanged."""
    told = info(node=ODD, by_database={ODD: database(ODD, versions={ODD: 3})}, members_by_state={ODD: 1})
    for accept, read in ((b"", parser), (OPENMETRICS, openmetrics_parser)):
        body = (await metrics(Node(info=told), accept)).body.decode()
        found = [one for family in read.text_string_to_metric_families(body) for one in family.samples]
        labels = {one.name: one.labels for one in found}
        assert labels["gossipkv_node_info"]["node"] == ODD
        assert labels["gossipkv_active_version_info"] == {"database": ODD, "version": ODD}
        assert labels["gossipkv_versions"] == {"database": ODD, "state": ODD}


async def test_a_node_that_says_little_is_scraped():
    """Metrics without a sample are left out, also that of a verdict which is late."""
    answer = await metrics(Node(info=SPARSE, verdict=TimedOut("not in time")))
    assert "gossipkv_keys_read_total" in {name for name, _ in scraped(answer)}
    assert answer.body.count(b"# TYPE") == 1 + len(samples(SPARSE))
    assert (await metrics(Node(info=None))).status == 200


async def test_debug_vars_has_the_same_numbers():
    """Each metric has a level per label; texts and histograms with their buckets are included."""
    answer = await debug_vars(Node(info=info()))
    assert answer.headers == [(b"Content-Type", b"application/json")]
    told = json.loads(answer.body)
    assert told == json.loads(json.dumps(as_json(info())))
    assert told["gossipkv_node_info"] == {
        "node": "n1", "cluster": "trial", "version": "0.1.0", "protocol": "1", "shard_id": "3",
    }  # fmt: skip
    assert told["gossipkv_read_requests_total"] == {"geo": 50}
    assert told["gossipkv_versions"] == {"geo": {"ACTIVE": 1, "RETIRING": 2}}
    assert told["gossipkv_active_version_info"] == {"geo": "v2"}
    assert told["process_cpu_seconds_total"] == 1.25
    assert told["gossipkv_keys_read_total"] == counters()["keys_read"]
    assert told["gossipkv_request_duration_seconds"]["forwarded"] == {
        "count": 9, "sum": 0.001,
        "buckets": {"8.192e-06": 0, "2e-05": 0, "5e-05": 0, "0.0001": 7, "0.001": 8, "10.0": 9, "+Inf": 9},
    }  # fmt: skip
    suffix = {MetricKind.TEXT: "_info"}
    names = {metric.name + suffix.get(metric.kind, "") for metric in METRICS}
    assert told.keys() == names | {"gossipkv_node_info"}


def test_the_collector_is_one_of_the_library():
    """The collector can be read repeatedly, and the library's own writers accept it."""
    collector = InfoCollector(info())
    assert [family.name for family in collector.collect()] == [family.name for family in collector.collect()]
    assert openmetrics.exposition.generate_latest(collector).endswith(b"# EOF\n")
