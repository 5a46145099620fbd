"""Four nodes: one that holds the tables is asked, and one that holds none of them; a third one checks what they did."""

from __future__ import annotations

import time
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from gossipkv.errors import GossipKVError
from gossipkv.launcher import Cluster
from tests.ci.matrix.doors import PATIENCE_S, Database, Place, dial
from tests.ci.matrix.rows import KINDS, LIFETIME_MS, RECORDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from gossipkv.client.blocking import Client

NODES = (1, 2, 3, 4)
HOST, NO_HOST = "host", "no host"
SETTINGS = {
    "resp_listen": "127.0.0.1:0",
    "refresh_period": "off",
    "planner": "off",  # Hosts stay hosts.
    "proxy_timeout": "30s",  # RESP has no time of its own, and a busy machine is slow.
    "proxy_stage_timeout": "500ms",
    "time_to_converge": "1s",
}
OPTIONS: dict[str, dict[str, object]] = {
    "hash": {"kind": "hash", "partitions": 1, "replication": 2},
    "range": {"kind": "range", "replication": 2},
    "expiring": {"kind": "hash", "partitions": 1, "replication": 2, "ttl_ms": LIFETIME_MS},
}


class Stage:
    """The cluster, a client of each node, the numbers of the asked nodes, and the databases as seen from each."""

    def __init__(self, cluster: Cluster, stack: ExitStack) -> None:
        self.cluster, self._stack = cluster, stack
        self.clients: dict[int, Client] = {}
        self._meet(*NODES)
        for kind, options in OPTIONS.items():
            until(lambda kind=kind, options=options: self.clients[1].call("create_table", kind, options))
        hosts = {self.hosts(kind) for kind in OPTIONS}
        assert len(hosts) == 1, hosts  # Tables of one partition have the same hosts, as long as no node has moved.
        (held,) = hosts
        self.asked = {HOST: min(held), NO_HOST: min({*NODES} - held)}
        self.other = max({*NODES} - held)
        self.places = {where: self._place(index) for where, index in self.asked.items()}
        self.databases = {(kind, where): self._database(kind, where) for kind in KINDS for where in self.asked}

    def hosts(self, table: str) -> frozenset[int]:
        (only,) = self.clients[1].call("partition_map", table)["partitions"]
        return frozenset(int(assignment["node"][1:]) for assignment in only["assignments"])

    def ask(self, where: str, method: str, *params: object) -> object:
        return self.clients[self.asked[where]].call(method, *params)

    def put(self, table: str, records: dict[bytes, bytes]) -> bool:
        """Put records at the host, so that a door that fails elsewhere does not spoil other rows."""
        self.clients[self.asked[HOST]].table(table).put_many(records.items(), level="all")
        return True

    def elsewhere(self, method: str, *params: object) -> object:
        """Return the answer of the node that checks."""
        return self.clients[self.other].call(method, *params)

    def restart(self) -> None:
        """Kill and start the asked nodes; return in their first moment."""
        for index in self.asked.values():
            self.cluster.kill(index)
        for index in self.asked.values():
            self.cluster.start(index, wait=False)
        self.cluster.wait_ready(*self.asked.values())
        self._meet(*self.asked.values())
        self.places = {where: self._place(index) for where, index in self.asked.items()}

    def _meet(self, *indexes: int) -> None:
        for index in indexes:
            self.clients[index] = self._stack.enter_context(dial(self.cluster.node(index).address))

    def _place(self, index: int) -> Place:
        node = self.cluster.node(index)
        return Place(node.address, str(node.http), str(self.clients[index].info()["resp"]))

    def _database(self, kind: str, where: str) -> Database:
        """Fill a table; of a dataset, find the keys that the asked node holds, or does not hold."""
        client = self.clients[self.asked[where]]
        if kind != "dataset":
            until(lambda: self.put(kind, RECORDS))
            return Database(kind, kind, sorted(RECORDS))
        until(lambda: client.dataset("days").get(b"") is None)
        answered = {key: client.call("get", "days", key, {"explain": True})[2]["node"] for key in sorted(RECORDS)}
        is_held = where == HOST
        keys = [key for key, node in answered.items() if (node == f"n{self.asked[where]}") is is_held]
        assert keys, where
        return Database("days", kind, keys)


@contextmanager
def running(place: Path, settings: dict[str, str] | None = None) -> Iterator[Stage]:
    version = place / "source" / "days" / "1"
    version.mkdir(parents=True)
    for part in range(4):
        lines = [b"%b\t%b\n" % record for record in [*RECORDS.items()][part::4]]
        (version / f"part-{part}.tsv").write_bytes(b"".join(lines))
    given = SETTINGS | (settings or {})
    cluster = Cluster(place / "c", nodes=len(NODES), source=place / "source", replication=2, http=True, settings=given)
    with cluster, ExitStack() as stack:
        yield Stage(cluster, stack)


def until(holds: Callable[[], object], within_s: float = PATIENCE_S) -> None:
    """Return when `holds` is true; errors of nodes count as false."""
    give_up_s = time.monotonic() + within_s
    while True:
        try:
            seen = holds()
            if seen:
                return
        except (GossipKVError, ConnectionError) as error:
            seen = error
        assert time.monotonic() < give_up_s, seen
        time.sleep(0.02)
