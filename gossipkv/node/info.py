"""What the method `info` answers: who this node is, how it stands, and all that it counts.

It is made anew for whoever asks, a few hundred numbers by a hundred databases, and asks nobody: what a monitoring
system reads every few seconds must not wait for anything.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from gossipkv.node.peers import hello
from gossipkv.placement.shard_claim import SPEAKS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from gossipkv.dataset.library import Library
    from gossipkv.errors import Detail
    from gossipkv.node.gossip import Gossiping
    from gossipkv.table.store import TableStore
    from gossipkv.wire.latency import LatencyHistogram
    from gossipkv.wire.rpc import Value

NS_IN_US = 1000.0

# What is told of a database that nobody has read yet.
NO_READS = dict.fromkeys(("requests", "forwarded", "hits", "misses", "value_bytes", "errors"), 0)


# What of the counters is told of each pump: whether some have much and others nothing to do.
OF_EACH_PUMP: Final = ("connections", "in_flight", "held_bytes", "bytes_received", "bytes_sent")


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class NodeInfo:
    """Who answers."""

    version: str
    cluster: str
    node: str
    resp: str | None  # where clients of Redis are answered


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Measures:
    """What the node's other parts count, asked when somebody wants to know."""

    counters: Callable[[], Mapping[str, int]]  # of the serving loops, and of what else answers
    pumps: Callable[[], Sequence[Mapping[str, int]]]  # the same of each loop, by itself
    unreadable: Callable[[], Sequence[str]]  # members that say what cannot be read here
    reads: Callable[[], Mapping[str, Mapping[str, int]]]  # by database
    errors: Callable[[], Mapping[str, int]]  # that Python has answered with, by code
    latency: Callable[[], Mapping[str, LatencyHistogram]]
    usage: Callable[[], Mapping[str, float]]  # what the process takes
    ready: Callable[[], Mapping[str, bool]]
    uptime_s: Callable[[], float]
    records: Callable[[], Mapping[str, Detail]]  # What is told of tables beside their store.
    verdict: Callable[[], Mapping[str, Detail]]  # The one that was made last.
    certificate: Callable[[], int | None]  # until when it holds, in seconds since 1970


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
        """Return it, as of now."""
        cluster, measures = self._cluster, self._measures
        counters: dict[str, Value] = {**measures.counters(), **self._datasets.counters(), **cluster.counters()}
        counters |= {f"errors_{code.lower()}": count for code, count in sorted(measures.errors().items())}
        by_database = self._by_database()
        return {
            "name": "gossipkv",
            "version": self._identity.version,
            "protocol": hello.PROTOCOL,
            "speaks": {"this": SPEAKS, "all": min(cluster.spoken().values(), default=SPEAKS)},
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
            "verdict": {**measures.verdict()},
            "certificate_expires_s": measures.certificate(),
            "uptime_s": round(measures.uptime_s(), 3),
            "process": {**measures.usage()},
            "databases": len(by_database),
            "by_database": by_database,
            "source_error": self._datasets.trouble(),
            "memory": {**self._datasets.residency()},
            "tables": {**self._tables.to_map(), **measures.records()},
            "counters": counters,
            "pumps": [{name: counted[name] for name in OF_EACH_PUMP} for counted in measures.pumps()],
            "latency": {name: latency_map(histogram) for name, histogram in measures.latency().items()},
        }

    def _by_database(self) -> dict[str, Value]:
        reads = self._measures.reads()
        return {name: {**told, **reads.get(name, NO_READS)} for name, told in self._datasets.by_database().items()}


def latency_map(histogram: LatencyHistogram) -> dict[str, Value]:
    """Return percentiles for people, and for programs what can be added up over nodes and compared over time."""
    buckets: list[Value] = [[us, count] for us, count in histogram.buckets()]
    return {**histogram.to_map(), "sum_us": histogram.total / NS_IN_US, "buckets": buckets}
