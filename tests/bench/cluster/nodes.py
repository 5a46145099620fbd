"""Clusters of real nodes: their data, their readiness, their acceptors and their resource use."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, final

from gossipkv.errors import GossipKVError
from gossipkv.launcher import Cluster
from tests.bench.processes import REQUEST_TIMEOUT_MS, Server, connect, parse_address, serve, serving, wait_for
from tests.bench.sources import VERSION

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from gossipkv.address import Address
    from gossipkv.client import blocking

NAME = f"bench-{os.getpid()}"  # The name keeps out processes that look for another cluster at these ports.
SETTINGS = {"cluster": NAME, "time_to_converge": "1s", "log_level": "warning", "max_connections_per_address": "off"}
SETTINGS |= {"pumps": "1"}  # The measured node runs on one core.
TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")
USER_TICKS, CHILDREN_TICKS_END = 11, 15  # The fields of user and kernel time, of a process and of its ended children.
ANY_KEY = b"any"  # A get of any key returns the version that has answered.
FIRST_TABLE = {"kind": "hash", "partitions": 8, "replication": 1}


@contextmanager
def running(
    directory: Path,
    count: int,
    *,
    source: Path | None = None,
    replication: int | None = None,
    environ: Mapping[str, str] | None = None,
    **settings: str,
) -> Iterator[Cluster]:
    """Run a cluster of `count` ready nodes that share the source; `environ` is added to their environment."""
    with Cluster(
        directory,
        nodes=count,
        **({} if source is None else {"source": source, "replication": replication}),
        settings={**SETTINGS, **settings},
        environ={name: value for name, value in os.environ.items() if not name.startswith("GOSSIPKV_")}
        | dict(environ or {}),
    ) as cluster:
        yield cluster


def options(**settings: str) -> list[str]:
    """Return the command line of a node that joins such a cluster."""
    named = {"profile": "local", **SETTINGS, **settings}
    return [part for name, value in named.items() for part in (f"--{name.replace('_', '-')}", value)]


@contextmanager
def bare(
    directory: Path, cluster: Cluster, *, python: tuple[str, ...] = (sys.executable,), **settings: str
) -> Iterator[Server]:
    """Run a node without a source, which holds nothing and forwards all reads."""
    with serving(serve(directory, *options(join=cluster.addresses[0], **settings), python=python)) as server:
        yield server


def addresses(cluster: Cluster) -> list[Address]:
    return [parse_address(node.address) for node in cluster.status() if node.state == "ready"]


def processes(cluster: Cluster) -> list[int]:
    return [node.process for node in cluster.status() if node.process is not None]


def wait_for_version(asked: Iterable[Address], databases: Iterable[str], version: str) -> None:
    """Return when each node answers from this version of each database."""
    for address in asked:
        with connect(address) as client:
            for name in databases:
                wait_for(
                    lambda name=name, client=client: client.dataset(name).get_with_version(ANY_KEY)[1] == version,
                    f"{name} {version}",
                )


def wait_for_copies(asked: list[Address], databases: list[str], version: str = VERSION) -> None:
    """Also return only when each node knows all nodes alive, and every partition on the wanted number of live nodes."""
    wait_for_version(asked, databases, version)
    for address in asked:
        with connect(address) as client:
            for name in databases:
                wait_for(
                    lambda name=name, client=client: _has_all_copies(client.status(name)[name], version),
                    f"{name} {version} on all its nodes",
                )


def _has_all_copies(told: dict[str, object], version: str) -> bool:
    few = told["versions"].get(version, {}).get("under_replicated", {})
    return few.get("count") == 0 and all(node["state"] == "alive" for node in told["nodes"])


def cpu_s(cluster: Cluster) -> float:
    """Return the processor time of all nodes since their start, including ended builds."""
    used = 0
    for number in processes(cluster):
        fields = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()
        used += sum(map(int, fields[USER_TICKS:CHILDREN_TICKS_END]))
    return used / TICKS_A_SECOND


@final
class Nodes:
    """The nodes of a cluster by their numbers from 1 on, each with a client."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.numbers = range(1, len(cluster.addresses) + 1)
        self._clients: dict[int, blocking.Client] = {}

    def call(self, number: int, method: str, *params: object) -> object:
        try:
            if number not in self._clients:
                self._clients[number] = self.cluster.connect(number, timeout_ms=REQUEST_TIMEOUT_MS)
            return self._clients[number].call(method, *params)
        except GossipKVError:
            self.forget(number)
            raise

    def acceptors(self, number: int) -> int:
        """Return the number of the catalogue's acceptors, as a node knows it; 0 if unknown or changing."""
        told = next(iter(self.call(number, "metadata_status", None)), {"old": [], "new": []})
        return len(told["new"]) if told["old"] == told["new"] else 0

    def wait_alive(self) -> None:
        for number in self.numbers:
            wait_for(lambda number=number: self._alive(number) == len(self.numbers), f"node {number} to see all")

    def _alive(self, number: int) -> int:
        return sum(member["state"] == "alive" for member in self.call(number, "members"))

    def wait_grown(self, size: int) -> None:
        """Return when all nodes see so many acceptors of the catalogue, and all have a store."""
        for number in self.numbers:
            wait_for(lambda number=number: self.acceptors(number) == size, f"{size} acceptors at node {number}")

    def forget(self, number: int) -> None:
        """Drop the client of a node that was restarted, maybe at another address."""
        if number in self._clients:
            self._clients.pop(number).close()

    def close(self) -> None:
        for number in self.numbers:
            self.forget(number)


@contextmanager
def deciding(directory: Path, count: int, **settings: str) -> Iterator[Nodes]:
    """Run so many new nodes, all of which are acceptors of the catalogue."""
    with running(directory, count, refresh_period="off", **settings) as cluster:
        nodes = Nodes(cluster)
        try:
            nodes.wait_alive()
            nodes.call(1, "create_table", "first", FIRST_TABLE)
            nodes.wait_grown(count)
            yield nodes
        finally:
            nodes.close()
