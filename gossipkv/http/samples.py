"""Samples of one `info`: each metric of the table, with its labels in this node.

A field that a node does not report has no sample; a malformed number counts as not reported.  The places of the table
form one tree, so that `info` is walked once, whatever the number of metrics.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import isfinite
from typing import TYPE_CHECKING, Final

from gossipkv.http.metric_table import METRICS, Metric, MetricKind

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


US_PER_S: Final = 1_000_000
NS_DIGITS: Final = 9  # Bounds are rounded to nanoseconds: 8.192e-06, not 8.192000000000001e-06.

Labels = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Histogram:
    """Durations of requests: cumulative counts up to ascending bounds in seconds, the total, and the sum."""

    buckets: tuple[tuple[float, int], ...]
    count: int
    sum_s: float


Sample = int | float | Histogram
Samples = dict[str, dict[Labels, Sample]]


@dataclass(slots=True)
class _SamplePlace:
    """A common beginning of places: a metric that ends here, and the possible next steps."""

    metric: Metric | None = None
    labels: Labels = ()
    exact: dict[str, _SamplePlace] = field(default_factory=dict)
    # The key is the text before the star; the longest is first.
    starred: list[tuple[str, _SamplePlace]] = field(default_factory=list)

    def child(self, name: str) -> _SamplePlace:
        """Return the node for a key of a place, made if necessary."""
        if not name.endswith("*"):
            return self.exact.setdefault(name, _SamplePlace())
        found = dict(self.starred).get(name[:-1])
        if found is None:
            found = _SamplePlace()
            self.starred = sorted([*self.starred, (name[:-1], found)], key=lambda starred: -len(starred[0]))
        return found

    def next(self, key: str) -> tuple[_SamplePlace | None, Labels]:
        """Return the node for a key of `info`, and the text matched by a star."""
        if (found := self.exact.get(key)) is not None:
            return found, ()
        for before, node in self.starred:
            if key.startswith(before):
                return node, (key[len(before) :],)
        return None, ()


def _tree(metrics: tuple[Metric, ...]) -> _SamplePlace:
    top = _SamplePlace()
    for metric in metrics:
        for place in metric.places:
            node = top
            for name in place.path:
                node = node.child(name)
            assert node.metric is None, f"{metric.name} and {node.metric.name} are found at {place.path}"
            node.metric, node.labels = metric, place.labels
    return top


_TOP: Final = _tree(METRICS)


def samples(info: Mapping[str, object]) -> Samples:
    """Return the samples of each metric by name, in the order of the table, and by labels; no metric is empty."""
    found: Samples = {metric.name: {} for metric in METRICS}
    if "counters" in info:
        for metric in METRICS:
            found[metric.name] |= {(value,): 0 for value in metric.shown}
    for metric, labels, value in _read(_TOP, info, ()):
        _add(found[metric.name], metric, labels, value)
    return {name: by_labels for name, by_labels in found.items() if by_labels}


def _read(node: _SamplePlace, value: object, stars: Labels) -> Iterator[tuple[Metric, Labels, object]]:
    """Walk `info` as far as it has places."""
    if node.metric is not None:
        yield node.metric, node.labels + stars, value
    elif isinstance(value, dict):
        for key, inner in value.items():
            below, star = node.next(key) if isinstance(key, str) else (None, ())
            if below is not None:
                yield from _read(below, inner, stars + star)


def _add(found: dict[Labels, Sample], metric: Metric, labels: Labels, value: object) -> None:
    """Add the value at a place to the samples of its metric."""
    if metric.kind is MetricKind.HISTOGRAM:
        histogram = _histogram(value)
        if histogram is not None:
            found[labels] = histogram
    elif metric.kind is MetricKind.TEXT:
        if isinstance(value, str):
            found[*labels, value] = 1
    else:
        number = _measured(metric, value)
        if number is not None:
            where = tuple(label.upper() for label in labels) if metric.is_code else labels
            before = found.get(where, 0)
            assert not isinstance(before, Histogram), f"{metric.name} holds a histogram and a number"
            found[where] = before + number


def _measured(metric: Metric, value: object) -> int | float | None:
    if metric.measure == "?":
        return int(value is not None)
    if metric.measure == "#":
        return len(value) if isinstance(value, list) else None
    number = _number(value)
    return number if number is None or metric.per == 1 else number / metric.per


def _number(value: object) -> int | float | None:
    """Return a number, or None for other values; a flag is 0 or 1."""
    if isinstance(value, int):
        return int(value)
    return value if isinstance(value, float) and isfinite(value) else None


def _histogram(value: object) -> Histogram | None:
    """Return a histogram; None without buckets, or if it is inconsistent."""
    if not isinstance(value, dict) or not isinstance(value.get("buckets"), list):
        return None
    count, sum_us = _number(value.get("count")), _number(value.get("sum_us"))
    if not isinstance(count, int) or sum_us is None:
        return None
    buckets: list[tuple[float, int]] = []
    for bucket in value["buckets"]:
        match bucket:
            case [int() | float() as bound_us, int() as below]:
                buckets.append((round(bound_us / US_PER_S, NS_DIGITS), below))
            case _:
                return None
    bounds, counts = [bound_s for bound_s, _ in buckets], [*(below for _, below in buckets), count]
    if bounds != sorted(set(bounds)) or counts != sorted(counts):
        return None
    return Histogram(tuple(buckets), count, sum_us / US_PER_S)
