"""A handshake that is cut after each of its bytes, on either side, leaves nothing in the loop."""

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

RESET = b"\1\0\0\0\0\0\0\0"  # With SO_LINGER, closing resets the connection.
ENOUGH = 10_000  # More bytes than any handshake has.
KEPT_BYTES = 40_000  # The bound for all cuts together; a single TLS connection needs some thousands of bytes.


class Heap(ctypes.Structure):
    """Statistics of glibc's heap (mallinfo2)."""

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
    served = Secured(tmp_path)
    yield served
    served.close()


def cut(served: Secured, context: ssl.SSLContext, says: int, hears: int) -> bool:
    """Cut a handshake after so many bytes sent or received; return whether it was complete before."""
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
    """Another client is served, and neither memory nor a descriptor is kept."""
    context = served.authority.trusting(version=version)
    here = served.meet()

    def pass_all(stride: int) -> int:
        at = 0
        while not cut(served, context, *((at, ENOUGH) if who == "client" else (ENOUGH, at))):
            at += stride
        return at

    pass_all(21)  # The stride is odd, so that both ways of ending occur.
    before, descriptors = allocated(), len(os.listdir("/proc/self/fd"))
    count = pass_all(1)
    assert count > 200
    assert allocated() - before < KEPT_BYTES
    assert len(os.listdir("/proc/self/fd")) == descriptors
    here.send(GET)
    assert served.take(here, len(GOT)) == GOT
