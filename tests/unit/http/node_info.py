"""Made-up reports of a node: an `info` with everything in the table of metrics, and a node that gives such answers."""

from __future__ import annotations

import trio

from gossipkv.errors import GossipKVError
from gossipkv.http import samples
from gossipkv.http.metric_table import METRICS

BOUNDS_US = (8.192, 20, 50, 100, 1_000, 10_000_000)


def histogram(*below, sum_us=2_500_000, more=0):
    """Return a histogram with cumulative counts for the bounds, and `more` requests beyond the last bound."""
    return {
        "count": below[-1] + more, "sum_us": sum_us, "mean_us": 1.0, "p50_us": 3.5, "p99_us": 80.0, "max_us": 99.0,
        "buckets": [list(bucket) for bucket in zip(BOUNDS_US, below, strict=True)],
    }  # fmt: skip


def counters():
    """Return every counter of the table with a number of its own, and some of the open-ended names."""
    named = {place.path[1] for metric in METRICS for place in metric.places if place.path[0] == "counters"}
    names = sorted(name for name in named if not name.endswith("*"))
    found = {name: 1000 + number for number, name in enumerate(names)}
    return found | {
        "errors_unknown_database": 3, "errors_bad_request": 4, "closed_idle": 5, "frames_malformed": 6,
        "gossip_dropped_checksum": 7, "gossip_send_failed_eagain": 8, "gossip_receive_failed_enomem": 9,
        "gossip_asks_failed_econnrefused": 10, "gossip_asks_refused": 11, "gossip_refutations": 12,
    }  # fmt: skip


def store_counters():
    named = {place.path[2] for metric in METRICS for place in metric.places if place.path[:2] == ("tables", "counters")}
    return {name: 2000 + number for number, name in enumerate(sorted(named))}


def database(version="v2", **more):
    return {
        "version": version, "time": 1_700_000_000_250, "versions": {"ACTIVE": 1, "RETIRING": 2},
        "requests": 50, "forwarded": 20, "hits": 40, "misses": 10, "value_bytes": 4096, "errors": 2,
        "missing_partitions": 0, "under_replicated_partitions": 1,
    } | more  # fmt: skip


def info(databases=("geo",), **more):
    return {
        "name": "gossipkv", "version": "0.1.0", "protocol": 1, "cluster": "trial", "node": "n1", "epoch": 17,
        "shard_id": "3", "isolated": False, "publish_error": None, "claimed_twice": [],
        "unreadable": [], "silent": None, "certificate_expires_s": 1_800_000_000,
        "uptime_s": 12.5, "databases": len(databases), "source_error": None, "counters": counters(),
        "latency": {
            "local": histogram(1, 2, 3, 4, 5, 6, more=1),
            "forwarded": histogram(0, 0, 0, 7, 8, 9, sum_us=1_000),
            "handed_off": histogram(0, 0, 0, 0, 0, 0, sum_us=0),
        },
        "by_database": {name: database() for name in databases},
        "members_by_state": {"alive": 3, "suspect": 1, "dead": 0, "left": 2},
        "process": {
            "cpu_s": 1.25, "resident_bytes": 1 << 26, "peak_bytes": 1 << 27, "descriptors": 20,
            "descriptor_limit": 1024, "threads": 4, "started_ms": 1_700_000_001_500,
        },
        "memory": {
            "residency": "auto", "resident": "active", "mapped_bytes": 5 << 30, "active_bytes": 3 << 30,
            "compressed_bytes": 1 << 30, "room_bytes": 4 << 30, "limit": "MemAvailable",
        },
        "tables": {
            "state": "open", "why": None, "store": "0" * 15 + "7", "life": 3, "log_damage": None,
            "counters": store_counters(), "copies": 16, "copies_aside": 1, "refusal": None,
            "lag_records": {"t": {"n2": 40, "n3": 0}}, "lag_s": {"t": {"n2": 0.25, "n3": 0.0}},
            "waiting": 5, "waiting_bytes": 640, "waiting_limit": 6_400,
            "catalogue": {"acceptors": 5, "acceptors_alive": 4},
            "by_table": {"t": {
                "acceptors": 3, "acceptors_alive": 2, "partitions": 8, "without_majority": 0, "missing_replicas": 8,
            }},
            "writes_failed": {"UNAVAILABLE": 2}, "tombstone_holders": 1,
            "smeared_waiting": 7, "smeared_bytes": 700, "smeared": 50, "smeared_forwarded": 42, "smeared_dropped": 1,
        },
        "ready": {"joined": True, "opened": True, "draining": False},
        "verdict": {"number": 1}, "disk": {"free_bytes": 3 << 30, "size_bytes": 9 << 30},
        "backups_ms": {"t": 1_795_342_320_500},
    } | more  # fmt: skip


# An `info` without databases, buckets and the other optional parts.
SPARSE = {
    key: value
    for key, value in info().items()
    if key not in {"by_database", "members_by_state", "process", "memory", "ready", "latency", "verdict"}
} | {"latency": {"answered": {"count": 1, "p50_us": 3.5, "max_us": 99.0}}}


class Node:
    """A node that answers by method, raises errors among the answers, and records the calls."""

    def __init__(self, **answers):
        self.answers = {"verdict": {"level": "attention"}} | answers
        self.asked = []

    async def call(self, method, *params, timeout_ms=None):
        """Answer as a client of the wire does."""
        assert timeout_ms is not None, "without a limit of its own, the client's would be meant"
        await trio.lowlevel.checkpoint()
        self.asked.append((method, *params))
        found = self.answers[method]
        if isinstance(found, GossipKVError):
            raise found
        return found


def metric_at(path):
    """Return the metric of a path of `info`, or None."""
    value = None
    for key in reversed(path):
        value = {key: value}
    return next((metric for metric, _, _ in samples._read(samples._TOP, value, ())), None)
