"""The numbers of a node: `/metrics` for Prometheus and compatible systems, `/debug/vars` as JSON.

Both are from one `info`, and a verdict that is made for the scrape: no verdict is made while nobody asks.
`metric_table.py` lists the metrics and their sources; `samples.py` finds the values.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, InfoMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from gossipkv.errors import GossipKVError
from gossipkv.http.answers import HttpAnswer, document, refusal
from gossipkv.http.media import qualities
from gossipkv.http.metric_table import IDENTITY, IDENTITY_HELP, IDENTITY_NAME, METRICS, MetricKind
from gossipkv.http.samples import Histogram, samples
from gossipkv.status.verdict import LEVELS, verdict_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from prometheus_client.core import Metric as Family

    from gossipkv.http.answers import Asker
    from gossipkv.http.metric_table import Metric
    from gossipkv.http.samples import Labels, Sample

# Prometheus waits 10 s by default; a scrape should see the reason before that.
SCRAPE_TIMEOUT_MS: Final = 5000
VERDICT_TIMEOUT_MS: Final = 3000  # Members have less than a second for their reports.
OPENMETRICS: Final = "application/openmetrics-text"


async def metrics(ask: Asker, accept: bytes = b"") -> HttpAnswer:
    """Answer a scrape in Prometheus' text, or as OpenMetrics if `Accept` allows nothing else."""
    try:
        info = await _info(ask)
    except GossipKVError as error:
        return refusal(error)
    encode, content_type = choose_encoder(OPENMETRICS if _wants_openmetrics(accept) else "")
    return HttpAnswer(200, [(b"Content-Type", content_type.encode())], encode(InfoCollector(info)))


async def debug_vars(ask: Asker) -> HttpAnswer:
    """Answer with the same numbers as JSON: a metric with labels is a map for each of them."""
    try:
        return document(200, as_json(await _info(ask)))
    except GossipKVError as error:
        return refusal(error)


class InfoCollector(Collector):
    """Families of metrics from one `info`."""

    def __init__(self, info: Mapping[str, object]) -> None:
        self._info = info

    def collect(self) -> Iterator[Family]:
        """Yield the families that have samples, in the order of the table."""
        if identity := _identity(self._info):
            yield InfoMetricFamily(IDENTITY_NAME, IDENTITY_HELP, identity)
        found = samples(self._info)
        for metric in METRICS:
            if metric.name in found:
                yield _family(metric, found[metric.name])


def as_json(info: Mapping[str, object]) -> dict[str, object]:
    """Return all samples, by name and then by each label; texts stay texts."""
    values: dict[str, object] = {f"{IDENTITY_NAME}_info": _identity(info)}
    found = samples(info)
    for metric in METRICS:
        if metric.name in found:
            nested: dict[str, object] = {}
            for labels, sample in found[metric.name].items():
                # A number without labels is stored under the metric's name, like all others.
                _put(nested, (metric.name, *labels), sample, is_word=metric.kind is MetricKind.TEXT)
            values[f"{metric.name}_info" if metric.kind is MetricKind.TEXT else metric.name] = nested[metric.name]
    return values


async def _info(ask: Asker) -> Mapping[str, object]:
    info = await ask.call("info", timeout_ms=SCRAPE_TIMEOUT_MS)
    found: dict[str, object] = {**info} if isinstance(info, dict) else {}
    with contextlib.suppress(GossipKVError):  # The other numbers are answered without a verdict.
        verdict = verdict_of(await ask.call("verdict", timeout_ms=VERDICT_TIMEOUT_MS))
        found["verdict"] = {"number": LEVELS.index(verdict.level)}
    return found


def _wants_openmetrics(accept: bytes) -> bool:
    """True if only OpenMetrics is accepted: its writer takes 50 % longer, and our metrics need none of its features.

    Prometheus names both and takes the text.  The library's own test of the header fails on unusual versions.
    """
    kinds = qualities(accept)
    return OPENMETRICS.encode() in kinds and kinds.keys().isdisjoint({b"text/plain", b"text/*", b"*/*"})


def _identity(info: Mapping[str, object]) -> dict[str, str]:
    return {name: str(info[name]) for name in IDENTITY if isinstance(info.get(name), str | int)}


def _family(metric: Metric, found: Mapping[Labels, Sample]) -> Family:
    """Return all samples of a metric as the library's family."""
    if metric.kind is MetricKind.HISTOGRAM:
        family = HistogramMetricFamily(metric.name, metric.help, labels=metric.labels)
        for labels, sample in found.items():
            if isinstance(sample, Histogram):
                buckets = [(str(bound_s), count) for bound_s, count in sample.buckets]
                family.add_metric(labels, [*buckets, ("+Inf", sample.count)], sample.sum_s)
        return family
    if metric.kind is MetricKind.TEXT:
        texts = InfoMetricFamily(metric.name, metric.help, labels=metric.labels)
        for labels in found:
            texts.add_metric(labels, {})
        return texts
    make = CounterMetricFamily if metric.kind is MetricKind.COUNTER else GaugeMetricFamily
    numbers = make(metric.name, metric.help, labels=metric.labels)
    for labels, sample in found.items():
        if not isinstance(sample, Histogram):
            numbers.add_metric(labels, sample)
    return numbers


def _put(nested: dict[str, object], path: Labels, sample: Sample, *, is_word: bool) -> None:
    """Put a sample at a path of nested maps; a text is the last step of its own path."""
    *above, last = path[:-1] if is_word else path
    for step in above:
        inner = nested.setdefault(step, {})
        assert isinstance(inner, dict), f"{step} of {path} is both a map and a number"
        nested = inner
    nested[last] = path[-1] if is_word else _plain(sample)


def _plain(sample: Sample) -> object:
    if not isinstance(sample, Histogram):
        return sample
    buckets = {str(bound_s): count for bound_s, count in sample.buckets}
    return {"count": sample.count, "sum": sample.sum_s, "buckets": {**buckets, "+Inf": sample.count}}
