"""A handshake that is cut behind each of its bytes, whoever has said them: nothing of it is left at the loop."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import socket
import ssl
from typing import TYPE_CHECKING

import pytest

from tests.unit.serving.secured import Client, Secured
from tests.unit.serving.test_tls_slow import GET, GOT, VERSIONS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

RESET = b"\1\0\0\0\0\0\0\0"  # For SO_LINGER: what is closed is reset.
ENOUGH = 10_000  # Bytes that no handshake has.
KEPT_BYTES = 40_000  # However many were cut: what speaks on a connection is some thousands for each.


class Heap(ctypes.Structure):
    """What glibc knows of its own (mallinfo2)."""

    _fields_ = tuple((name, ctypes.c_size_t) for name in (
        "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost",
    ))  # fmt: skip


def allocated() -> int:
    gc.collect()
    tell = ctypes.CDLL(None).mallinfo2
    tell.restype = Heap
    return tell().uordblks


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Secured]:
    """A loop that speaks TLS."""
    served = Secured(tmp_path)
    yield served
    served.close()


def cut(served: Secured, context: ssl.SSLContext, says: int, hears: int) -> bool:
    """Shake hands until the client has said, or heard, so much, and go; whether it was over before."""
    resets = (says + hears) % 2
    client = Client(served.connect(), context)
    is_over = False
    while says and hears:
        with contextlib.suppress(ssl.SSLWantReadError):
            client.tls.do_handshake()
            is_over = True
        if said := client.out.read()[:says]:
            says -= client.socket.send(said)
        served.step()
        with contextlib.suppress(BlockingIOError):
            heard = client.socket.recv(hears)
            hears -= len(heard)
            client.into.write(heard)
        if is_over and not said:
            break
    if resets:
        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    client.socket.close()
    served.clients.remove(client.socket)
    served.until(lambda: served.counters("connections") == 1)
    return is_over


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("who", ["client", "node"])
def test_a_handshake_that_is_cut(served: Secured, version: ssl.TLSVersion, who: str) -> None:
    """Whoever else is here is answered, and neither memory nor a descriptor is kept."""
    context = served.authority.trusting(version=version)
    here = served.meet()

    def pass_all(stride: int) -> int:
        at = 0
        while not cut(served, context, *((at, ENOUGH) if who == "client" else (ENOUGH, at))):
            at += stride
        return at

    pass_all(21)  # Odd, so that it ends in both ways.
    before, descriptors = allocated(), len(os.listdir("/proc/self/fd"))
    count = pass_all(1)
    assert count > 200
    assert allocated() - before < KEPT_BYTES
    assert len(os.listdir("/proc/self/fd")) == descriptors
    here.send(GET)
    assert served.take(here, len(GOT)) == GOT
