"""How long the catalogue of five new nodes takes from its first table to five acceptors, while tables are made."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from time import monotonic, sleep
from typing import TYPE_CHECKING

from gossipkv.errors import GossipKVError
from tests.bench import goals, machine
from tests.bench.cluster.faults import failed_of
from tests.bench.measurement import Measurement
from tests.bench.register import deciding_nodes
from tests.bench.register.changes import OURS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

N = 5
MAKERS = 2
OPTIONS = {"kind": "hash", "partitions": 8, "replication": 3}
POLL_S = 0.1


@dataclass(frozen=True)
class Load:
    """How often."""

    rounds: int = 5


def measure(directory: Path, load: Load, notes: list[str]) -> Iterator[Measurement]:
    """Both rows."""
    grown_s: list[float] = []
    made = failed = 0
    for number in range(load.rounds):
        with deciding_nodes.fresh(directory / str(number), N) as nodes:
            took_s, tables, refused = _grow(nodes)
        machine.say(f"    {took_s:.1f} s, {tables} tables; refused or lost: {refused}")
        grown_s.append(took_s)
        made += tables
        failed += len(refused)
    yield Measurement(goals.CATALOGUE_GROWN, "s", OURS, {OURS: grown_s})
    yield failed_of(goals.CATALOGUE_FAILED, failed, made + failed)
    notes.append(
        "growth: five new nodes that see each other; from the first `create_table` until each of them says that "
        f"five decide on the catalogue; {MAKERS} clients, each at a node of its own, make tables as fast as they are "
        f"answered; {load.rounds} rounds, {made} tables, each known to all five nodes in the end; "
        f"the longest {max(grown_s):.1f} s"
    )


class _Maker(threading.Thread):
    """A client that makes tables until it is told to end."""

    def __init__(self, cluster: deciding_nodes.Cluster, number: int) -> None:
        super().__init__()
        self._nodes = deciding_nodes.Nodes(cluster)
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


def _grow(nodes: deciding_nodes.Nodes) -> tuple[float, int, list[str]]:
    """Seconds, tables that were made, and what was refused or lost."""
    makers = [_Maker(nodes.cluster, number) for number in range(1, MAKERS + 1)]
    begin_s = monotonic()
    for maker in makers:
        maker.start()
    try:
        waiting = set(nodes.numbers)
        while waiting and monotonic() < begin_s + deciding_nodes.PATIENCE_S:
            waiting -= {number for number in waiting if _says_five(nodes, number)}
            sleep(POLL_S)
        took_s = monotonic() - begin_s
    finally:
        for maker in makers:
            maker.is_over = True
        for maker in makers:
            maker.join()
    made = {name: table for maker in makers for name, table in maker.made.items()}
    lost: list[str] = []
    for number in nodes.numbers:
        try:
            deciding_nodes.wait(lambda number=number: _tables(nodes, number) == made, f"node {number} to know all")
        except RuntimeError:
            found = _tables(nodes, number)
            lost += [f"{name} at node {number}" for name, table in made.items() if found.get(name) != table]
    return took_s, len(made), [*(why for maker in makers for why in maker.refused), *lost]


def _says_five(nodes: deciding_nodes.Nodes, number: int) -> bool:
    try:
        return nodes.acceptors(number) == N
    except GossipKVError:
        return False


def _tables(nodes: deciding_nodes.Nodes, number: int) -> dict[str, str]:
    names = [database["name"] for database in nodes.call(number, "databases")]
    return {name: nodes.call(number, "partition_map", name, {"limit": 1})["table"] for name in names}
