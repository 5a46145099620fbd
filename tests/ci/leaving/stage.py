"""Four nodes behind relays; the asked node holds none of the tables, which the three others hold."""

from __future__ import annotations

import os
import signal
import time
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from gossipkv.launcher import Cluster, plan
from tests.ci.leaving.actions import KEYS, LONE, PAIR, PAIR_KEYS, PROMISE_S, SCANNED, SLACK_S, TABLE, TIMEOUT_MS
from tests.ci.leaving.relay import Network
from tests.ci.matrix.doors import Place, curl, dial
from tests.ci.matrix.stage import SETTINGS, until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from gossipkv.client.blocking import Client

NODES = (1, 2, 3, 4)
MAX_FEEDS = 20
GAUGES = ("gossipkv_in_flight_requests", "gossipkv_waiting_bytes", "gossipkv_table_waiting_requests",
          "gossipkv_table_waiting_held_bytes", "gossipkv_connections")  # fmt: skip
SPARE_DESCRIPTORS = 8  # Connections between nodes come and go.
SPARE_BYTES = 48 << 20  # Memory that a node may take for other reasons, such as merges.
OUR_SETTINGS = SETTINGS | {"max_feeds": str(MAX_FEEDS), "proxy_timeout": "3s", "proxy_stage_timeout": "200ms"}


class Stage:
    """The cluster, whose nodes are reached through relays, and the asked node that holds none of the tables."""

    def __init__(self, cluster: Cluster, stack: ExitStack) -> None:
        self.cluster = cluster
        self.network = stack.enter_context(Network(self._processes))
        self._put_behind_relays()
        self.clients: dict[int, Client] = {}
        for index in NODES:
            self.clients[index] = stack.enter_context(dial(cluster.node(index).address))
        until(self.all_alive)
        for name in (LONE, TABLE, SCANNED):
            options = {"kind": "hash", "partitions": 1, "replication": 3}
            until(lambda name=name, options=options: self.clients[1].call("create_table", name, options))
            (only,) = self.clients[1].call("partition_map", name)["partitions"]
            self.hosts = sorted(int(assignment["node"][1:]) for assignment in only["assignments"])
            until(lambda name=name: self.clients[self.hosts[0]].table(name).put(b"first", b"1", level="all") is None)
        (self.asked,) = {*NODES} - {*self.hosts}
        for index in self.hosts:  # The asked node is to hold nothing of the next table either.
            until(lambda index=index: self.clients[1].call("set_weight", f"n{index}", 1000))
        until(lambda: self.clients[1].call("create_table", PAIR, {"kind": "hash", "partitions": 4, "replication": 1}))
        served = self.clients[1].call("partition_map", PAIR)["partitions"]
        assert f"n{self.asked}" not in {one["node"] for partition in served for one in partition["assignments"]}
        client = self.clients[self.hosts[0]].table(SCANNED)
        until(lambda: client.put_many([(key, b"v" * 100) for key in KEYS], level="all") is None)
        self.place = self.place_of(self.asked)
        until(lambda: self.clients[self.asked].dataset("days").get(b"") is None)

    def _processes(self) -> dict[int, int]:
        return {node.index: node.process for node in self.cluster.status() if node.process}

    def place_of(self, index: int) -> Place:
        node = self.cluster.node(index)
        return Place(node.address, str(node.http), str(self.clients[index].info()["resp"]), TIMEOUT_MS)

    def _put_behind_relays(self) -> None:
        """Start the nodes again, with relays as their only addresses for each other."""
        self.cluster.down()
        planned = plan.load(self.cluster.directory)
        for node in planned.nodes:
            relay = self.network.relay(node.index, node.host, node.port)
            planned = planned.with_node(replace(node, settings={**node.settings, "advertise": relay}))
        planned.save(self.cluster.directory)
        self.cluster.up()

    def all_alive(self) -> bool:
        return all(
            [member["state"] for member in client.members()] == ["alive"] * len(NODES)
            for client in self.clients.values()
        )

    def put(self, away: int, value: bytes) -> float:
        """Put a value at a host that is not away; return when it was acknowledged."""
        client = self.clients[next(index for index in self.hosts if index != away)]
        for key in () if away else PAIR_KEYS:
            until(lambda key=key: client.call("put", PAIR, key, value + key))
        for table in (LONE, TABLE):
            until(lambda table=table: client.call("put", table, b"k", value, {"timeout_ms": 2000}))
        return time.monotonic()

    def happen(self, event: str, index: int) -> None:
        match event:
            case "killed":
                self.cluster.kill(index)
            case "frozen":
                self.cluster.send(index, signal.SIGSTOP)
            case "cut":
                self.network.cut(index)

    def end(self, event: str, index: int) -> None:
        """Undo an event; return when all nodes see all others, and the host has caught up."""
        match event:
            case "killed":
                self.cluster.start(index)
            case "frozen":
                self.cluster.send(index, signal.SIGCONT)
            case "cut":
                self.network.heal(index)
        until(self.all_alive)
        until(lambda: self.clients[self.asked].table(TABLE).put(b"end", b"1", level="all", timeout_ms=2000) is None)

    def gauges(self) -> dict[str, float]:
        """Return what the asked node holds for clients, as its page of metrics has it, and its descriptors."""
        lines = curl(self.place, "/metrics").body.decode().splitlines()
        found = {line.split()[0]: float(line.split()[1]) for line in lines if line.split()[0] in GAUGES}
        process = self.cluster.node(self.asked).process
        return found | {"descriptors": len(os.listdir(f"/proc/{process}/fd"))}

    def memory(self) -> int:
        return self.clients[self.asked].info()["process"]["resident_bytes"]


@contextmanager
def running(place: Path) -> Iterator[Stage]:
    """Start the cluster."""
    version = place / "source" / "days" / "1"
    version.mkdir(parents=True)
    (version / "part-0.tsv").write_bytes(b"".join(b"%b\tvalue\n" % key for key in KEYS))
    cluster = Cluster(
        place / "c", nodes=len(NODES), source=place / "source", replication=2, http=True, settings=OUR_SETTINGS
    )
    with cluster, ExitStack() as stack:
        yield Stage(cluster, stack)


def higher(now: dict[str, float], before: dict[str, float]) -> list[str]:
    return [
        f"{name} is {value:.0f}, was {before[name]:.0f}"
        for name, value in now.items()
        if value > before[name] + (SPARE_DESCRIPTORS if name in {"descriptors", "gossipkv_connections"} else 0)
    ]


def remaining(stage: Stage, before: dict[str, float], memory: int) -> list[str]:
    """Return what the node still holds, once the promised time is over."""
    give_up_s = time.monotonic() + PROMISE_S + SLACK_S
    while (left := higher(stage.gauges(), before)) and time.monotonic() < give_up_s:
        time.sleep(0.2)
    grown = stage.memory() - memory
    return left + ([f"memory has grown by {grown >> 20} MiB"] if grown > SPARE_BYTES else [])
