"""The time that a ping waits behind long or many requests.

A node is stopped until all requests, and last the ping, have arrived; then it continues. The processor time until the
answer is the ping's wait, independent of the machine's load.
"""

from __future__ import annotations

import random
import signal
import socket
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from time import sleep
from typing import TYPE_CHECKING

import msgpack

from tests.bench import data, goals, machine
from tests.bench.measurement import OURS, WrongAnswerError
from tests.bench.network.rows import TIMEOUT_S
from tests.bench.processes import DATABASE, NO_POLLING, Cores, node

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.bench.measurement import Bench
    from tests.bench.processes import Server

PING = msgpack.packb([0, 0, "ping", []])
PONG = msgpack.packb([1, 0, None, "pong"])
ARRIVED_S = 0.005
MILLISECOND_NS = 1e6
SCANNED = 1_000
LONGEST_ANSWER = 1 << 30
RECEIVE_BYTES = 1 << 20


def measure(
    bench: Bench,
    *,
    keys: int = 100_000,
    batches: tuple[int, int] = (64, 3_600),
    gets: tuple[int, int] = (64, 500),
    scans: tuple[int, int] = (32, 8),
    rounds: int = 7,
) -> None:
    """Measure behind connections that each ask for many keys, many gets, or scans of a thousand."""
    records = data.make(keys).records
    asked_for, rng = [key for key, _ in records], random.Random(data.SEED)

    def asked(count: int, method: str, *params: object) -> list[bytes]:
        return [msgpack.packb([0, number, method, [DATABASE, *params]]) for number in range(count)]

    many = [asked(1, "get_many", rng.choices(asked_for, k=batches[1])) for _ in range(batches[0])]
    single = [asked(gets[1], "get", rng.choice(asked_for)) for _ in range(gets[0])]
    scanned = [asked(scans[1], "scan", {"limit": SCANNED}) for _ in range(scans[0])]
    mix = rng.sample([*many, *single, *scanned], len(many) + len(single) + len(scanned))
    cores = Cores.of_this_machine()
    with node(bench.directory / "node", records, cores, *NO_POLLING) as server, machine.pinned(cores.load):
        for row, requests in zip(goals.NETWORK_PINGS, (many, single, scanned, mix), strict=True):
            with ExitStack() as stack:
                own, *others = (stack.enter_context(_connected(server)) for _ in range(len(requests) + 1))
                check = partial(_check, values=dict(records))
                wait = partial(_wait, server, own, dict(zip(others, requests, strict=True)), check)
                bench.compare(row, {OURS: wait}, rounds)


def _connected(server: Server) -> socket.socket:
    """Return a connection that has been used once."""
    connection = socket.create_connection(server.address, timeout=TIMEOUT_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.sendall(PING)
    _hear_pong(connection)
    return connection


def _hear_pong(connection: socket.socket) -> None:
    if connection.recv(RECEIVE_BYTES) != PONG:
        raise WrongAnswerError("that is no pong")


def _wait(
    server: Server,
    own: socket.socket,
    others: dict[socket.socket, list[bytes]],
    check: Callable[[socket.socket, list[bytes]], None],
) -> float:
    """Return the node's milliseconds of processor time before it answers the last ping."""
    with _stopped(server):
        for each, requests in others.items():
            each.sendall(b"".join(requests))
        own.sendall(PING)
        sleep(ARRIVED_S)
        before_ns = server.cpu_ns()
    _hear_pong(own)
    with _stopped(server):
        used_ns = server.cpu_ns() - before_ns
    for each, requests in others.items():
        check(each, requests)
    return used_ns / MILLISECOND_NS


@contextmanager
def _stopped(server: Server) -> Iterator[None]:
    """Stop all threads of the server for the block."""
    server.process.send_signal(signal.SIGSTOP)
    while not _stands(server.pid):
        pass
    yield
    server.process.send_signal(signal.SIGCONT)


def _stands(number: int) -> bool:
    """True if all threads of a process are stopped; False if one has ended meanwhile."""
    try:
        said = [(task / "stat").read_text() for task in Path(f"/proc/{number}/task").iterdir()]
    except OSError:
        return False
    return all(text.rpartition(")")[2].split()[0] == "T" for text in said)


def _check(connection: socket.socket, requests: list[bytes], values: dict[bytes, bytes]) -> None:
    """Read as many answers as there were requests, and compare each value. Raises WrongAnswerError."""
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
                raise WrongAnswerError(f"{method}: a wrong answer, or {error}")
