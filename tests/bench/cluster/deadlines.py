"""Gets of what is here, beside gets that wait for an owner who is silent, each of which has a deadline after the other.

A read that nobody answers looks anew, once a stage, at who holds its partition.  So many of them wait that it is ten
thousand deadlines in a second, all of them the serving loop's own.
"""

from __future__ import annotations

import random
import socket
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgpack

from gossipkv.keyspace.partitioner import partition
from tests.bench import data, goals, machine
from tests.bench.cluster import local_gets, table_node
from tests.bench.datasets import records
from tests.bench.network import rows, servers
from tests.bench.network.rows import Shape

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from gossipkv.address import Address
    from tests.bench.measurement import Measurement

A_SECOND = 10_000
WAITING = A_SECOND * table_node.STAGE_MS // 1000
SETTLED_S = 1.0  # By then the pauses between a read's rounds have grown to a stage.


@dataclass(frozen=True)
class Load:
    """How long."""

    partitions: int = 1_024
    here: int = 16
    keys: int = 100_000
    run_s: float = 1.0
    rounds: int = 9
    least: float = 0.9  # Of the deadlines, or the row is of something else.


class WaitingGets:
    """Gets that are never answered, on a connection of their own."""

    def __init__(self, address: Address, keys: list[bytes]) -> None:
        """Ask."""
        self._socket = socket.create_connection((address.host, address.port))
        self._unpacker = msgpack.Unpacker()
        self._id = len(keys)
        options = {"timeout_ms": table_node.MOST}
        for number, key in enumerate(keys):
            self._send(number, "get", [table_node.database(0), key, options])

    def _send(self, number: int, method: str, params: list[object]) -> None:
        self._socket.sendall(msgpack.packb([0, number, method, params]))

    def rounds(self) -> int:
        """How often any of them has looked anew at who holds its partition."""
        self._id += 1
        self._send(self._id, "rounds", [])
        for kind, number, error, result in self._answers():
            if (kind, number, error) != (1, self._id, None):
                raise rows.WrongAnswerError(f"an answer that nobody can give: {(kind, number, error, result)}")
            return result
        raise rows.WrongAnswerError("the node has gone")

    def _answers(self) -> Iterator[tuple[int, int, object, int]]:
        while said := self._socket.recv(1 << 16):
            self._unpacker.feed(said)
            yield from self._unpacker

    def close(self) -> None:
        """Leave."""
        self._socket.close()


@contextmanager
def waiting(address: Address, keys: list[bytes]) -> Iterator[WaitingGets]:
    """The gets, until nobody needs their deadlines any more."""
    gets = WaitingGets(address, keys)
    try:
        time.sleep(SETTLED_S)
        yield gets
    finally:
        gets.close()


def measure(directory: Path, load: Load, notes: list[str]) -> Iterator[Measurement]:
    """The row."""
    cores = servers.Cores.of_this_machine()
    chosen = frozenset(random.Random(data.SEED).sample(range(load.partitions), load.here))
    held = local_gets.held_records(local_gets.Load(partitions=(load.partitions,), keys=load.keys), chosen)
    numbers = iter(range(1 << 30))
    elsewhere: list[bytes] = []
    while len(elsewhere) < WAITING:
        key = records.key_of(next(numbers))
        if partition(table_node.FUNCTION, key, load.partitions) not in chosen:
            elsewhere.append(key)
    with ExitStack() as stack:
        contestants = [
            stack.enter_context(
                local_gets.serving(directory / name, name, (load.partitions,), held, cores, others=True)
            )
            for name in (servers.NODE, goals.WITHOUT)
        ]
        stack.enter_context(machine.pinned(cores.load))
        gets = stack.enter_context(waiting(contestants[0].address, elsewhere))
        machine.say(f"  {goals.CLUSTER_DEADLINES}")
        shape = Shape(goals.CLUSTER_DEADLINES, 64, 1, run_s=load.run_s)
        before, begin_s = gets.rounds(), time.monotonic()
        yield rows.interleaved(shape, contestants, load.rounds, lambda figure: figure.cpu_us)
        each_s = (gets.rounds() - before) / (time.monotonic() - begin_s)
    if each_s < load.least * A_SECOND:
        raise rows.WrongAnswerError(f"{each_s:,.0f} deadlines a second are not {A_SECOND:,}")
    notes.append(
        f"get beside deadlines: {WAITING} gets wait for an owner that is connected and silent, and look anew each "
        f"{table_node.STAGE_MS} ms: {each_s:,.0f} deadlines a second; 64 other connections to records that are here, "
        "every value checked"
    )
