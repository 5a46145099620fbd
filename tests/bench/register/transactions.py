"""The rows about METADATA transactions: one operation on a map of many partitions, and a thousand at once.

Three real nodes are the servers of a table.  One of them is asked by `metadata_transact` for operations that give a
partition to a node that nobody is (`assign`), or take it away again (`unassign`), each of which changes one leaf of the
map as any operation does.  At the end the whole map is read, and has every assignment that was told to be done, and no
other.
"""

from __future__ import annotations

import random
import socket
from contextlib import closing
from functools import partial
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple

import msgpack

from gossipkv.address import parse_address
from gossipkv.register.metadata.operations import Operation
from gossipkv.register.metadata.pages import OPERATION_ID_BYTES, Outcome
from tests.bench import data, goals, machine
from tests.bench.cluster import nodes
from tests.bench.measurement import WrongAnswerError
from tests.bench.processes import disk_bytes, wait_for
from tests.bench.register.disk import Disk

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.bench.measurement import Bench

SERVERS = 3
SYNCS = 4
LEAST_MS = {4_096: 15, 100_000: 50}  # What a transaction may take beside the disk, by partitions.
TIMEOUT_MS = 60_000
TOGETHER = 4  # Operations of a burst in one request: a node takes a thousand requests that wait, and its own are some.
RECEIVE_BYTES = 1 << 18
KIB = 1024


class Place(NamedTuple):
    """A partition of a table."""

    key: bytes
    partition: int


def measure(bench: Bench, *, syncs: int = 100, operations: int = 60, burst: int = 1_000, rounds: int = 5) -> None:
    """All rows: so many operations one after the other, and so many at once."""
    chance = random.Random(data.SEED)
    with (
        nodes.deciding(bench.directory / "nodes", SERVERS, SERVERS) as servers,
        closing(Disk(bench.directory / "yardstick")) as disk,
    ):
        maps = [Map(servers, partitions, chance) for partitions in LEAST_MS]
        for number in range(rounds + 1):
            for each in chance.sample(maps, len(maps)):
                before_ms = disk.sync_ms(syncs)
                took_ms, written_kib = each.one_by_one(operations)
                transactions, each_us = each.burst(burst)
                sync_ms = (before_ms + disk.sync_ms(syncs)) / 2
                if number > 0:
                    count = each.partitions
                    bench.add(goals.METADATA_P50.of(count), took_ms)
                    limit_ms = LEAST_MS[count] + SYNCS * sync_ms
                    bench.add(goals.METADATA_P50.of(count), limit_ms, goals.TRANSACTION_SYNCS[count])
                    bench.add(goals.METADATA_WRITTEN.of(count), written_kib)
                    bench.add(goals.METADATA_BURST.of(count), transactions)
                    bench.add(goals.METADATA_BURST_TIME.of(count), each_us)
        for each in maps:
            each.check()
    bench.notes.append(
        f"transactions: {operations} operations one after the other, each a transaction with its answer, then "
        f"{burst:,} at once, {TOGETHER} a request; {rounds} rounds; all {sum(each.count for each in maps):,} were "
        "done, and the maps had just what they had made at the end; of the servers, what the one wrote that wrote most"
    )


class Asked(NamedTuple):
    """An operation, and what it does at a key: an assignment is there then; None: none is."""

    operation: Operation
    key: bytes
    assignment: int | None


class Map:
    """A table, and what was done to its map."""

    def __init__(self, servers: nodes.Nodes, partitions: int, chance: random.Random) -> None:
        self.partitions = partitions
        self.count = 0  # Operations that were done.
        self.done: dict[bytes, int] = {}  # The assignment that each key was given.
        self._nodes = servers
        self._chance = chance
        self._taken: list[Place] = []
        self._name = f"table{partitions}"
        begin_s = perf_counter()
        options = {"kind": "hash", "partitions": partitions, "replication": SERVERS}
        made = servers.call(1, "create_table", self._name, options)
        machine.say(f"    a table of {partitions:,} partitions was made in {perf_counter() - begin_s:.1f} s")
        self._register = bytes.fromhex(made["table"])
        self._first = self._config = made["config"]
        self._free = [Place(told["start"], told["id"]) for told in self._read()]
        if len(self._free) != partitions:
            raise WrongAnswerError(f"the table has {len(self._free)} partitions, not {partitions}")
        chance.shuffle(self._free)

    def _read(self) -> list[dict[str, object]]:
        found: list[dict[str, object]] = []
        start: bytes | None = b""
        while start is not None:
            told = self._nodes.call(1, "partition_map", self._name, {"start": start})
            found += told["partitions"]
            start = told["next"]
        return found

    def _need(self, count: int) -> None:
        """Have so many partitions to ask for, each once: what goes together is not in each other's way."""
        if len(self._free) < count:
            self._free += self._taken
            self._taken = []
            self._chance.shuffle(self._free)

    def _next(self) -> Asked:
        """An assignment somewhere; where there is one, its end."""
        place = self._free.pop()
        self._taken.append(place)
        assignment = self.done.get(place.key)
        if assignment is None:
            new = self._chance.getrandbits(63) + 1
            return self._asked("assign", place, new, self._chance.randbytes(16), 0)
        return self._asked("unassign", place, assignment)

    def _asked(self, name: str, place: Place, assignment: int, *more: object) -> Asked:
        id_ = self._chance.randbytes(OPERATION_ID_BYTES)
        operation = Operation(id_, self._config, name, 1, (*place, assignment, *more))
        return Asked(operation, place.key, assignment if more else None)

    def _take(self, asked: Asked, told: list[object]) -> None:
        id_, outcome, code, message = told
        if id_ != asked.operation.id or outcome != Outcome.DONE:
            raise WrongAnswerError(f"an operation ended as {outcome}: {code} {message}")
        self.count += 1
        if asked.assignment is None:
            del self.done[asked.key]
        else:
            self.done[asked.key] = asked.assignment

    def _sequence(self, operation: Operation) -> int:
        """The config id by now, as a full round at the server shows it."""
        outcome = self._nodes.call(1, "metadata_outcome", self._register, operation.id, operation.base)
        if outcome != Outcome.DONE:
            raise WrongAnswerError(f"an operation that was done is told as {outcome}")
        return self._nodes.call(1, "partition_map", self._name, {"limit": 1})["config"]

    def one_by_one(self, count: int) -> tuple[float, float]:
        """Milliseconds of a transaction, the median, and KiB that a server wrote for one."""
        took_s: list[float] = []
        processes = nodes.processes(self._nodes.cluster)
        before = [disk_bytes(process, "write_bytes") for process in processes]
        for _ in range(count):
            self._need(1)
            asked = self._next()
            sent = [self._register, _encoded([asked]), TIMEOUT_MS]
            begin_s = perf_counter()
            answer = self._nodes.call(1, "metadata_transact", *sent)
            took_s.append(perf_counter() - begin_s)
            self._take(asked, *answer)
            self._config += 1
        written = max(disk_bytes(process, "write_bytes") - was for process, was in zip(processes, before, strict=True))
        if (config := self._sequence(asked.operation)) != self._config:
            raise WrongAnswerError(f"{count} transactions led to {config}, not {self._config}")
        return 1000 * median(took_s), written / KIB / count

    def shown_s(self, numbers: Iterable[int]) -> float:
        """Seconds from now until each of these nodes shows what was done last."""
        begin_s = perf_counter()
        for number in numbers:
            wait_for(partial(self._is_shown, number), f"node {number} to show {self._config} of {self._name}")
        return perf_counter() - begin_s

    def _is_shown(self, number: int) -> bool:
        return self._nodes.call(number, "partition_map", self._name, {"limit": 1})["config"] >= self._config

    def burst(self, count: int) -> tuple[int, float]:
        """How many transactions so many operations took, and microseconds of each operation."""
        self._need(count)
        asked = [self._next() for _ in range(count)]
        flying = {first: asked[first : first + TOGETHER] for first in range(0, count, TOGETHER)}
        requests = b"".join(
            msgpack.packb([0, first, "metadata_transact", [self._register, _encoded(some), TIMEOUT_MS]])
            for first, some in flying.items()
        )
        begin_s = perf_counter()
        unpacker = msgpack.Unpacker()
        with socket.create_connection(
            parse_address(self._nodes.cluster.node(1).address), timeout=TIMEOUT_MS / 1000
        ) as line:
            line.sendall(requests)
            while flying:
                unpacker.feed(line.recv(RECEIVE_BYTES))
                for _, number, error, answer in unpacker:
                    if error is not None:
                        raise WrongAnswerError(f"an operation of many was answered with {error}")
                    for one, told in zip(flying.pop(number), answer, strict=True):
                        self._take(one, told)
        took_s = perf_counter() - begin_s
        config = self._sequence(asked[-1].operation)
        transactions, self._config = config - self._config, config
        return transactions, 1e6 * took_s / count

    def check(self) -> None:
        """Raise WrongAnswerError if the map has not just what was done."""
        found = {}
        for told in self._read():
            for one in told["assignments"]:
                if one["state"] == "PROPOSED":
                    found[told["start"]] = int(one["id"], 16)
        if found != self.done:
            raise WrongAnswerError(f"{len(self.done)} assignments were done, and the map has {len(found)}")


def _encoded(some: list[Asked]) -> list[bytes]:
    return [asked.operation.encode() for asked in some]
