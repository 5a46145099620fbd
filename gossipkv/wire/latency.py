"""The histogram of durations, for Python: `LatencyHistogram` records, adds up and answers; see `latency.pxd`."""

from __future__ import annotations

from gossipkv.wire._wire import RANGE_NS, LatencyHistogram

__all__ = ["RANGE_NS", "LatencyHistogram"]
