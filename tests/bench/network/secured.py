"""The rows about TLS.

Client and server take turns on one core: the client asks over all connections, then waits for all. So a server's work
per turn is independent of its client's speed, and its own processor time counts.
"""

from __future__ import annotations

import os
import random
import socket
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import cycle
from time import monotonic
from typing import TYPE_CHECKING

from gossipkv.address import Address
from tests.bench import data, goals, machine
from tests.bench.http import servers as http
from tests.bench.measurement import WrongAnswerError
from tests.bench.network import servers
from tests.bench.network.rows import MICROSECOND_NS, TIMEOUT_S
from tests.bench.processes import DATABASE, NO_POLLING, Cores, free_port, node
from tests.unit.serving.secured import Authority, Pair

if TYPE_CHECKING:
    import ssl
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from tests.bench.data import Record
    from tests.bench.measurement import Bench
    from tests.bench.processes import Server

CORES = replace(Cores.of_this_machine(), load=Cores.of_this_machine().server)
HOST = "localhost"
SELECT = b"*2\r\n$6\r\nSELECT\r\n$1\r\n%d\r\n"
BURSTS = 1_000  # Each burst is sent repeatedly, over different connections.
RECEIVE_BYTES = 1 << 16


@dataclass(frozen=True)
class Certified:
    """A server's certificate, and a client context that trusts it."""

    pair: Pair
    context: ssl.SSLContext

    @classmethod
    def in_directory(cls, directory: Path) -> Certified:
        """Make a certificate of this machine, ECDSA over P-256."""
        directory.mkdir()
        authority = Authority(directory)
        pair = authority.pair("server", HOST)
        pair.key.chmod(0o600)
        return cls(pair, authority.trusting())

    @property
    def of_node(self) -> tuple[str, ...]:
        return ("--tls-certificate", str(self.pair.certificate), "--tls-key", str(self.pair.key))


@contextmanager
def node_by_resp(directory: Path, records: list[Record], *options: str) -> Iterator[Server]:
    """Run a node that is asked by RESP."""
    address = Address("127.0.0.1", free_port())
    listens = ("--resp-listen", str(address), "--resp-databases", DATABASE, "--tls-listeners", "resp_listen")
    with node(directory, records, CORES, *NO_POLLING, *listens, *options) as server:
        yield replace(server, address=address)


@contextmanager
def redis_by_tls(records: list[Record], certified: Certified) -> Iterator[Server]:
    port, pair = free_port(), certified.pair
    options = ["--tls-port", str(port), "--tls-auth-clients", "no", "--tls-session-caching", "no"]
    for name, path in (("cert", pair.certificate), ("key", pair.key), ("ca-cert", pair.certificate)):
        options += [f"--tls-{name}-file", str(path)]
    with servers.redis(records, CORES.server, *options) as server:
        yield replace(server, address=Address("127.0.0.1", port))


@contextmanager
def taking_turns(asked: Iterable[Server]) -> Iterator[None]:
    """Put this process on the servers' core, where no process interrupts another."""
    with machine.pinned(CORES.load):
        for process in (0, *(server.pid for server in asked)):
            os.sched_setscheduler(process, os.SCHED_BATCH, os.sched_param(0))
        yield
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))


def connect(address: Address, context: ssl.SSLContext | None, ticket: ssl.SSLSession | None = None) -> socket.socket:
    """Return a connection after its handshake; without a context it is plain."""
    connection = socket.create_connection(address, timeout=TIMEOUT_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if context is None:
        return connection
    return context.wrap_socket(connection, server_hostname=HOST, session=ticket)


class Client:
    """Asks one server over many connections, a burst of gets over each at a time; every answer is compared."""

    def __init__(
        self, server: Server, records: list[Record], connections: int, in_flight: int, context: ssl.SSLContext | None
    ) -> None:
        rng = random.Random(data.SEED)
        bursts = [rng.choices(records, k=in_flight) for _ in range(BURSTS)]
        self._server, self._in_flight = server, in_flight
        self._connections = [connect(server.address, context) for _ in range(connections)]
        for connection in self._connections:
            connection.sendall(SELECT % (server.name != goals.REDIS))
            if connection.recv(RECEIVE_BYTES) != b"+OK\r\n":
                raise WrongAnswerError(f"{server.name} has no such database")
        self._bursts = cycle(
            (
                b"".join(servers.redis_get(key) for key, _ in burst),
                b"".join(b"$%d\r\n%b\r\n" % (len(value), value) for _, value in burst),
            )
            for burst in bursts
        )

    def turn(self) -> int:
        """Ask over all connections and read all answers; return the number of gets."""
        expected = []
        for connection in self._connections:
            request, answer = next(self._bursts)
            connection.sendall(request)
            expected.append(answer)
        for connection, answer in zip(self._connections, expected, strict=True):
            received = connection.recv(RECEIVE_BYTES)
            while len(received) < len(answer):
                received += connection.recv(RECEIVE_BYTES)
            if received != answer:
                raise WrongAnswerError(f"{self._server.name}: expected {answer!r}, got {received!r}")
        return len(expected) * self._in_flight

    def cpu_us(self, run_s: float) -> float:
        """Return the server's processor time per get over this duration."""
        before_ns, until_s, gets = self._server.cpu_ns(), monotonic() + run_s, 0
        while monotonic() < until_s:
            gets += self.turn()
        return (self._server.cpu_ns() - before_ns) / MICROSECOND_NS / gets

    def close(self) -> None:
        for connection in self._connections:
            connection.close()


def gets(bench: Bench, *, keys: int = 100_000, connections: int = 64, run_s: float = 1.0, rounds: int = 7) -> None:
    """Measure a get by TLS beside a plain one of another node, and beside redis by TLS."""
    records = data.make(keys).records
    certified = Certified.in_directory(bench.directory / "certificates")
    with ExitStack() as stack:
        plain = stack.enter_context(node_by_resp(bench.directory / "plain", records))
        ours = stack.enter_context(node_by_resp(bench.directory / "tls", records, *certified.of_node))
        asked = [(ours, certified.context), (replace(plain, name=goals.PLAIN), None)]
        if bench.takes_part(goals.REDIS, servers.redis_missing()):
            asked.append((stack.enter_context(redis_by_tls(records, certified)), certified.context))
        stack.enter_context(taking_turns(server for server, _ in asked))
        for row, in_flight in ((goals.TLS_ONE, 1), (goals.TLS_PIPELINED, 16)):
            sides = {}
            for server, context in asked:
                client = stack.enter_context(closing(Client(server, records, connections, in_flight, context)))
                sides[server.name] = partial(client.cpu_us, run_s)
            bench.compare(row, sides, rounds)
    bench.notes.append(
        f"TLS: {connections} connections, {keys:,} records, RESP; a burst of each is one record; who speaks TLS speaks "
        "1.3 with AES-256-GCM, by the same OpenSSL"
    )


def handshakes(bench: Bench, *, count: int = 300, rounds: int = 7) -> None:
    """Measure a connection that is made and ended, by a full handshake and by a ticket, beside nginx."""
    certified = Certified.in_directory(bench.directory / "certificates")
    address = Address("127.0.0.1", free_port())
    command = http.nginx(bench.directory / "nginx", address, certified.pair)
    records = data.make(100).records
    with ExitStack() as stack:
        ours = stack.enter_context(node_by_resp(bench.directory / "node", records, *certified.of_node))
        nginx = stack.enter_context(http.peer(goals.NGINX, address, command, records, CORES))
        asked = {ours: SELECT % 1, nginx: b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"}
        stack.enter_context(taking_turns(asked))
        for row, is_short in ((goals.TLS_HANDSHAKE, False), (goals.TLS_RESUMED, True)):
            sides = {}
            for server, question in asked.items():
                ticket = _ticket(server, certified.context, question) if is_short else None
                sides[server.name] = partial(_handshake_us, server, certified.context, ticket, count)
            bench.compare(row, sides, rounds)
    bench.notes.append(
        "handshakes: TLS 1.3, ECDSA over P-256, X25519, one ticket, no session cache, one process each; a connection "
        "from its beginning to its end, on which nothing is asked"
    )


def _ticket(server: Server, context: ssl.SSLContext, question: bytes) -> ssl.SSLSession | None:
    """Return the session for short handshakes, which comes with the first answer."""
    with connect(server.address, context) as connection:
        connection.sendall(question)
        connection.recv(RECEIVE_BYTES)
        return connection.session


def _handshake_us(server: Server, context: ssl.SSLContext, ticket: ssl.SSLSession | None, count: int) -> float:
    before_ns = server.cpu_ns()
    for _ in range(count):
        with connect(server.address, context, ticket) as connection:
            if connection.session_reused != (ticket is not None):
                raise WrongAnswerError(f"{server.name}: a full handshake where a short one was due, or a short one")
            with suppress(OSError):  # Some servers send no close notification.
                connection.unwrap()
    return (server.cpu_ns() - before_ns) / MICROSECOND_NS / count
