"""Writers, each with a connection and one request in flight, against a table on three nodes, and Redis.

The load is the same for both: prepared bytes, sent as fast as they are answered, with each answer checked.
"""

from __future__ import annotations

import selectors
import socket
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from time import perf_counter_ns
from typing import TYPE_CHECKING

import msgpack

from gossipkv.address import Address
from tests.bench import data
from tests.bench.cluster import nodes
from tests.bench.measurement import WrongAnswerError
from tests.bench.network.servers import redis_set
from tests.bench.processes import free_port, process, wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from gossipkv.client import blocking
    from tests.bench.cluster.nodes import Nodes
    from tests.bench.data import Record

TABLE = "t"
REPLICAS = 3
RECEIVE_BYTES = 1 << 16
PATIENCE_S = 30.0
SET = (b"+OK\r\n:1\r\n", b"+OK\r\n:2\r\n")  # One replica has confirmed, or both.


@dataclass(frozen=True)
class Spoken:
    """The encoding of a put, and a test for a complete answer, which raises WrongAnswerError if it is wrong."""

    put: Callable[[bytes, bytes], bytes]
    is_whole: Callable[[bytes], bool]


def _put(key: bytes, value: bytes) -> bytes:
    packed: bytes = msgpack.packb([0, 1, "put", [TABLE, key, value]])
    return packed


def _is_put(answer: bytes) -> bool:
    try:
        _, _, error, _ = msgpack.unpackb(answer)
    except ValueError:
        return False
    if error is not None:
        raise WrongAnswerError(f"a put was answered with {error!r}")
    return True


def _set_and_wait(key: bytes, value: bytes) -> bytes:
    return redis_set(key, value) + b"*3\r\n$4\r\nWAIT\r\n$1\r\n1\r\n$1\r\n0\r\n"


def _is_set(answer: bytes) -> bool:
    if answer.count(b"\r\n") < 2 and answer.startswith(b"+"):
        return False
    if answer not in SET:
        raise WrongAnswerError(f"SET and WAIT 1 were answered with {answer!r}")
    return True


TABLES, REDIS = Spoken(_put, _is_put), Spoken(_set_and_wait, _is_set)


def write(spoken: Spoken, to: Sequence[Address], records: Sequence[Record], connections: int) -> tuple[float, int]:
    """Put all records over so many connections to each; return the seconds, and the bytes of the answers."""
    left = iter([spoken.put(key, value) for key, value in records])
    with ExitStack() as stack:
        selector = stack.enter_context(selectors.DefaultSelector())
        received: dict[socket.socket, bytes] = {}
        total = flying = 0

        def send(connection: socket.socket) -> bool:
            request = next(left, None)
            if request is not None:
                connection.sendall(request)
            return request is not None

        for address in [*to] * connections:
            connection = stack.enter_context(socket.create_connection(address, timeout=PATIENCE_S))
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            selector.register(connection, selectors.EVENT_READ)
            received[connection] = b""
        begin_ns = perf_counter_ns()
        flying = sum(send(connection) for connection in received)
        while flying:
            events = selector.select(PATIENCE_S)
            if not events:
                raise WrongAnswerError(f"{flying} of {len(received)} writers had no answer within {PATIENCE_S:g} s")
            for event, _ in events:
                assert isinstance(event.fileobj, socket.socket)
                connection = event.fileobj
                data_ = connection.recv(RECEIVE_BYTES)
                if not data_:
                    raise WrongAnswerError("a connection was closed")
                total += len(data_)
                received[connection] += data_
                if spoken.is_whole(received[connection]):
                    received[connection] = b""
                    flying -= not send(connection)
        return (perf_counter_ns() - begin_ns) / 1e9, total


@contextmanager
def tables(directory: Path, partitions: int, **settings: str) -> Iterator[Nodes]:
    """Run three nodes that take writes of a new table at all of its replicas."""
    with nodes.running(directory, REPLICAS, refresh_period="off", **settings) as cluster:
        asked = nodes.Nodes(cluster)
        try:
            asked.wait_alive()
            make(asked, partitions)
            yield asked
        finally:
            asked.close()


def make(asked: Nodes, partitions: int) -> None:
    """Make the table, and return when it exists on all nodes."""
    options = {"kind": "hash", "partitions": partitions, "replication": REPLICAS}
    asked.call(1, "create_table", TABLE, options)
    for number in asked.numbers:
        wait_for(partial(_puts, asked, number), f"puts at {number}")


def _puts(asked: Nodes, number: int) -> bool:
    return asked.call(number, "put", TABLE, b"first", b"", {"level": "all"}) is not None


def wait_for_records(client: blocking.Client, records: Sequence[Record]) -> None:
    keys, values = [key for key, _ in records], [value for _, value in records]
    wait_for(lambda: client.table(TABLE).get_many(keys) == values, "values that were put")


def records_of(turn: int, count: int) -> list[Record]:
    """Return the records of a turn, with keys that no other turn has."""
    keys = map(data.key_of, range(turn * count, (turn + 1) * count))
    return [(key, data.value_of(key)) for key in keys]


@contextmanager
def redis(directory: Path) -> Iterator[list[tuple[int, Address]]]:
    """Run a master and two replicas that sync before they answer; yield their processes and addresses."""
    found: list[tuple[int, Address]] = []
    with ExitStack() as stack:
        for number in range(REPLICAS):
            port = free_port()
            place = directory / f"redis-{number}"
            place.mkdir(parents=True)
            command = ["redis-server", "--save", "", "--appendonly", "yes", "--appendfsync", "always"]
            command += ["--bind", "127.0.0.1", "--port", str(port), "--dir", str(place)]
            command += ["--repl-diskless-sync", "yes", "--repl-diskless-sync-delay", "0"]
            if found:
                command += ["--replicaof", "127.0.0.1", str(found[0][1].port)]
            ready = _is_replica if found else _is_master
            running, _ = stack.enter_context(process(command, ready=ready))
            found.append((running.pid, Address("127.0.0.1", port)))
        yield found


def _is_master(line: str) -> bool:
    return "eady to accept connections" in line


def _is_replica(line: str) -> bool:
    return "Finished with success" in line
