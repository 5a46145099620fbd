"""The answer of the method `info`: the node's identity, its state, and all its counters.

The answer is made anew for each call, a few hundred numbers for a hundred databases, and without asking other nodes: a
monitoring system that reads it every few seconds must not wait.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from gossipkv.protocol import OURS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from gossipkv.dataset.library import Library
    from gossipkv.errors import Detail
    from gossipkv.node.gossip import Gossiping
    from gossipkv.table.store import TableStore
    from gossipkv.wire.latency import LatencyHistogram
    from gossipkv.wire.rpc import Value

NS_IN_US = 1000.0

# The counts of a database that nobody has read yet.
NO_READS = dict.fromkeys(("requests", "forwarded", "hits", "misses", "value_bytes", "errors"), 0)


# The counters that are told for each serving loop, to show whether load is uneven.
OF_EACH_PUMP: Final = ("connections", "in_flight", "held_bytes", "bytes_received", "bytes_sent")


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class NodeInfo:
    """The identity of the node that answers."""

    version: str
    cluster: str
    node: str
    resp: str | None  # Address for clients of Redis.


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Measures:
    """The numbers of the node's other parts, fetched on demand."""

    counters: Callable[[], Mapping[str, int]]  # The sum over all serving loops, the gateway and other answering parts.
    pumps: Callable[[], Sequence[Mapping[str, int]]]  # The same counters by serving loop.
    unreadable: Callable[[], Sequence[str]]  # Members whose statements this node cannot read.
    reads: Callable[[], Mapping[str, Mapping[str, int]]]  # Counts of reads by database.
    errors: Callable[[], Mapping[str, int]]  # Errors that Python answered, by code.
    latency: Callable[[], Mapping[str, LatencyHistogram]]
    usage: Callable[[], Mapping[str, float]]  # Resources that the process uses.
    ready: Callable[[], Mapping[str, bool]]
    uptime_s: Callable[[], float]
    records: Callable[[], Mapping[str, Detail]]  # State of the tables, apart from their store.
    certificate: Callable[[], int | None]  # End of its validity, in seconds since 1970.
    directory: Callable[[], Mapping[str, Detail]]  # Room on its disk, and times of backups.


@final
class Info:
    """Makes the answer."""

    def __init__(
        self,
        datasets: Library,
        tables: TableStore,
        identity: NodeInfo,
        cluster: Gossiping,
        measures: Measures,
    ) -> None:
        self._datasets = datasets
        self._tables = tables
        self._identity = identity
        self._cluster = cluster
        self._measures = measures

    def to_map(self) -> Value:
        """Return the answer, as of now."""
        cluster, measures = self._cluster, self._measures
        counters: dict[str, Value] = {**measures.counters(), **self._datasets.counters(), **cluster.counters()}
        counters |= {f"errors_{code.lower()}": count for code, count in sorted(measures.errors().items())}
        by_database = self._by_database()
        return {
            "name": "gossipkv",
            "version": self._identity.version,
            "protocol": cluster.protocol,
            "speaks": [*OURS],
            "cluster": self._identity.cluster,
            "node": self._identity.node,
            "resp": self._identity.resp,
            "epoch": cluster.epoch,
            "shard_id": cluster.shard_id,
            "isolated": cluster.isolated(),
            "publish_error": cluster.publish_error(),
            "claimed_twice": [*cluster.claimed_twice()],
            "unreadable": [*measures.unreadable()],
            "members_by_state": {**cluster.members_by_state()},
            "silent": cluster.silence,
            "ready": {**measures.ready()},
            "certificate_expires_s": measures.certificate(),
            "uptime_s": round(measures.uptime_s(), 3),
            "process": {**measures.usage()},
            "databases": len(by_database),
            "by_database": by_database,
            "source": self._datasets.source(),
            "source_error": self._datasets.trouble(),
            "memory": {**self._datasets.residency()},
            **measures.directory(),
            "tables": {**self._tables.to_map(), **measures.records()},
            "counters": counters,
            "pumps": [{name: counted[name] for name in OF_EACH_PUMP} for counted in measures.pumps()],
            "latency": {name: latency_map(histogram) for name, histogram in measures.latency().items()},
        }

    def _by_database(self) -> dict[str, Value]:
        reads = self._measures.reads()
        return {name: {**status, **reads.get(name, NO_READS)} for name, status in self._datasets.by_database().items()}


def latency_map(histogram: LatencyHistogram) -> dict[str, Value]:
    """Return percentiles for people, and buckets that programs can add up over nodes and compare over time."""
    buckets: list[Value] = [[us, count] for us, count in histogram.buckets()]
    return {**histogram.to_map(), "sum_us": histogram.total / NS_IN_US, "buckets": buckets}
