"""The generator under TLS with its token, against servers with Python's own TLS."""

from __future__ import annotations

import contextlib
import socket
import ssl
from pathlib import Path
from typing import TYPE_CHECKING

import msgpack
import pytest

from gossipkv.errors import ConfigError
from gossipkv.loadtest._loadtest import Generator, RpcDialect
from gossipkv.loadtest.fleet import MODULE
from gossipkv.processes.worker import start
from gossipkv.serving._transport import TlsClient
from tests.unit.client.certificates import Authority
from tests.unit.client.fake_node import FakeNode
from tests.unit.loadtest.scripted import answer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tests.unit.client.fake_node import Connection

HELD = {b"key-%02d" % number: b"%02d" % number * 9000 for number in range(16)}
TIMEOUT_MS = 60_000
TOKEN = "gkv-token"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """Return the authority of all servers in these tests."""
    return Authority(tmp_path_factory.mktemp("certificates"))


def serve(connection: Connection, requests: Iterable[int] = range(10**6)) -> None:
    for _, request in zip(requests, iter(connection.next_request, None), strict=False):
        message_id, method, params = request
        if method == "auth":
            assert (params, connection.pending, next(connection.unpacker, None)) == ([TOKEN], [], None)
            connection.answer(message_id, "ana")
            continue
        keys = params[1]
        values = [HELD[key] for key in keys] if method == "get_many" else HELD[keys]
        connection.answer(message_id, [values, "1"])


def load(port: int, tls: TlsClient | None, *, token: str | None = None, redial: bool = False) -> Generator:
    sockets = [socket.create_connection(("127.0.0.1", port)) for _ in range(3)]
    for each in sockets:
        each.settimeout(0)
    dialect = RpcDialect("db", HELD.items(), token=token)
    shape = {"in_flight": 5, "batch": 16, "timeout_ms": TIMEOUT_MS, "seed": 1, "mix": (1, 2, 0)}
    return Generator(dialect, sockets, tls=[tls], redial=redial, **shape)


def run(generator: Generator, **length: float) -> list[int]:
    """Run once; return the numbers of sent, answered, lost and wrong requests."""
    generator.begin(**length)
    while generator.step(1000):
        pass
    tally = generator.tally
    return [tally.sent, tally.answered, tally.lost, tally.wrong]


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
@pytest.mark.parametrize("token", [None, TOKEN])
def test_answers_come_by_tls(authority: Authority, host: str, token: str | None) -> None:
    """All answers of a closed and an open loop arrive, also ones longer than a record or a receive."""
    with FakeNode(serve, tls=authority.node("127.0.0.1", "localhost")) as node:
        generator = load(node.port, TlsClient(host, authority.file), token=token)
        assert generator.settle() == 0
        assert run(generator, requests=150) == [150, 150, 0, 0]
        assert run(generator, rate=1000, requests=50, duration_ns=1 << 60) == [50, 50, 0, 0]
        generator.close()


def test_an_end_behind_an_answer_is_seen_at_once(authority: Authority) -> None:
    """Bytes that TLS has buffered are read, although the system does not report them."""
    ours, theirs = socket.socketpair()
    ours.settimeout(0)
    into, out = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = authority.node("here").wrap_bio(into, out, server_side=True)
    generator = Generator(
        RpcDialect("db", [(b"k", ...)]), [ours], in_flight=1, batch=1, timeout_ms=TIMEOUT_MS, seed=1,
        tls=[TlsClient("here", authority.file)],
    )  # fmt: skip
    for _ in range(2):  # The client's first message, and its second.
        into.write(theirs.recv(1 << 16))
        with contextlib.suppress(ssl.SSLWantReadError):
            server.do_handshake()
        theirs.sendall(out.read())
        generator.step_at(0)
    generator.begin(requests=2, now_ns=0)
    into.write(theirs.recv(1 << 16))
    server.write(answer(msgpack.unpackb(server.read(1 << 16))[1], [b"v", "1"]))
    with contextlib.suppress(ssl.SSLWantReadError):
        server.unwrap()
    theirs.sendall(out.read())
    assert not generator.step_at(1)
    tally = generator.tally
    assert (tally.answered, tally.lost, tally.broken()) == (1, 1, {"closed": 1})
    theirs.close()


def test_a_process_hears_the_token_by_its_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    """The token appears neither in the arguments nor in the environment, even if the parent has it there."""
    monkeypatch.setenv("GOSSIPKV_TOKEN", TOKEN)
    with contextlib.ExitStack() as stack:
        place = Path(f"/proc/{start(MODULE, stack).process.pid}")
        while MODULE.encode() not in (place / "cmdline").read_bytes():  # The system is about to start the process.
            pass
        assert [file for file in ("cmdline", "environ") if TOKEN.encode() in (place / file).read_bytes()] == []


def test_connections_come_again(authority: Authority) -> None:
    """A new connection has a new handshake and shows the token before any request."""

    def some(connection: Connection) -> None:
        serve(connection, range(8))

    with FakeNode(some, tls=authority.node("127.0.0.1")) as node:
        generator = load(node.port, TlsClient("127.0.0.1", authority.file), token=TOKEN, redial=True)
        assert generator.settle() == 0
        sent, answered, lost, wrong = run(generator, requests=100)
        assert (sent, answered + lost, wrong) == (100, 100, 0)
        assert answered > 21
        assert generator.tally.reconnects >= answered // 7 - 3
        generator.close()


@pytest.mark.parametrize("refuses", ["certificate", "host", "authority", "token", "nothing is spoken"])
def test_who_does_not_prove_it_is_asked_nothing(authority: Authority, tmp_path: Path, refuses: str) -> None:
    """A server with another host or authority, or without token or TLS, gets no request."""
    asked: list[str] = []

    def refuse(connection: Connection) -> None:
        while (request := connection.next_request()) is not None:
            asked.append(request[1])
            connection.answer(request[0], None, ["UNAUTHORIZED", "no", {}])

    context = None if refuses == "nothing is spoken" else authority.node("127.0.0.1", asks=refuses == "certificate")
    trusted = Authority(tmp_path).file if refuses == "authority" else authority.file
    behaviour: Callable[[Connection], None] = refuse
    if context is None:
        behaviour = lambda connection: connection.raw(b"plain words")  # noqa: E731  # A `def` would be longer.
    with FakeNode(behaviour, tls=context) as node:
        tls = TlsClient("localhost" if refuses == "host" else "127.0.0.1", trusted)
        generator = load(node.port, tls, token=TOKEN)
        assert generator.settle() > 0
        assert set(asked) <= {"auth"}
        assert (asked != []) == (refuses == "token")
        generator.close()


def test_a_certificate_is_shown(authority: Authority, tmp_path: Path) -> None:
    """The key may be in the certificate's file or apart; an invalid file is refused when it is read."""
    pair, key = authority.pair("ana"), tmp_path / "key"
    key.write_text(pair.read_text().partition("-----BEGIN CERTIFICATE")[0])
    for shown in ((pair,), (pair, key)):
        with FakeNode(serve, tls=authority.node("127.0.0.1", asks=True)) as node:
            generator = load(node.port, TlsClient("127.0.0.1", authority.file, *shown))
            assert generator.settle() == 0
            assert run(generator, requests=15) == [15, 15, 0, 0]
            generator.close()
    nothing = tmp_path / "nothing"
    nothing.write_text("nothing")
    for wrong, setting in (((nothing,), "--ca"), ((None, nothing), "--key"), ((None, pair, nothing), "--key")):
        with pytest.raises(ConfigError, match=setting):
            TlsClient("h", *wrong)
