"""Nodes that decide, as the rows about registers have them: real processes, which have made a first table."""

from __future__ import annotations

import os
from contextlib import contextmanager
from time import monotonic, sleep
from typing import TYPE_CHECKING, final

from gossipkv.client import blocking
from gossipkv.errors import GossipKVError
from gossipkv.launcher import Cluster
from tests.bench.cluster.nodes import SETTINGS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

PATIENCE_S = 120.0
POLL_S = 0.05
TIMEOUT_MS = 60_000
FIRST_TABLE = "first"


@final
class Nodes:
    """The nodes of a cluster by their numbers from 1 on, each with a client."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.numbers = range(1, len(cluster.addresses) + 1)
        self._clients: dict[int, blocking.Client] = {}

    def call(self, number: int, method: str, *params: object) -> object:
        """What a node answers.  Raises GossipKVError."""
        try:
            if number not in self._clients:
                self._clients[number] = blocking.connect(self.cluster.node(number).address, timeout_ms=TIMEOUT_MS)
            return self._clients[number].call(method, *params)
        except GossipKVError:
            self.forget(number)
            raise

    def acceptors(self, number: int) -> int:
        """How many decide on the catalogue, as a node knows it; 0: it knows of none, or they change."""
        told = next(iter(self.call(number, "metadata_status", None)), {"old": [], "new": []})
        return len(told["new"]) if told["old"] == told["new"] else 0

    def wait_alive(self) -> None:
        """Return when all see all."""
        for number in self.numbers:
            wait(lambda number=number: self._alive(number) == len(self.numbers), f"node {number} to see all")

    def _alive(self, number: int) -> int:
        return sum(member["state"] == "alive" for member in self.call(number, "members"))

    def wait_grown(self, size: int) -> None:
        """Return when all say that so many decide on the catalogue, and all have a store."""
        for number in self.numbers:
            wait(lambda number=number: self.acceptors(number) == size, f"{size} acceptors at node {number}")

    def forget(self, number: int) -> None:
        """Hang up: it was started anew, maybe elsewhere."""
        if number in self._clients:
            self._clients.pop(number).close()

    def close(self) -> None:
        """Hang up."""
        for client in self._clients.values():
            client.close()


def wait(holds: Callable[[], bool], what: str) -> None:
    """Return when it holds.  Raises RuntimeError: it takes too long."""
    deadline = monotonic() + PATIENCE_S
    while True:
        try:
            if holds():
                return
        except GossipKVError as error:
            what = f"{what} ({error.message})"
        if monotonic() > deadline:
            raise RuntimeError(f"waited {PATIENCE_S:.0f} s for {what}")
        sleep(POLL_S)


@contextmanager
def fresh(directory: Path, count: int) -> Iterator[Nodes]:
    """So many new nodes, all of which see all."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("GOSSIPKV_")}
    with Cluster(directory, nodes=count, settings={**SETTINGS, "refresh_period": "off"}, environ=environ) as cluster:
        nodes = Nodes(cluster)
        try:
            nodes.wait_alive()
            yield nodes
        finally:
            nodes.close()


@contextmanager
def deciding(directory: Path, count: int, acceptors: int) -> Iterator[Nodes]:
    """The same with a catalogue that so many decide on."""
    with fresh(directory, count) as nodes:
        nodes.call(1, "create_table", FIRST_TABLE, {"kind": "hash", "partitions": 8, "replication": 1})
        nodes.wait_grown(acceptors)
        yield nodes
