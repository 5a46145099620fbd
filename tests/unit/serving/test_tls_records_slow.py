"""Odd TLS records that are sealed correctly, and records without a seal."""

from __future__ import annotations

import contextlib
import ssl
from typing import TYPE_CHECKING

import pytest

from tests.unit.serving.sealed_records import (
    ALERT,
    CHANGE_CIPHER,
    DATA,
    HANDSHAKE,
    HEARTBEAT,
    KEY_UPDATE,
    RECORD_BYTES,
    Sealing,
    raw,
)  # fmt: skip
from tests.unit.serving.secured import Secured
from tests.unit.serving.test_tls_slow import GET, GOT, VERSIONS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.unit.serving.secured import Client


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Secured]:
    served = Secured(tmp_path)
    yield served
    served.close()


def meet(served: Secured) -> tuple[Client, Sealing]:
    """Return a client, and the sealing for its further records."""
    context = served.authority.trusting(version=ssl.TLSVersion.TLSv1_3)
    context.keylog_filename = str(served.authority.directory / "keys")
    client = served.meet(context)
    return client, Sealing(client, served.authority.directory / "keys")


def updated(sealing: Sealing) -> bytes:
    said = b""
    for _ in range(2):
        said += sealing.seal(HANDSHAKE, KEY_UPDATE + b"\0")
        sealing.change_keys()
    return said


@pytest.mark.parametrize(
    "said",
    [
        lambda _: b"",
        lambda sealing: sealing.seal(DATA, b""),
        lambda sealing: sealing.seal(DATA, b"", RECORD_BYTES),
        lambda sealing: b"".join(sealing.seal(DATA, GET[at : at + 1], 7) for at in range(len(GET))),
        lambda sealing: sealing.seal(DATA, (GET * 1000)[: RECORD_BYTES - RECORD_BYTES % len(GET)]),
        lambda sealing: sealing.seal(ALERT, b"\1\x5a"),
        updated,
    ],
    ids=["nothing", "empty", "padding alone", "a byte each", "full", "a warning", "keys"],
)
def test_what_is_odd_and_allowed(served: Secured, said: Callable[[Sealing], bytes]) -> None:
    """A get behind the odd record is answered."""
    client, sealing = meet(served)
    client.unsent += said(sealing) + sealing.seal(DATA, GET)
    served.advance(client, lambda: client.received.endswith(GOT))
    before = len(client.received)
    client.unsent += sealing.seal(DATA, GET)
    served.advance(client, lambda: len(client.received) == before + len(GOT))


@pytest.mark.parametrize(
    ("said", "alert"),
    [
        (lambda sealing: sealing.seal(DATA, bytes(RECORD_BYTES + 1)), "record overflow"),
        (lambda _: raw(DATA, bytes(RECORD_BYTES + 257)), "record overflow"),
        (lambda _: raw(DATA, bytes(100)), "bad record mac"),
        (lambda _: raw(DATA, bytes(16)), "bad record mac"),
        (lambda _: raw(DATA, b""), "bad record mac"),
        (lambda sealing: sealing.seal(HEARTBEAT, b"\1\xff\xff"), "unexpected message"),
        (lambda _: raw(HEARTBEAT, b"\1\xff\xff"), "unexpected message"),
        (lambda sealing: sealing.seal(0, b""), "unexpected message"),
        (lambda sealing: sealing.seal(99, GET), "unexpected message"),
        (lambda sealing: sealing.seal(CHANGE_CIPHER, b"\1"), "unexpected message"),
        (lambda sealing: sealing.seal(HANDSHAKE, b"\1\0\0\0"), "unexpected message"),
        (lambda sealing: sealing.seal(HANDSHAKE, KEY_UPDATE[:2]) + sealing.seal(DATA, GET), "unexpected message"),
        (lambda sealing: sealing.seal(HANDSHAKE, b"\x18\xff\xff\xff"), "illegal parameter"),
        (lambda sealing: sealing.seal(HANDSHAKE, KEY_UPDATE + b"\2"), "illegal parameter"),
        (lambda sealing: b"".join(sealing.seal(ALERT, b"\1\x5a") for _ in range(10)), "unexpected message"),
        (lambda _: GET * 10, "protocol version"),
        (lambda _: b"GET / HTTP/1.1\r\n\r\n", "protocol version"),
    ],
)
def test_what_is_not_allowed(served: Secured, said: Callable[[Sealing], bytes], alert: str) -> None:
    """The client gets an alert, later records are ignored, and others go on."""
    client, sealing = meet(served)
    client.unsent += sealing.seal(DATA, GET)
    assert served.take(client, len(GOT)) == GOT
    hears_an_alert(served, client, said(sealing) + sealing.seal(DATA, GET), alert)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    "record",
    [
        raw(DATA, bytes(RECORD_BYTES + 2049)), raw(DATA, GET), raw(HEARTBEAT, b"\1\xff\xff"), raw(ALERT, b"\1\0"),
        raw(HANDSHAKE, b"\1\0\0\0"), raw(CHANGE_CIPHER, b"\1") * 2, GET * 10,
    ],
)  # fmt: skip
def test_what_is_not_sealed(served: Secured, version: ssl.TLSVersion, record: bytes) -> None:
    """In both versions an unsealed record is refused, whatever it contains."""
    client = served.meet(served.authority.trusting(version=version))
    client.send(GET)
    assert served.take(client, len(GOT)) == GOT
    hears_an_alert(served, client, record, "")


def hears_an_alert(served: Secured, client: Client, record: bytes, alert: str) -> None:
    """Check that a record causes an alert, and that another client is answered."""
    here = served.meet()
    assert client.socket.send(record) == len(record)

    def done() -> bool:
        client.hear()
        with contextlib.suppress(ssl.SSLWantReadError):
            client.tls.read()
        return False

    with pytest.raises(ssl.SSLError, match=f"alert {alert}"):
        served.until(done)
    client.socket.close()
    served.until(lambda: served.counters("connections") == 1)
    assert served.counters("gets") == 1
    here.send(GET)
    assert served.take(here, len(GOT)) == GOT
