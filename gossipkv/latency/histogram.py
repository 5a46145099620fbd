"""The histogram of durations, for Python: `LatencyHistogram` records, adds up and answers; see `_histogram.pxd`."""

from __future__ import annotations

from gossipkv.latency._histogram import RANGE_NS, LatencyHistogram

__all__ = ["RANGE_NS", "LatencyHistogram"]
