"""The part of the kill table that breaks what is told of a node's health, and its numbers."""

from __future__ import annotations

from tests.nightly.mutants.mutant import planted

HEALTH = "gossipkv.http.health"
METRICS = "gossipkv.http.metrics"
SAMPLES = "gossipkv.http.samples"
TABLE = "gossipkv.http.metric_table"
TEST_OF_HEALTH = ("tests/unit/http/test_health.py",)
TEST_OF_SAMPLES = ("tests/unit/http/test_samples.py",)
TEST_OF_METRICS = ("tests/unit/http/test_metrics.py",)
TEST_OF_TABLE = ("tests/unit/http/test_metric_table.py",)

MUTANTS_OF_METRICS = (
    planted(
        "a node that drains is ready",
        f"{HEALTH}:READY",
        '("draining", False, "is not draining", "is draining, and about to end"),',
        '("draining", True, "is not draining", "is draining, and about to end"),',
        *TEST_OF_HEALTH,
    ),
    planted(
        "a warning makes a node unready",
        f"{HEALTH}:readyz",
        "reasons = [bad for is_good, _, bad in checks if not is_good]",
        "reasons = [*(bad for is_good, _, bad in checks if not is_good), *_of_node(info)]",
        *TEST_OF_HEALTH,
    ),
    planted(
        "readyz counts missing owners",
        f"{HEALTH}:readyz",
        "if not verbose:",
        "reasons += await _of_cluster(ask)\n    if not verbose:",
        *TEST_OF_HEALTH,
    ),
    planted(
        "healthz is well while a version is built",
        f"{HEALTH}:healthz",
        "is_active = any(state == ACTIVE for states in told.values() for state in states.values())",
        "is_active = any(told.values())",
        *TEST_OF_HEALTH,
    ),
    planted(
        "a node that is gone has no versions",
        f"{HEALTH}:healthz",
        "return refusal(error)",
        "return document(404, {})",
        *TEST_OF_HEALTH,
    ),
    planted(
        "livez asks nobody",
        f"{HEALTH}:livez",
        'await ask.call("ping", timeout_ms=PROBE_TIMEOUT_MS)',
        "pass",
        *TEST_OF_HEALTH,
    ),
    planted(
        "the shortest beginning is meant",
        f"{SAMPLES}:_Node.child",
        "self.starred = sorted([*self.starred, (name[:-1], found)], key=lambda each: -len(each[0]))",
        "self.starred = sorted([*self.starred, (name[:-1], found)], key=lambda each: len(each[0]))",
        *TEST_OF_SAMPLES,
    ),
    planted(
        "the last number of a code is the only one",
        f"{SAMPLES}:_add",
        "found[where] = before + number",
        "found[where] = number",
        *TEST_OF_SAMPLES,
    ),
    planted(
        "what has not happened is not told",
        f"{SAMPLES}:samples",
        "found[metric.name] |= {(value,): 0 for value in metric.shown}",
        "pass",
        *TEST_OF_SAMPLES,
    ),
    planted(
        "milliseconds are told as seconds",
        f"{SAMPLES}:_measured",
        "return number if number is None or metric.per == 1 else number / metric.per",
        "return number",
        *TEST_OF_SAMPLES,
    ),
    planted(
        "buckets that fall are told",
        f"{SAMPLES}:_histogram",
        "if bounds != sorted(set(bounds)) or counts != sorted(counts):",
        "if bounds != sorted(set(bounds)):",
        *TEST_OF_SAMPLES,
    ),
    planted(
        "what an older node does not say is zero",
        f"{SAMPLES}:samples",
        "return {name: by_labels for name, by_labels in found.items() if by_labels}",
        "return {name: by_labels or {(): 0} for name, by_labels in found.items()}",
        *TEST_OF_SAMPLES,
    ),
    planted(
        "the endless bucket has what the last one has",
        f"{METRICS}:_family",
        'family.add_metric(labels, [*buckets, ("+Inf", sample.count)], sample.sum_s)',
        'family.add_metric(labels, [*buckets, ("+Inf", sample.buckets[-1][1])], sample.sum_s)',
        *TEST_OF_METRICS,
    ),
    planted(
        "the dearer form is the usual one",
        f"{METRICS}:_wants_openmetrics",
        'return OPENMETRICS.encode() in kinds and not kinds & {b"text/plain", b"text/*", b"*/*"}',
        "return OPENMETRICS.encode() in kinds",
        *TEST_OF_METRICS,
    ),
    planted(
        "a metric is called otherwise than alerts and page call it",
        f"{TABLE}:_BUILDS",
        '_counter("gossipkv_builds_failed_total", "Builds of versions that failed.", "builds_failed"),',
        '_counter("gossipkv_failed_builds_total", "Builds of versions that failed.", "builds_failed"),',
        *TEST_OF_TABLE,
    ),
)
