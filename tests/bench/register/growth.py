"""How long the catalogue of five new nodes takes from its first table to five acceptors, while tables are made."""

from __future__ import annotations

import threading
from time import monotonic, sleep
from typing import TYPE_CHECKING

from gossipkv.errors import GossipKVError
from tests.bench import goals, machine
from tests.bench.cluster import nodes
from tests.bench.processes import wait_for

if TYPE_CHECKING:
    from gossipkv.launcher import Cluster
    from tests.bench.measurement import Bench

PATIENCE_S = 120.0
N = 5
MAKERS = 2
OPTIONS = {"kind": "hash", "partitions": 8, "replication": 3}
POLL_S = 0.1


def measure(bench: Bench, *, rounds: int = 5) -> None:
    """Both rows."""
    for number in range(rounds):
        with nodes.fresh(bench.directory / str(number), N) as new:
            took_s, made, refused = _grow(new)
        machine.say(f"    refused or lost: {refused}")
        bench.add(goals.CATALOGUE_GROWN, took_s)
        bench.count(goals.CATALOGUE_FAILED, len(refused), made + len(refused))
    bench.notes.append(f"growth: {MAKERS} clients, each at a node of its own, make tables as fast as they are answered")


class _Maker(threading.Thread):
    """A client that makes tables until it is told to end."""

    def __init__(self, cluster: Cluster, number: int) -> None:
        super().__init__()
        self._nodes = nodes.Nodes(cluster)
        self._number = number
        self.is_over = False
        self.made: dict[str, str] = {}  # Ids by name.
        self.refused: list[str] = []

    def run(self) -> None:
        """Make them."""
        while not self.is_over:
            name = f"t{self._number}-{len(self.made) + len(self.refused)}"
            try:
                self.made[name] = self._nodes.call(self._number, "create_table", name, OPTIONS)["table"]
            except GossipKVError as error:
                self.refused.append(f"{name}: {error.code} {error.message}")
        self._nodes.close()


def _grow(all_nodes: nodes.Nodes) -> tuple[float, int, list[str]]:
    """Seconds, tables that were made, and what was refused or lost."""
    makers = [_Maker(all_nodes.cluster, number) for number in range(1, MAKERS + 1)]
    begin_s = monotonic()
    for maker in makers:
        maker.start()
    try:
        waiting = set(all_nodes.numbers)
        while waiting and monotonic() < begin_s + PATIENCE_S:
            waiting -= {number for number in waiting if _says_five(all_nodes, number)}
            sleep(POLL_S)
        took_s = monotonic() - begin_s
    finally:
        for maker in makers:
            maker.is_over = True
        for maker in makers:
            maker.join()
    made = {name: table for maker in makers for name, table in maker.made.items()}
    lost: list[str] = []
    for number in all_nodes.numbers:
        try:
            wait_for(lambda number=number: _tables(all_nodes, number) == made, f"node {number} to know all", PATIENCE_S)
        except RuntimeError:
            found = _tables(all_nodes, number)
            lost += [f"{name} at node {number}" for name, table in made.items() if found.get(name) != table]
    return took_s, len(made), [*(why for maker in makers for why in maker.refused), *lost]


def _says_five(all_nodes: nodes.Nodes, number: int) -> bool:
    try:
        return all_nodes.acceptors(number) == N
    except GossipKVError:
        return False


def _tables(all_nodes: nodes.Nodes, number: int) -> dict[str, str]:
    names = [database["name"] for database in all_nodes.call(number, "databases")]
    return {name: all_nodes.call(number, "partition_map", name, {"limit": 1})["table"] for name in names}
