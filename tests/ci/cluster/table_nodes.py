"""Requests to nodes that decide on tables, and checks of clients' answers against the tables that exist."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Self

from gossipkv.client import blocking
from gossipkv.errors import GossipKVError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from gossipkv.launcher import Cluster
    from tests.ci.cluster.networks import Network

PATIENCE_S = 120.0  # Seconds suffice on an idle machine; two busy cores need more.
POLL_S = 0.1
CLIENTS = Path(__file__).with_name("table_clients.py")
OPTIONS = {"kind": "hash", "partitions": 8, "replication": 3}


class Nodes:
    """The nodes of a cluster by number, also if only the switch of a network reaches them."""

    def __init__(self, cluster: Cluster, network: Network | None = None) -> None:
        self.cluster = cluster
        self._network = network
        self._clients: dict[int, blocking.Client] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for client in self._clients.values():
            client.close()

    def ask(self, index: int, method: str, *params: object) -> object:
        """Return a node's answer. Raises GossipKVError, or ConnectionError across a network."""
        if self._network is not None:
            return self._network.ask(index, method, *params)
        node = self.cluster.node(index)
        if node.process not in self._clients:  # A node that was restarted needs a new client.
            client = blocking.Client([node.address], timeout_ms=30_000, follows=False)
            self._clients[node.process] = client.dial()
        return self._clients[node.process].call(method, *params)

    def tables(self, index: int) -> dict[str, tuple[str, int]]:
        """Return the tables that a node knows, with the id and config id of their maps."""
        found = {}
        for database in self.ask(index, "databases"):
            told = self.ask(index, "partition_map", database["name"])
            if "table" in told:
                found[database["name"]] = told["table"], told["config"]
        return found

    def status(self, index: int, table: str | None = None) -> dict[str, object]:
        """Return a node's status of the register of the catalogue or a table; empty if the node knows none."""
        return next(iter(self.ask(index, "metadata_status", table)), {"old": [], "new": []})

    def acceptors(self, index: int) -> list[str]:
        """Return the acceptors of the catalogue, as a node knows them."""
        told = self.status(index)
        sides = [[acceptor["node"] for acceptor in told[side]] for side in ("old", "new")]
        return sides[1] if sides[0] == sides[1] else []

    def grown(self, by: Iterable[int], wanted: Sequence[str]) -> None:
        """Return when all nodes `by` name `wanted` as the acceptors of the catalogue."""
        for index in by:
            until(lambda index=index: sorted(self.acceptors(index)), lambda found: found == sorted(wanted))

    def all_answer(self, by: Iterable[int]) -> None:
        """Return when each of these nodes says that all acceptors of all registers answer."""
        for index in by:
            until(lambda index=index: self._silent(index), lambda silent: silent == [])

    def _silent(self, index: int) -> list[object]:
        registers = self.ask(index, "metadata_status", None)
        return [
            (register["table"], acceptor)
            for register in registers
            for side in ("old", "new")
            for acceptor in register[side]
            if not acceptor["answers"]
        ]

    def all_alive(self, by: Iterable[int]) -> None:
        """Return when each of these nodes sees exactly these alive."""
        wanted = sorted(f"n{index}" for index in by)
        for index in by:
            until(lambda index=index: self.alive(index), lambda found: found == wanted)

    def alive(self, index: int) -> list[str]:
        """Return the nodes that a node sees alive, including itself."""
        return sorted(member["node"] for member in self.ask(index, "members") if member["state"] == "alive")

    def same(self, by: Iterable[int]) -> dict[str, tuple[str, int]]:
        """Return the tables that all of these nodes know, once they agree."""
        found = until(lambda: [self.tables(index) for index in by], lambda all_: all(one == all_[0] for one in all_))
        return found[0]


def until(look: Callable[[], object], holds: Callable[[object], bool], *, within_s: float = PATIENCE_S) -> object:
    """Call `look` until `holds` is true of its result; return the result."""
    give_up_s = time.monotonic() + within_s
    while True:
        try:
            seen = look()
            if holds(seen):
                return seen
        except (GossipKVError, ConnectionError) as error:
            seen = error
        assert time.monotonic() < give_up_s, seen
        time.sleep(POLL_S)


class Loop:
    """Clients of `table_clients.py` that make and drop tables until `end`."""

    def __init__(self, addresses: Sequence[str], *, clients: int, seed: int, network: Network | None = None) -> None:
        told = json.dumps({"addresses": [*addresses], "clients": clients, "seed": seed})
        command = [sys.executable, str(CLIENTS), told]
        self._process = subprocess.Popen(
            network.command_at_switch(*command) if network else command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._said: list[dict[str, object]] = []
        self._hearing = threading.Thread(target=self._hear)
        self._hearing.start()

    def _hear(self) -> None:
        for line in self._process.stdout:
            self._said.append(json.loads(line))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._hearing.join()
        with self._process:  # The block closes the pipes and waits.
            pass

    def done(self) -> tuple[int, int]:
        """Return how many tables were made and dropped until now."""
        settled = [line["what"] for line in self._said if line.get("end") == "done"]
        return settled.count("create"), settled.count("drop")

    def end(self) -> list[dict[str, object]]:
        self._process.stdin.close()
        self._hearing.join()
        assert self._process.wait() == 0
        return self._said


def judge(history: list[dict[str, object]], tables: dict[str, tuple[str, int]]) -> dict[str, int]:
    """Check the clients' answers against the final tables; return how many of each kind were acknowledged."""
    settled = sorted((line for line in history if "what" in line), key=lambda line: line["began_s"])
    check_heads([line for line in history if "what" not in line])
    by_name = defaultdict(list)
    for line in settled:
        by_name[line["name"]].append(line)
    made = [line["table"] for line in settled if line["what"] == "create" and line["end"] == "done"]
    assert len(made) == len(set(made)), "two creations were told the same table"
    for name, lines in by_name.items():
        if name.startswith("own"):
            check_own(lines, tables.get(name, (None, 0))[0])
        else:
            check_shared(lines, tables.get(name, (None, 0))[0])
    assert tables.keys() <= by_name.keys() | {"first"}
    counted = defaultdict(int)
    for line in settled:
        counted[line["what"], line["end"]] += 1
    return counted


def check_own(lines: list[dict[str, object]], there: str | None) -> None:
    """Check requests that a single client made, one after the other."""
    expected: set[str | None] = {None}
    for line in lines:
        match line["what"], line["end"]:
            case "create", "done":
                assert None in expected, lines
                expected = {line["table"]}
            case "create", "refused":
                assert None in expected, lines
                assert "CONFLICT" not in line["tries"], lines
            case "create", "open":
                expected = expected | {"any"}
            case "drop", "done":
                assert line["table"] is None or line["table"] in expected, lines
                expected = {None}
            case "drop", "refused":
                assert "UNKNOWN_DATABASE" not in line["tries"], lines
            case "drop", "open":
                expected = expected | {None}
    assert there in expected or "any" in expected, (lines, there)


def check_shared(lines: list[dict[str, object]], there: str | None) -> None:
    """Check requests of many clients: a name has one table at a time, and a dropped table does not come back."""
    created = [line for line in lines if line["what"] == "create" and line["end"] == "done"]
    dropping = [line for line in lines if line["what"] == "drop" and line["end"] != "refused"]
    dropped = {line["table"] for line in dropping if line["end"] == "done"} - {None}
    if all(line["end"] != "open" for line in lines):
        assert dropped <= {line["table"] for line in created}, lines
    assert there not in dropped, lines
    for line in created:
        for other in created:
            if line["ended_s"] < other["began_s"]:  # The table was dropped in between.
                assert any(
                    drop["table"] in {line["table"], None}
                    and drop["began_s"] < other["ended_s"]
                    and drop["ended_s"] > line["began_s"]
                    for drop in dropping
                ), (line, other)
    if there is not None:
        assert there in {line["table"] for line in created} or any(line["end"] == "open" for line in lines), lines


def check_heads(seen: list[dict[str, object]]) -> None:
    """Check that the catalogue is one chain: a number has one digest everywhere, and never falls at a node."""
    digests: dict[tuple[int, int], str] = {}
    last: dict[str, tuple[int, int]] = {}
    assert seen, "nobody has looked"
    for line in seen:
        config, node = (line["generation"], line["sequence"]), line["node"]
        assert digests.setdefault(config, line["digest"]) == line["digest"], line
        assert config >= last.get(node, (0, 0)), (last[node], line)
        last[node] = config


def address(nodes, index):
    return nodes.cluster.node(index).address
