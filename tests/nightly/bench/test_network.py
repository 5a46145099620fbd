"""The foundations of the network rows: peers' protocols are read correctly, and a wrong answer stops the run."""

from __future__ import annotations

import socket
from contextlib import contextmanager
from typing import TYPE_CHECKING

import msgpack
import pytest

from gossipkv.address import Address
from gossipkv.loadtest._loadtest import Generator
from tests.bench import data
from tests.bench.measurement import WrongAnswerError
from tests.bench.network import rows, servers
from tests.bench.processes import Cores, Server
from tests.load import RpcDialect
from tests.unit.client.fake_node import FakeNode, store

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gossipkv.loadtest._loadtest import Dialect

RECORDS = [(b"key-1", b"value"), (b"key-2", b""), (b"key-3", None)]


@contextmanager
def asked(dialect: Dialect, *, in_flight: int = 1, batch: int = 1) -> Iterator[tuple[Generator, socket.socket, bytes]]:
    """Yield a generator that has asked once per slot, the server's end of its connection, and the sent bytes."""
    ours, theirs = socket.socketpair()
    generator = Generator(dialect, [ours], in_flight=in_flight, batch=batch, timeout_ms=1000, seed=3)
    with theirs:
        generator.begin(requests=in_flight, now_ns=0)
        yield generator, theirs, theirs.recv(1 << 16)
        generator.close()


def test_a_call_is_compared_as_it_is_encoded() -> None:
    """The exact result is an answer, in any order; any other result is garbage."""
    dialect = servers.protocols().CallDialect(b"method", msgpack.packb({"a": 1}))
    with asked(dialect, in_flight=2) as (generator, server, sent):
        unpacker = msgpack.Unpacker()
        unpacker.feed(sent)
        requests = list(unpacker)
        assert [each[2:] for each in requests] == 2 * [["method", []]]
        server.send(b"".join(msgpack.packb([1, each[1], None, {"a": 1}]) for each in reversed(requests)))
        assert not generator.step_at(0)
        assert (generator.tally.answered, generator.connections) == (2, 1)
    with asked(dialect) as (generator, server, sent):
        server.send(msgpack.packb([1, msgpack.unpackb(sent)[1], None, {"a": 2}]))
        generator.step_at(0)
        assert generator.tally.broken() == {"garbage": 1}


def test_puts_are_of_numbered_records() -> None:
    """Each request puts the next record; a token is an answer, an error is counted, and anything else is wrong."""
    dialect = servers.protocols().PutDialect(b"t", 7)
    with asked(dialect, in_flight=3) as (generator, server, sent):
        unpacker = msgpack.Unpacker()
        unpacker.feed(sent)
        requests = list(unpacker)
        assert [each[2:] for each in requests] == [["put", ["t", *record]] for record in numbered(7, 3)]
        answers = ([None, b"token"], [["UNKNOWN", "late", {}], None], [None, "text"])
        server.send(b"".join(msgpack.packb([1, each[1], *rest]) for each, rest in zip(requests, answers, strict=True)))
        generator.step_at(0)
        tally = generator.tally
        assert (dialect.next, tally.answered, tally.errors(), tally.wrong) == (10, 2, {"UNKNOWN": 1}, 1)


@pytest.mark.parametrize(("waits", "answer"), [(False, b"+OK\r\n"), (True, b"+OK\r\n*2\r\n:1\r\n:2\r\n")])
def test_sets_are_of_numbered_records(waits: bool, answer: bytes) -> None:
    """An answer counts once it is whole; one without a synced replica breaks the connection."""
    ours, theirs = socket.socketpair()
    with theirs:
        dialect = servers.protocols().SetDialect(7, waits=waits)
        generator = Generator(dialect, [ours], in_flight=1, batch=1, timeout_ms=1000, seed=3)
        theirs.send(b"+OK\r\n")
        generator.settle()
        assert theirs.recv(1 << 16) == b"*2\r\n$6\r\nSELECT\r\n$1\r\n0\r\n"
        generator.begin(requests=2, now_ns=0)
        ((key, value),) = numbered(7, 1)
        sent = theirs.recv(1 << 16)
        assert sent.startswith(servers.redis_set(key, value))
        assert (b"WAITAOF" in sent) == waits
        for part in (answer[:-2], answer[-2:]):
            assert generator.tally.answered == 0
            theirs.send(part)
            generator.step_at(0)
        assert generator.tally.answered == 1
        theirs.send(answer.replace(b":2", b":0").replace(b"OK", b"NO"))
        generator.step_at(0)
        assert generator.tally.broken() == {"garbage": 1}
        generator.close()


def test_gets_with_a_token_are_compared() -> None:
    dialect = servers.protocols().TokenDialect(b"t", RECORDS[:1], b"token")
    for value, wrong in ((b"value", 0), (b"another", 1)):
        with asked(dialect) as (generator, server, sent):
            _, number, *rest = msgpack.unpackb(sent)
            assert rest == ["get", ["t", b"key-1", {"token": b"token"}]]
            server.send(msgpack.packb([1, number, None, [value, b"later"]]))
            generator.step_at(0)
            assert (generator.tally.answered, generator.tally.wrong) == (1, wrong)


def numbered(first: int, count: int) -> list[list[bytes]]:
    keys = map(data.key_of, range(first, first + count))
    return [[key, data.value_of(key)] for key in keys]


def test_the_floor_answers_each_request_once() -> None:
    """The floor answers a number of bytes per request, however the requests are cut."""
    with (
        servers.floor(10, 300_000, Cores.of_this_machine()) as server,
        socket.create_connection(server.address) as connection,
    ):
        for piece in (b"x" * 25, b"x" * 4, b"x"):
            connection.sendall(piece)
        received = 0
        while received < 900_000:
            received += len(connection.recv(1 << 20))
        connection.settimeout(0.05)
        with pytest.raises(TimeoutError):
            connection.recv(1)
        assert received == 900_000


def test_wrong_answers_are_not_measured() -> None:
    with FakeNode(store({b"key-1": b"another"})) as node:
        host, port = node.listener.getsockname()
        server = Server("fake", None, Address(host, port), RpcDialect("db", RECORDS[:1]))
        with pytest.raises(WrongAnswerError, match=r"1 wrong values .*expected b'value'.*got b'another'"):
            rows.open_traffic(server, rows.Shape(1))
