"""TLS over real sockets, stepped by hand, with Python's `ssl` and OpenSSL's own client on the other side."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import socket
import ssl
import subprocess
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import msgpack
import pytest
from cryptography.hazmat.primitives import serialization

from gossipkv.errors import ConfigError
from gossipkv.serving._transport import Tls
from gossipkv.wire import rpc
from gossipkv.wire.frames import MAX_DEPTH, MAX_ELEMENTS
from tests.oracle import connection
from tests.unit.serving.secured import ALL, NOW, Authority, Client, Pair, Secured
from tests.unit.serving.test_serving_slow import PING, PONG, RECORDS, Served

if TYPE_CHECKING:
    from collections.abc import Iterator


GET = rpc.request(7, "get", ["db", b"key007"])
GOT = rpc.response(7, [RECORDS[b"key007"], "v1"])
VERSIONS = [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]
MAX_HANDSHAKES = 4  # The loop has the same limit.


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Secured]:
    served = Secured(tmp_path)
    yield served
    served.close()


# Requests over TLS


@pytest.mark.parametrize("version", VERSIONS)
def test_a_get_by_each_dialect(served: Secured, version: ssl.TLSVersion) -> None:
    """Gets are answered in both versions at each listener."""
    context = served.authority.trusting(version=version)
    client = served.meet(context)
    client.send(PING + GET)
    assert served.take(client, len(PONG + GOT)) == PONG + GOT
    client = served.meet(context, to=served.resp)
    client.send(b"GET db:key007\r\n")
    assert served.take(client, 12) == b"$6\r\nvalue7\r\n"
    client = served.meet(context, to=served.http)
    client.send(b"GET /db/key007 HTTP/1.1\r\nHost: a\r\n\r\n")
    served.advance(client, lambda: client.received.endswith(b"\r\n\r\nvalue7"))
    assert served.counters("tls_handshakes") == 3


def test_answers_are_the_oracle_s(served: Secured) -> None:
    """Answers agree with the oracle for records and writes of any size."""
    draw = random.Random(3)
    stream = b"".join(
        draw.choice([
            rpc.request(number, "get", ["db", b"key%03d" % draw.randrange(1100)]),
            rpc.request(number, "get_many", ["db", [b"key%03d" % one for one in range(draw.randrange(80))]]),
            rpc.request(number, "ping", []),
            b"\x93\x00" + bytes([number % 100]) + b"\xa1m",
        ])
        for number in range(600)
    )  # fmt: skip
    limits = {"max_size": 1 << 20, "max_depth": MAX_DEPTH, "max_elements": MAX_ELEMENTS}
    expected = connection.Conversation({b"db": (b"v1", {b"v1": RECORDS})}, limits)
    expected.hear(stream)
    client, unpacker = served.meet(), msgpack.Unpacker(raw=True)
    answers: list[tuple[int, str | None, object]] = []
    left = memoryview(stream)

    def done() -> bool:
        nonlocal left
        if left and not client.unsent:
            size = draw.choice([3, 700, 60_000, 200_000])
            client.tls.write(left[:size])
            left = left[size:]
        client.advance()
        unpacker.feed(bytes(client.received))
        client.received.clear()
        answers.extend((msgid, error and error[0].decode(), result) for _, msgid, error, result in unpacker)
        return not left and len(answers) == len(expected.answers)

    served.until(done)
    assert answers == expected.answers
    assert served.counters("held_bytes") == 0


@pytest.mark.parametrize("version", VERSIONS)
def test_a_client_that_reads_slowly(served: Secured, version: ssl.TLSVersion) -> None:
    """With full buffers the client is not read further, and then gets all answers."""
    client = served.meet(served.authority.trusting(version=version), receive_buffer=4096)
    requests = [rpc.request(number, "get", ["db", b"big"]) for number in range(8)]
    client.send(b"".join(requests) + b"".join([PING] * 3000))
    served.until(lambda: served.counters("paused_for_output") > 0)
    for _ in range(10):
        served.step()
    assert served.counters("held_bytes") < 2 << 20
    expected = b"".join(rpc.response(number, [RECORDS[b"big"], "v1"]) for number in range(8)) + PONG * 3000
    assert served.take(client, len(expected)) == expected


def test_what_comes_with_the_end_of_a_handshake(served: Secured) -> None:
    """A request in the segment of the handshake's end is served without further input."""
    for to, request, answer in ((None, GET, GOT), (served.resp, b"PING\r\n", b"+PONG\r\n")):
        client = Client(served.connect(to=to), served.authority.trusting(version=ssl.TLSVersion.TLSv1_3))

        def is_shaken(client: Client = client) -> bool:
            client.hear()
            with contextlib.suppress(ssl.SSLWantReadError):
                client.tls.do_handshake()
                return True
            client.flush()
            return False

        served.until(is_shaken)
        client.tls.write(request)
        client.flush()
        client.is_shaken = True
        assert served.take(client, len(answer)) == answer


def test_what_openssl_has_read_ahead(served: Secured) -> None:
    """Many records at once, with more work than one step does, are served without further input."""
    client = served.meet()
    for _ in range(4):
        client.tls.write(rpc.request(2, "get", ["db", b"key001"]) * 150)
        client.tls.write(rpc.request(1, "get_many", ["db", [b"key%03d" % one for one in range(1000)]]) * 4)
    client.send(GET)
    served.advance(client, lambda: GOT in client.received)


def test_the_ends(served: Secured) -> None:
    """The client's close_notify is heard also behind a request and without a TCP end; the node sends its own."""
    client = served.meet()
    client.tls.write(GET)
    with pytest.raises(ssl.SSLWantReadError):
        client.tls.unwrap()
    client.flush()
    served.until(lambda: served.counters("connections") == 0)
    client.hear()
    assert client.tls.read(100) == GOT
    client.tls.unwrap()  # This raises if the node's close_notify is missing.
    cut = served.meet()
    cut.socket.close()
    served.until(lambda: served.counters("connections") == 0)
    assert served.counters("closed_by_peer") == 2


def test_a_drain(served: Secured) -> None:
    """Requests are answered before close_notify; an unfinished handshake is closed as well."""
    client, shaking = served.meet(), served.connect()
    shaking.sendall(hello(served)[:100])
    served.until(lambda: served.counters("connections") == 2)
    client.send(GET)
    served.step()
    served.loop.drain()
    served.advance(client, lambda: client.has_ended)
    assert client.received == GOT
    client.socket.close()
    served.until(lambda: served.counters("connections") == 0)
    assert served.counters("closed_drained") == 2


# Handshakes


def hello(served: Secured) -> bytes:
    client = Client(socket.socket(), served.authority.trusting())
    with contextlib.suppress(ssl.SSLWantReadError):
        client.tls.do_handshake()
    client.socket.close()
    return client.out.read()


def test_a_handshake_byte_by_byte(served: Secured) -> None:
    """The handshake completes, and later requests are answered."""
    client = Client(served.connect(), served.authority.trusting())

    def done() -> bool:
        client.hear()
        try:
            client.tls.do_handshake()
        except ssl.SSLWantReadError:
            done = False
        else:
            done = True
        for byte in client.out.read():
            client.socket.send(bytes([byte]))
            served.step()
        return done

    served.until(done)
    client.send(GET)
    client.is_shaken = True
    assert served.take(client, len(GOT)) == GOT


@pytest.mark.parametrize("way", ["ends", "resets"])
def test_a_handshake_that_is_cut(served: Secured, way: str) -> None:
    """After a cut behind any byte of the first flight nothing is left."""
    first = hello(served)
    for size in range(len(first)):
        client = served.connect()
        client.sendall(first[:size])
        served.step()
        if way == "resets":
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        client.close()
        served.step()
    served.until(lambda: served.counters("connections") == 0)
    assert served.counters("closed_handshake") + served.counters("closed_reset") == len(first)
    assert served.counters("tls_handshakes") == 0


@pytest.mark.parametrize("size", [0, 1, 100, 10_000])
@pytest.mark.parametrize("listener", ["address", "http"])
def test_a_handshake_that_stops(tmp_path: Path, size: int, listener: str) -> None:
    """A handshake has the time of a frame from the connection's start, and gets no plaintext."""
    served = Secured(tmp_path, frame_timeout_ms=50)
    client = served.connect(to=getattr(served, listener))
    client.sendall(hello(served)[:size])
    assert served.ends(client)[:1] == b"\x16" * (size > 100)  # A node answers only a complete ClientHello.
    assert served.counters("closed_frame_timeout") == 1
    served.close()


def test_many_at_once_beside_a_ping(served: Secured) -> None:
    """A step does a few handshakes, and serves established clients each time."""
    here = served.meet()
    clients = [Client(served.connect(), served.authority.trusting()) for _ in range(60)]
    for client in clients:
        client.advance()
    while not all(client.is_shaken for client in clients):
        before = served.counters("tls_handshakes")
        here.send(PING)
        served.step(serve_us=0)
        served.step(serve_us=0)
        here.advance()
        assert here.received == PONG
        here.received.clear()
        assert served.counters("tls_handshakes") - before <= 2 * MAX_HANDSHAKES
        for client in clients:
            client.advance()


@pytest.mark.parametrize("version", VERSIONS)
def test_tickets(served: Secured, version: ssl.TLSVersion) -> None:
    """A ticket shortens the handshake until the ticket key changes."""
    context = served.authority.trusting(version=version)
    client = served.meet(context)
    client.send(PING)
    served.take(client, len(PONG))
    assert served.meet(context, ticket=client.tls.session).tls.session_reused
    served.until(lambda: served.counters("tls_handshakes") == 2)
    assert served.counters("tls_resumed") == 1
    served.use(served.pair)
    assert not served.meet(context, ticket=client.tls.session).tls.session_reused
    served.until(lambda: served.counters("tls_handshakes") == 3)
    assert served.counters("tls_resumed") == 1


def test_another_certificate(served: Secured) -> None:
    """New connections see the new certificate; established ones go on."""
    here = served.meet()
    served.use(served.authority.pair("second", "localhost"))
    seen = served.meet().tls.getpeercert()
    assert seen["subject"] == ((("commonName", "second"),),)
    here.send(GET)
    assert served.take(here, len(GOT)) == GOT


def refused(served: Secured, context: ssl.SSLContext) -> str:
    """Return the error of a client whose handshake fails."""
    client = Client(served.connect(), context)
    with pytest.raises(ssl.SSLError) as told:
        served.advance(client, lambda: False)
    client.socket.close()
    served.until(lambda: served.counters("connections") == 0)
    return str(told.value)


def test_what_the_client_refuses(served: Secured, tmp_path: Path) -> None:
    """After a wrong host, an unknown authority or an expired certificate, the loop hears an alert and keeps nothing."""
    served.use(served.authority.pair("elsewhere", "example.org"))
    assert "Hostname mismatch" in refused(served, served.authority.trusting())
    other = Authority(tmp_path, "other")
    served.use(served.pair)
    assert "unable to get local issuer" in refused(served, other.trusting())
    served.use(served.authority.pair("over", "localhost", began=NOW - timedelta(days=31)))
    assert "certificate has expired" in refused(served, served.authority.trusting())
    assert served.counters("tls_handshakes") == 0


def test_certificates_of_clients(served: Secured, tmp_path: Path) -> None:
    """No certificate and a correct one are accepted; a wrong one is refused with an alert."""
    served.use(served.pair, served.authority.path)
    mine, other = served.authority.pair("ana"), Authority(tmp_path, "other").pair("eve")
    for shown in (None, mine):
        client = served.meet(served.authority.trusting(shown))
        client.send(GET)
        assert served.take(client, len(GOT)) == GOT
        client.socket.close()
    assert "alert unknown ca" in refused(served, served.authority.trusting(other))


def test_what_is_too_old(served: Secured) -> None:
    """TLS 1.1 and the non-AEAD ciphers of 1.2 are refused."""
    old = served.authority.trusting()
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        old.minimum_version = old.maximum_version = ssl.TLSVersion.TLSv1_1
    old.set_ciphers("ALL@SECLEVEL=0")
    assert "alert protocol version" in refused(served, old)
    weak = served.authority.trusting(version=ssl.TLSVersion.TLSv1_2)
    weak.set_ciphers("ECDHE-ECDSA-AES128-SHA256")
    assert "handshake failure" in refused(served, weak)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="OpenSSL's own client is not installed")
@pytest.mark.parametrize(
    ("version", "command_letter", "told"),
    [("-tls1_2", b"R\n", b"no renegotiation"), ("-tls1_3", b"K\n", b"KEYUPDATE")],
)
def test_keys_that_are_to_change(served: Secured, version: str, command_letter: bytes, told: bytes) -> None:
    """Renegotiation is refused, and a TLS 1.3 key update is accepted; earlier gets are answered."""
    host, port = served.resp
    command = ["openssl", "s_client", version, "-connect", f"{host}:{port}", "-CAfile", served.authority.path, "-crlf"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as client:
        assert client.stdin is not None
        assert client.stdout is not None
        os.set_blocking(client.stdout.fileno(), False)
        heard = bytearray()

        def until(said: bytes, answer: bytes) -> None:
            client.stdin.write(said)
            client.stdin.flush()

            def done() -> bool:
                heard.extend(client.stdout.read() or b"")
                return answer in heard

            served.until(done)

        until(b"GET db:key007\n", b"value7")
        until(command_letter, told)
        if version == "-tls1_3":
            until(b"GET db:key008\n", b"value8")
        client.stdin.close()
        served.until(lambda: client.poll() is not None)


# Plain clients at a TLS listener, and TLS clients at a plain one


@pytest.mark.parametrize(
    ("said", "answer"),
    [
        (b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", b"HTTP/1.1 400 Bad Request\r\n"),
        (b"*1\r\n$4\r\nPING\r\n", b"-ERR this port of a GossipKV node speaks TLS\r\n"),
        (b"PING\r\n", b"-ERR this port of a GossipKV node speaks TLS\r\n"),
        (
            GET,
            msgpack.packb(
                [1, 7, ["BAD_REQUEST", "this port of the node speaks TLS: connect with `--ca FILE`", {}], None]
            ),
        ),
        (b"\x80\x2e\x01\x03", b""),
        (b"\0", b""),
    ],
)
@pytest.mark.parametrize("listener", ["address", "resp", "http"])
def test_who_speaks_plainly_is_told(served: Secured, said: bytes, answer: bytes, listener: str) -> None:
    """Plain clients get one explanation in their own protocol at each listener, and no request is executed."""
    client = served.connect(to=getattr(served, listener))
    client.sendall(said)
    told = served.ends(client)
    assert told.startswith(answer)
    assert told.count(b"TLS") == bool(answer)
    client.close()
    served.until(lambda: served.counters("connections") == 0)
    assert served.counters("closed_handshake") == 1
    assert served.counters("gets") == served.counters("pings") == 0


@pytest.mark.parametrize("listener", ["address", "resp"])
def test_who_speaks_tls_where_it_is_not_spoken(tmp_path: Path, listener: str) -> None:
    """TLS clients hear an alert; at the HTTP port the gateway answers."""
    served = Served(tmp_path)
    client = Client(served.connect(to=getattr(served, listener)), ssl.create_default_context())

    def done() -> bool:
        client.advance()
        return False

    with pytest.raises(ssl.SSLError, match="alert protocol version"):
        served.until(done)
    client.socket.close()
    served.until(lambda: served.counters("connections") == 0)
    assert served.counters("closed_bad_message") == 1
    served.close()


def test_records_that_are_not_as_they_were(served: Secured) -> None:
    """Changed, missing or additional bytes of a client harm only its own connection."""
    draw = random.Random(11)
    context = served.authority.trusting()
    for _ in range(300):
        mutate_one(served, context, draw)
    assert served.counters("held_bytes") == served.counters("in_flight") == 0
    here = served.meet()
    here.send(GET)
    assert served.take(here, len(GOT)) == GOT


def mutate_one(served: Secured, context: ssl.SSLContext, draw: random.Random) -> None:
    """Run a client with one changed part of its bytes, and close it."""
    client = Client(served.connect(), context)
    wrong = draw.randrange(3)
    with contextlib.suppress(ssl.SSLError, OSError):
        for part in range(4):
            client.hear()
            with contextlib.suppress(ssl.SSLWantReadError):
                if client.is_shaken:
                    client.tls.write(GET * draw.randrange(1, 3000))
                else:
                    client.tls.do_handshake()
                    client.is_shaken = True
            data = bytearray(client.out.read())
            if part == wrong:
                mutate(data, draw)
            client.socket.send(data)
            served.step()
            served.step()
    client.socket.close()
    served.until(lambda: served.counters("connections") == 0)


def mutate(data: bytearray, draw: random.Random) -> None:
    for _ in range(draw.choice([1, 1, 3])):
        at = draw.randrange(min(len(data), draw.choice([6, 1 << 20])) + 1)
        match draw.randrange(3):
            case 0:
                data[at : at + 1] = draw.randbytes(1)
            case 1:
                del data[at : at + draw.choice([1, 50])]
            case 2:
                data[at:at] = draw.choice([draw.randbytes(3), b"\x17\x03\x03\x40\x01", b"\x18\x03\x03\0\3\1\xff\xff"])


# Certificates and keys of the node


def test_until_when_it_holds(served: Secured) -> None:
    tls = Tls(served.pair.certificate, served.pair.key, listeners=ALL)
    assert tls.expires_s == int((NOW + timedelta(days=30)).timestamp())


def test_a_chain_whose_order_is_another(served: Secured, tmp_path: Path) -> None:
    """The issuers may follow in any order, among unrelated certificates."""
    unrelated = Authority(tmp_path, "unrelated")
    chain = [served.pair.certificate, unrelated.path, served.authority.path]
    mixed = tmp_path / "mixed.pem"
    mixed.write_text("".join(path.read_text() for path in chain))
    served.use(Pair(mixed, served.pair.key))
    client = served.meet()
    assert client.tls.version() == "TLSv1.3"


def test_files_that_are_of_no_use(served: Secured, tmp_path: Path) -> None:
    """Each unusable file is refused with its setting and the reason."""
    pair, other = served.pair, served.authority.pair("other", "localhost")
    names = ("garbage", "sealed", "missing", "backwards", "empty", "half", "mixed")
    garbage, sealed, missing, backwards, empty, half, mixed = (tmp_path / name for name in names)
    garbage.write_bytes(b"-----BEGIN nothing")
    empty.touch()
    half.write_bytes(served.authority.path.read_bytes()[:-30])
    mixed.write_text(served.authority.path.read_text() + "-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----\n")
    key = serialization.load_pem_private_key(pair.key.read_bytes(), password=None)
    encryption = serialization.BestAvailableEncryption(b"secret")
    sealed.write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption))
    backwards.write_text(served.authority.path.read_text() + pair.certificate.read_text())
    for certificate, key_path, clients, setting, reason in [
        (missing, pair.key, None, "tls_certificate", "No such file"),
        *((one, pair.key, None, "tls_certificate", "expected certificates in PEM") for one in (garbage, empty, half)),
        (pair.certificate, missing, None, "tls_key", "No such file"),
        (pair.certificate, garbage, None, "tls_key", "expected a private key in PEM"),
        (pair.certificate, pair.certificate, None, "tls_key", "expected a private key in PEM"),
        (pair.certificate, sealed, None, "tls_key", "a passphrase"),
        (pair.certificate, other.key, None, "tls_key", "does not match the first certificate"),
        (backwards, pair.key, None, "tls_key", "does not match the first certificate"),
        (pair.certificate, pair.key, garbage, "tls_clients", "expected certificates of authorities in PEM"),
        (pair.certificate, pair.key, missing, "tls_clients", "No such file"),
        (pair.certificate, pair.key, Path("/dev/zero"), "tls_clients", "more than 4,194,304 bytes"),
    ]:
        with pytest.raises(ConfigError, match=reason) as told:
            Tls(certificate, key_path, clients, listeners=ALL)
        assert told.value.details["setting"] == setting
        assert "secret" not in str(told.value)
    for authorities in (empty, half, mixed, pair.key):
        for setting in ("clients", "peers"):
            with pytest.raises(ConfigError, match=f"^tls_{setting} = .*{authorities.name}': expected certificates of"):
                Tls(pair.certificate, pair.key, **{setting: authorities}, listeners=ALL)
