"""The table of metrics follows Prometheus' rules, and agrees with alerts and dashboard."""

from __future__ import annotations

import json
import re
from pathlib import Path

from gossipkv.errors import GossipKVError
from gossipkv.http.metric_table import METRICS, MetricKind
from gossipkv.http.metrics import InfoCollector
from tests.unit.http.node_info import info

ROOT = Path(__file__).parents[3]
OPERATORS = ROOT / "docs" / "operators"
ALERTS = OPERATORS / "alerts.yml"
FIRED = Path(__file__).with_name("alerts_test.yml")
DASHBOARD = json.loads((OPERATORS / "grafana-dashboard.json").read_text(encoding="utf-8"))

NAME = re.compile(r"\b(?:gossipkv|process)_\w+|\bup\b")
BY_PROMETHEUS = {"up"}  # Prometheus makes this metric itself.


def scraped():
    """Return the label names of each sample, without those that Prometheus adds."""
    found = {sample.name: sample.labels for family in InfoCollector(info()).collect() for sample in family.samples}
    return {name: set(labels) for name, labels in found.items()}


def expressions():
    folded = re.sub(r"expr: >-\n\s+", "expr: ", ALERTS.read_text(encoding="utf-8"))
    alerts = re.findall(r"expr: (.*?)\n\s+(?:for|labels):", folded, re.DOTALL)
    assert len(alerts) == len(names_of_alerts(ALERTS))
    return alerts + [text for text, _ in dashboard_expressions()]


def dashboard_expressions():
    """Return every expression of the dashboard with the title of its panel."""
    targets = [(target["expr"], panel["title"]) for panel in DASHBOARD["panels"] for target in panel.get("targets", ())]
    marks = [(mark["expr"], mark["name"]) for mark in DASHBOARD["annotations"]["list"]]
    asked = [each for each in DASHBOARD["templating"]["list"] if each["type"] == "query"]
    wanted = [re.fullmatch(r"label_values\((.*), (\w+)\)", each["definition"]) for each in asked]
    return targets + marks + [(f"sum by ({each[2]}) ({each[1]})", "variable") for each in wanted]


def names_of_alerts(path):
    return re.findall(r'(?:alert: |alertname=")(\w+)', path.read_text(encoding="utf-8"))


def test_names_follow_prometheus_rules():
    """Only counters end in `_total`; units are base units; names are unique and do not contain the type."""
    names = [metric.name for metric in METRICS]
    assert len(set(names)) == len(names)
    for metric in METRICS:
        assert re.fullmatch(r"(gossipkv|process)_[a-z]+(_[a-z]+)*", metric.name)
        assert metric.name.endswith("_total") is (metric.kind is MetricKind.COUNTER)
        assert not set(metric.name.split("_")) & {"ms", "us", "kib", "mib", "percent", "counter", "gauge", "histogram"}
        assert metric.help.endswith(".")


def test_labels_fit_their_places():
    """Fixed labels, stars and the text of a `MetricKind.TEXT` are as many as the metric's labels."""
    for metric in METRICS:
        for place in metric.places:
            stars = sum(name.endswith("*") for name in place.path)
            assert len(place.labels) + stars + (metric.kind is MetricKind.TEXT) == len(metric.labels), metric.name
        assert not metric.shown or len(metric.labels) == 1


def test_nothing_is_by_partition_or_key():
    """No label grows with the data."""
    labels = {label for metric in METRICS for label in metric.labels}
    of_requests = {"database", "version", "method", "code", "path", "limit", "reason", "fate"}
    assert labels == of_requests | {"state", "event", "resident", "table", "node"}


def test_every_code_is_foreseen():
    """Each error code of a node is a label from the start."""
    (errors,) = [metric for metric in METRICS if metric.name == "gossipkv_errors_total"]
    told, codes = [GossipKVError], {"INTERNAL"}
    while told:
        error = told.pop()
        codes.add(error.code)
        told += error.__subclasses__()
    assert codes <= set(errors.shown)


def test_expressions_name_metrics_that_exist():
    """Alerts and dashboard use existing metrics with the labels that these have."""
    known = scraped()
    for text in expressions():
        bare = re.sub(r'"[^"]*"', '""', text)
        assert set(NAME.findall(bare)) <= known.keys() | BY_PROMETHEUS, text
        for name, selected in re.findall(r"(\w+)\{([^}]*)\}", bare):
            labels = set(re.findall(r"(\w+)=", selected)) - {"job", "instance"}
            assert labels <= known.get(name, set()), text
        known_labels = set().union(*(known.get(name, set()) for name in NAME.findall(bare))) | {"job", "instance"}
        for grouped in re.findall(r"\b(?:by|without) \(([^)]*)\)", bare):
            assert {label.strip() for label in grouped.split(",")} <= known_labels, text


def test_a_strange_name_is_seen():
    """The pattern above tells metrics from labels and functions."""
    assert NAME.findall('rate(gossipkv_moons_total{job="x"}[5m]) + up') == ["gossipkv_moons_total", "up"]


def test_every_alert_says_what_to_do():
    alerts = ALERTS.read_text(encoding="utf-8").split("- alert: ")[1:]
    for alert in alerts:
        assert re.search(r"severity: (critical|warning)", alert), alert
        assert "summary: " in alert, alert
        assert "action: " in alert, alert
    assert len(set(names_of_alerts(ALERTS))) == len(alerts)


def test_every_alert_is_fired_in_a_test():
    assert set(names_of_alerts(FIRED)) == set(names_of_alerts(ALERTS))


def test_panels_of_the_dashboard_do_not_overlap():
    """Each panel has a title, an id and a place of its own, and uses the chosen source."""
    taken = set()
    for panel in DASHBOARD["panels"]:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert panel["title"]
        assert at["x"] + at["w"] <= 24
        assert not taken & cells, panel["title"]
        taken |= cells
        assert panel["type"] == "row" or panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])
