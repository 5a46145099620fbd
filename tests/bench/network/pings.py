"""How long a ping waits behind requests that are long, or many.

A node is stopped until all of them, and last the ping, have arrived; then it goes on, and what it computes until the
ping is answered is what the ping has waited for, whatever else the machine does.
"""

from __future__ import annotations

import random
import signal
import socket
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import sleep
from typing import TYPE_CHECKING

import msgpack

from tests.bench import data, goals, machine
from tests.bench.measurement import Measurement
from tests.bench.network import rows, servers

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.bench.data import Record
    from tests.bench.network.servers import Server

PING = msgpack.packb([0, 0, "ping", []])
PONG = msgpack.packb([1, 0, None, "pong"])
ARRIVED_S = 0.005
MILLISECOND_NS = 1e6
SCANNED = 1_000
LONGEST_ANSWER = 1 << 30
RECEIVE_BYTES = 1 << 20


@dataclass(frozen=True)
class Load:
    """How much a ping waits behind: connections, and what each of them asks."""

    batches: tuple[int, int] = (64, 3_600)  # Of so many keys.
    gets: tuple[int, int] = (64, 500)
    scans: tuple[int, int] = (32, 8)  # Of a thousand records.

    def mixes(self, records: list[Record]) -> dict[str, list[list[bytes]]]:
        """What each connection asks, of each row."""
        rng = random.Random(data.SEED)
        keys = [key for key, _ in records]
        name = servers.DATABASE

        def asked(count: int, method: str, *params: object) -> list[bytes]:
            return [msgpack.packb([0, number, method, [name, *params]]) for number in range(count)]

        batches = [asked(1, "get_many", rng.choices(keys, k=self.batches[1])) for _ in range(self.batches[0])]
        gets = [asked(self.gets[1], "get", rng.choice(keys)) for _ in range(self.gets[0])]
        scans = [asked(self.scans[1], "scan", {"limit": SCANNED}) for _ in range(self.scans[0])]
        everything = [*batches, *gets, *scans]
        rng.shuffle(everything)
        rows_ = (goals.PING_BATCHES, goals.PING_GETS, goals.PING_SCANS, goals.PING_MIX)
        return dict(zip(rows_, (batches, gets, scans, everything), strict=True))


def measure(server: Server, load: Load, records: list[Record], rounds: int) -> Iterator[Measurement]:
    """The rows, in milliseconds of the node's processor time."""
    values = dict(records)
    for row, mix in load.mixes(records).items():
        machine.say(f"  {row}")
        samples = _waits(server, mix, values, rounds)
        machine.say(f"    {servers.NODE:14} {median(samples):8.3f} ms")
        yield Measurement(row, "ms", servers.NODE, {servers.NODE: samples})


def _waits(server: Server, mix: list[list[bytes]], values: dict[bytes, bytes], rounds: int) -> list[float]:
    """What a ping waited for in each round but the first."""
    with ExitStack() as stack:
        others, own = ([stack.enter_context(_connected(server)) for _ in range(n)] for n in (len(mix), 1))
        waits = []
        for _ in range(rounds + 1):
            with stopped(server):
                for each, requests in zip(others, mix, strict=True):
                    each.sendall(b"".join(requests))
                own[0].sendall(PING)
                sleep(ARRIVED_S)
                before_ns = server.cpu_ns()
            if own[0].recv(RECEIVE_BYTES) != PONG:
                raise rows.WrongAnswerError("that is no pong")
            with stopped(server):
                waits.append((server.cpu_ns() - before_ns) / MILLISECOND_NS)
            for each, requests in zip(others, mix, strict=True):
                check(each, requests, values)
        return waits[1:]


def _connected(server: Server) -> socket.socket:
    """A connection that has been asked on once."""
    connection = socket.create_connection((server.address.host, server.address.port), timeout=rows.TIMEOUT_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.sendall(PING)
    if connection.recv(RECEIVE_BYTES) != PONG:
        raise rows.WrongAnswerError("that is no pong")
    return connection


@contextmanager
def stopped(server: Server) -> Iterator[None]:
    """Have it stand, all of its threads, meanwhile."""
    server.process.send_signal(signal.SIGSTOP)
    while not _stands(server.process.pid):
        pass
    yield
    server.process.send_signal(signal.SIGCONT)


def _stands(number: int) -> bool:
    """Whether all threads of a process were seen to be stopped; not, if one has ended meanwhile."""
    try:
        said = [(task / "stat").read_text() for task in Path(f"/proc/{number}/task").iterdir()]
    except OSError:
        return False
    return all(text.rpartition(")")[2].split()[0] == "T" for text in said)


def check(connection: socket.socket, requests: list[bytes], values: dict[bytes, bytes]) -> None:
    """Read as many answers as there were requests, and compare each value.  Raises WrongAnswerError."""
    wanted = {number: (method, params) for _, number, method, params in map(msgpack.unpackb, requests)}
    unpacker = msgpack.Unpacker(max_buffer_size=LONGEST_ANSWER)
    while wanted:
        unpacker.feed(connection.recv(RECEIVE_BYTES))
        for _, number, error, result in unpacker:
            method, params = wanted.pop(number)
            found, asked = result[0] if error is None else None, params[1]
            if method == "get":
                right = found == values[asked]
            elif method == "get_many":
                right = found == [values[key] for key in asked]
            else:
                right = len(found) == min(SCANNED, len(values)) and all(values[key] == value for key, value in found)
            if not right:
                raise rows.WrongAnswerError(f"{method}: a wrong answer, or {error}")
