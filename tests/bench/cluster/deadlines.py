"""Gets of what is here, beside gets that wait for an owner who is silent, each of which has a deadline after the other.

A read that nobody answers looks anew, once a stage, at who holds its partition.  So many of them wait that it is ten
thousand deadlines in a second, all of them the serving loop's own.
"""

from __future__ import annotations

import socket
import time
from contextlib import ExitStack, closing
from itertools import count, islice
from typing import TYPE_CHECKING

import msgpack

from gossipkv.keyspace.partitioner import partition
from tests.bench import goals, machine
from tests.bench.cluster import local_gets, table_node
from tests.bench.data import key_of
from tests.bench.measurement import OURS, WrongAnswerError
from tests.bench.network import rows
from tests.bench.network.rows import Shape
from tests.bench.processes import Cores

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gossipkv.address import Address
    from tests.bench.measurement import Bench

A_SECOND = 10_000
WAITING = A_SECOND * table_node.STAGE_MS // 1000
SETTLED_S = 1.0  # By then the pauses between a read's rounds have grown to a stage.


class WaitingGets:
    """Gets that are never answered, on a connection of their own."""

    def __init__(self, address: Address, keys: list[bytes]) -> None:
        """Ask, and let them settle."""
        self._socket = socket.create_connection(address)
        self._unpacker = msgpack.Unpacker()
        self._id = len(keys)
        options = {"timeout_ms": table_node.MOST}
        for number, key in enumerate(keys):
            self._send(number, "get", [table_node.database(0), key, options])
        time.sleep(SETTLED_S)

    def _send(self, number: int, method: str, params: list[object]) -> None:
        self._socket.sendall(msgpack.packb([0, number, method, params]))

    def rounds(self) -> int:
        """How often any of them has looked anew at who holds its partition."""
        self._id += 1
        self._send(self._id, "rounds", [])
        for kind, number, error, result in self._answers():
            if (kind, number, error) != (1, self._id, None):
                raise WrongAnswerError(f"an answer that nobody can give: {(kind, number, error, result)}")
            return result
        raise WrongAnswerError("the node has gone")

    def _answers(self) -> Iterator[tuple[int, int, object, int]]:
        while said := self._socket.recv(1 << 16):
            self._unpacker.feed(said)
            yield from self._unpacker

    def close(self) -> None:
        """Leave."""
        self._socket.close()


def measure(
    bench: Bench,
    *,
    partitions: int = 1_024,
    here: int = 16,
    keys: int = 100_000,
    run_s: float = 1.0,
    rounds: int = 9,
    least: float = 0.9,
) -> None:
    """The row; with less than that share of the deadlines it would be of something else."""
    cores = Cores.of_this_machine()
    chosen = local_gets.chosen(partitions, here)
    held = local_gets.held_records(chosen, partitions, keys)
    others = (key for key in map(key_of, count()) if partition(table_node.FUNCTION, key, partitions) not in chosen)
    with ExitStack() as stack:
        contestants = [
            stack.enter_context(local_gets.serving_tables(bench, name, (partitions,), held, cores, others=True))
            for name in (OURS, goals.WITHOUT)
        ]
        stack.enter_context(machine.pinned(cores.load))
        gets = stack.enter_context(closing(WaitingGets(contestants[0].address, [*islice(others, WAITING)])))
        before, begin_s = gets.rounds(), time.monotonic()
        rows.compare(bench, goals.CLUSTER_DEADLINES, contestants, Shape(64, run_s=run_s), rounds)
        each_s = (gets.rounds() - before) / (time.monotonic() - begin_s)
    if each_s < least * A_SECOND:
        raise WrongAnswerError(f"{each_s:,.0f} deadlines a second are not {A_SECOND:,}")
    bench.notes.append(f"get beside deadlines: {WAITING} gets wait, {each_s:,.0f} deadlines a second")
