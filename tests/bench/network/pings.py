"""How long a ping waits behind requests that are long, or many.

A node is stopped until all of them, and last the ping, have arrived; then it goes on, and what it computes until the
ping is answered is what the ping has waited for, whatever else the machine does.
"""

from __future__ import annotations

import os
import random
import select
import signal
import socket
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from time import perf_counter_ns, sleep
from typing import TYPE_CHECKING, NamedTuple

import msgpack

from gossipkv.address import Address
from tests.bench import data, goals, machine
from tests.bench.asking import percentile
from tests.bench.measurement import OURS, WrongAnswerError
from tests.bench.network.rows import TIMEOUT_S
from tests.bench.network.secured import Certified
from tests.bench.network.servers import allow_descriptors
from tests.bench.processes import DATABASE, NO_POLLING, Cores, free_port, node, pin
from tests.bench.sources import VERSION
from tests.unit.serving.secured import Client as TlsClient

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
    """Behind so many connections, each of which asks for many keys, or that many gets, or scans of a thousand."""
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
                bench.compare(row, {OURS: lambda wait=wait: wait().cpu_ns / MILLISECOND_NS}, rounds)


def of_pumps(
    bench: Bench, *, keys: int = 100_000, batches: tuple[int, int] = (64, 3_600), pings: int = 40, rounds: int = 5
) -> None:
    """By the clock, of two pumps and of one: each has a core, for whoever asks only waits meanwhile."""
    records, rng = data.make(keys).records, random.Random(data.SEED)
    chosen = [rng.choices(records, k=batches[1]) for _ in range(batches[0])]
    requests = [[msgpack.packb([0, 0, "get_many", [DATABASE, [key for key, _ in batch]]])] for batch in chosen]
    answers = [msgpack.packb([1, 0, None, [[value for _, value in batch], VERSION]]) for batch in chosen]
    expected = {request: answer for (request,), answer in zip(requests, answers, strict=True)}

    def check(connection: socket.socket, requests: list[bytes]) -> None:
        answer, received = expected[requests[0]], bytearray()
        while len(received) < len(answer):
            received += connection.recv(RECEIVE_BYTES)
        if received != answer:
            raise WrongAnswerError("that is no batch, or a wrong one")

    with ExitStack() as stack:
        sides = {}
        for name, pumps in ((goals.ONE_PUMP, 1), (OURS, 2)):
            options = (*NO_POLLING, "--pumps", str(pumps))
            server = stack.enter_context(
                node(bench.directory / f"of-{pumps}", records, Cores.of_this_machine(), *options)
            )
            pin(server.pid, None)
            *others, own = (stack.enter_context(_connected(server)) for _ in range(len(requests) + 1))
            wait = partial(_wait, server, own, dict(zip(others, requests, strict=True)), check)
            sides[name] = lambda wait=wait: percentile([wait().wall_ns for _ in range(pings)], 0.99)
        bench.compare(goals.PUMPS_PING, sides, rounds)
    bench.notes.append(
        f"{goals.PUMPS_PING}: of {pings} pings, each behind {batches[0]} batches that came while the node stood still"
    )


def beside_handshakes(bench: Bench, *, count: int = 1_000, rounds: int = 5) -> None:
    """Pings one after another while so many clients, who come at once, are owed an answer by the node.

    Their hellos, and later what ends their handshakes, arrive while it stands still; nobody else computes then.
    """
    allow_descriptors()
    certified, address = Certified.in_directory(bench.directory / "certificates"), Address("127.0.0.1", free_port())
    options = ("--resp-listen", str(address), "--tls-listeners", "resp_listen", *certified.of_node)
    options += ("--frame-timeout", "5m")  # So long the clients have, who are slow.
    cores = Cores.of_this_machine()
    with (
        node(bench.directory / "node", data.make(1_000).records, cores, *NO_POLLING, *options) as server,
        machine.pinned(cores.load),
    ):

        def p99_ms() -> float:
            with ExitStack() as stack:
                own = stack.enter_context(_connected(server))
                sockets = [stack.enter_context(socket.create_connection(address)) for _ in range(count)]
                for each in sockets:
                    each.settimeout(0)
                clients = [TlsClient(each, certified.context) for each in sockets]
                waited_ns = [used_ns for _ in range(2) for used_ns in _pinged_meanwhile(server, own, clients)]
                if not all(client.is_shaken for client in clients):
                    raise WrongAnswerError("a handshake was not done")
            return sorted(waited_ns)[int(0.99 * len(waited_ns))] / MILLISECOND_NS

        bench.compare(goals.TLS_PING, {OURS: p99_ms}, rounds)


def _pinged_meanwhile(server: Server, own: socket.socket, clients: list[TlsClient]) -> list[int]:
    """What the node computed before each ping that came before all of these had their answer."""
    used_ns: list[int] = []
    waiting = select.poll()
    with _stopped(server):
        for client in clients:
            client.advance()
            waiting.register(client.socket, select.POLLIN)
    with _first_on_its_core():
        while not used_ns or len(waiting.poll(0)) < len(clients):
            used_ns.append(_wait(server, own, {}, partial(_check, values={})).cpu_ns)
    return used_ns


@contextmanager
def _first_on_its_core() -> Iterator[None]:
    """Have this process hear a pong when it is there, if it may: what a node computes until then counts."""
    with suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    yield
    os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))


def _connected(server: Server) -> socket.socket:
    """A connection that has been asked on once."""
    connection = socket.create_connection(server.address, timeout=TIMEOUT_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.sendall(PING)
    _hear_pong(connection)
    return connection


def _hear_pong(connection: socket.socket) -> None:
    if connection.recv(RECEIVE_BYTES) != PONG:
        raise WrongAnswerError("that is no pong")


class Wait(NamedTuple):
    """How long a ping waited, and what the node computed meanwhile."""

    wall_ns: int
    cpu_ns: int


def _wait(
    server: Server,
    own: socket.socket,
    others: dict[socket.socket, list[bytes]],
    check: Callable[[socket.socket, list[bytes]], None],
) -> Wait:
    """Of a ping that came last."""
    with _stopped(server):
        for each, requests in others.items():
            each.sendall(b"".join(requests))
        own.sendall(PING)
        sleep(ARRIVED_S)
        before_ns = server.cpu_ns()
        began_ns = perf_counter_ns()
    _hear_pong(own)
    wall_ns = perf_counter_ns() - began_ns
    with _stopped(server):
        used_ns = server.cpu_ns() - before_ns
    for each, requests in others.items():
        check(each, requests)
    return Wait(wall_ns, used_ns)


@contextmanager
def _stopped(server: Server) -> Iterator[None]:
    """Have it stand, all of its threads, meanwhile."""
    server.process.send_signal(signal.SIGSTOP)
    while not _stands(server.pid):
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


def _check(connection: socket.socket, requests: list[bytes], values: dict[bytes, bytes]) -> None:
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
                raise WrongAnswerError(f"{method}: a wrong answer, or {error}")
