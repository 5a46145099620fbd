"""The rows about a stream: thousands of transactions in sequence on one table, and as many of etcd.

A stream shows costs that a burst hides: learning of own commits, freeing old state, and informing other nodes. One
server is asked by `metadata_transact` for operations that move a replica of a range to a node that is down (`assign`),
or cancel the move (`unassign`). Each operation changes one leaf of the map. The servers leave such moves to operators:
the catalogue names that node, and their planner is off. At the end the map must have nothing that was not done; after
the last transaction of a round the time until every node shows it is measured.
"""

from __future__ import annotations

import random
from contextlib import ExitStack
from functools import partial
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple

from gossipkv.environment.real_files import RealFiles
from gossipkv.node.identity import NODE, read_node
from gossipkv.register.metadata.known import config_id
from gossipkv.register.metadata.operations import OPERATION_ID_BYTES, Operation, OperationOutcome
from tests.bench import data, goals, machine
from tests.bench.cluster import nodes
from tests.bench.measurement import OURS, WrongAnswerError
from tests.bench.processes import cpu_ns, wait_for
from tests.bench.register import etcd

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from tests.bench.measurement import Bench, Row

SERVERS = 3
PARTITIONS = 64
LEFT_ALONE = {"planner": "off", "move_stall": "1d"}  # Moves are left to operators, also those that stall.
TIMEOUT_MS = 60_000
DOWN = b"\1" * 16  # The uuid of the node that is down.
REREAD = 32  # Transactions until the map is read again.
MAX_CONFLICTS = 10  # At most one operation of so many is forestalled by a node.


def measure(bench: Bench, *, transactions: int = 2_000, rounds: int = 5) -> None:
    with ExitStack() as stack:
        servers = stack.enter_context(nodes.deciding(bench.directory / "nodes", SERVERS, **LEFT_ALONE))
        table = Map(servers, PARTITIONS, random.Random(data.SEED))
        _add_down(servers, _catalogue(bench.directory))
        sides = {OURS: partial(_ours, servers, table, transactions)}
        if bench.takes_part(goals.ETCD, etcd.missing()):
            peer = stack.enter_context(etcd.running(bench.directory / "etcd"))
            sides[goals.ETCD] = partial(_theirs, peer, transactions)
            bench.notes.append(etcd.settings())
        stack.enter_context(machine.uncollected())
        bench.compare(goals.SUSTAINED_P50, sides, rounds)
        table.check()
    bench.notes.append(
        f"a stream: three servers of a table of {PARTITIONS} partitions, one asked; {transactions:,} transactions one "
        f"after another a round, {rounds} rounds and one before them; {table.count:,} were done, and "
        f"{table.conflicts:,} came too late. The processor time is that of all three servers, with all that they do"
    )


def _ours(servers: nodes.Nodes, table: Map, count: int) -> dict[Row, float]:
    processes = nodes.processes(servers.cluster)
    used_ns = sum(map(cpu_ns, processes))
    took_ms = table.one_by_one(count)
    used_ns = sum(map(cpu_ns, processes)) - used_ns
    return {
        goals.SUSTAINED_P50: took_ms,
        goals.SUSTAINED_CPU: used_ns / 1e3 / count,
        goals.SUSTAINED_SHOWN: table.shown_s(servers.numbers),
    }


def _theirs(peer: etcd.Etcd, count: int) -> dict[Row, float]:
    took_ms, used_us = peer.transact(count)
    return {goals.SUSTAINED_P50: took_ms, goals.SUSTAINED_CPU: used_us}


def _catalogue(directory: Path) -> bytes:
    """Return the register of the catalogue, which follows from the cluster's id in the document of each node."""
    record = read_node(RealFiles(), next(directory.rglob(NODE)).parent)
    assert record is not None, directory
    return 2 * bytes.fromhex(record.cluster_id)


def _add_down(servers: nodes.Nodes, catalogue: bytes) -> None:
    """Add the node that is down to the nodes that may hold tables."""
    told = servers.call(1, "metadata_status", None)[0]
    base = config_id(told["generation"], told["sequence"])
    adding = Operation(bytes(OPERATION_ID_BYTES), base, "set_node", 1, (DOWN, "down", "", 1, None, 0))
    ((_, outcome, _, message),) = servers.call(1, "metadata_transact", catalogue, [adding.encode()], TIMEOUT_MS)
    if outcome != OperationOutcome.DONE:
        raise WrongAnswerError(f"a node could not be added: {message}")


class Place(NamedTuple):
    key: bytes
    partition: int


class Asked(NamedTuple):
    """An operation, and the resulting assignment at a key; None removes the assignment."""

    operation: Operation
    key: bytes
    assignment: int | None


class Map:
    """A table, and the changes of its map."""

    def __init__(self, servers: nodes.Nodes, partitions: int, chance: random.Random) -> None:
        self.partitions = partitions
        self.count = self.conflicts = 0  # The operations that were done, and those that came too late.
        self.done: dict[bytes, int] = {}  # The assignment that each key was given.
        self._nodes = servers
        self._chance = chance
        self._name = f"table{partitions}"
        options = {
            "kind": "range",
            "bounds": [b"%03d" % number for number in range(1, partitions)],
            "replication": SERVERS,
        }
        made = servers.call(1, "create_table", self._name, options)
        self._register = bytes.fromhex(made["table"])
        self._config = made["config"]
        self._places = [Place(told["start"], told["id"]) for told in self._read()]
        if len(self._places) != partitions:
            raise WrongAnswerError(f"the table has {len(self._places)} partitions, not {partitions}")

    def _read(self) -> list[dict[str, object]]:
        found: list[dict[str, object]] = []
        start: bytes | None = b""
        while start is not None:
            told = self._nodes.call(1, "partition_map", self._name, {"start": start})
            found += told["partitions"]
            start = told["next"]
        return found

    def _next(self) -> Asked:
        """Return an assignment for a random place, or the removal of an existing one."""
        place = self._chance.choice(self._places)
        assignment = self.done.get(place.key)
        if assignment is None:
            new = self._chance.getrandbits(63) + 1
            return self._asked("assign", place, new, DOWN, 0)
        return self._asked("unassign", place, assignment)

    def _asked(self, name: str, place: Place, assignment: int, *more: object) -> Asked:
        id_ = self._chance.randbytes(OPERATION_ID_BYTES)
        operation = Operation(id_, self._config, name, 1, (*place, assignment, *more))
        return Asked(operation, place.key, assignment if more else None)

    def _take(self, asked: Asked, told: list[object]) -> None:
        id_, outcome, code, message = told
        # A node has removed an assignment, or the place is not free until it has.
        if id_ == asked.operation.id and (outcome == OperationOutcome.CONFLICT or code == "INVALID"):
            self.conflicts += 1
            self.done.pop(asked.key, None)
            return
        if id_ != asked.operation.id or outcome != OperationOutcome.DONE:
            raise WrongAnswerError(f"an operation ended as {outcome}: {code} {message}")
        self.count += 1
        if asked.assignment is None:
            self.done.pop(asked.key, None)
        else:
            self.done[asked.key] = asked.assignment

    def one_by_one(self, count: int) -> float:
        """Do so many transactions, each with its answer; return the median in milliseconds."""
        took_s: list[float] = []
        for number in range(count):
            if number % REREAD == 0:
                self._reread()
            asked = self._next()
            sent = [self._register, [asked.operation.encode()], TIMEOUT_MS]
            begin_s = perf_counter()
            answer = self._nodes.call(1, "metadata_transact", *sent)
            took_s.append(perf_counter() - begin_s)
            self._take(asked, *answer)
            self._config += 1
        self._reread()
        return 1000 * median(took_s)

    def _reread(self) -> None:
        """Base the next operations on the present map, which may be shown later: nodes may change it, too."""
        self._config = max(self._config, self._nodes.call(1, "partition_map", self._name, {"limit": 1})["config"])

    def shown_s(self, numbers: Iterable[int]) -> float:
        """Return the seconds until each of these nodes shows the last change."""
        begin_s = perf_counter()
        for number in numbers:
            wait_for(partial(self._is_shown, number), f"node {number} to show {self._config} of {self._name}")
        return perf_counter() - begin_s

    def _is_shown(self, number: int) -> bool:
        return self._nodes.call(number, "partition_map", self._name, {"limit": 1})["config"] >= self._config

    def check(self) -> None:
        """Raise WrongAnswerError if the map has an unknown assignment, or many operations came too late."""
        for told in self._read():
            for one in told["assignments"]:
                if one["state"] == "PROPOSED" and int(one["id"], 16) != self.done.get(told["start"]):
                    raise WrongAnswerError(f"an assignment stands at {told['start']!r} that was not done")
        if self.conflicts > self.count / MAX_CONFLICTS:
            raise WrongAnswerError(f"{self.conflicts} operations came too late, and {self.count} were done")
