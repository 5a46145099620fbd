"""HTTP and RESP at the port of the wire get one explanatory line; established clients get none."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gossipkv.wire import rpc
from tests.unit.serving.driven import Peer, make_core, one_database

if TYPE_CHECKING:
    from pathlib import Path

PING = rpc.request(1, "ping", [])
HTTP = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
RESP = b"*1\r\n$4\r\nPING\r\n"


@pytest.mark.parametrize("pieces", [1, 2, 1000])
@pytest.mark.parametrize(
    ("data", "head", "body"),
    [
        (HTTP, b"HTTP/1.1 400 Bad Request\r\n", b"GossipKV node speaks MessagePack-RPC, not HTTP.\r\n"),
        (b"POST" + HTTP[3:] + PING, b"HTTP/1.1 400 Bad Request\r\n", b"not HTTP.\r\n"),
        (RESP * 3, b"-ERR ", b"GossipKV node speaks MessagePack-RPC, not RESP\r\n"),
    ],
)
def test_other_protocols_are_told_what_speaks_here(data: bytes, head: bytes, body: bytes, pieces: int) -> None:
    """The line comes once, in a form that programs show, and then the connection ends."""
    core = make_core()
    peer = Peer(core)
    size = -(-len(data) // pieces)
    for at in range(0, len(data), size):
        if peer.driver.wants_input(peer.handle):
            assert peer.send(data[at : at + size]) == []
    assert peer.received.startswith(head)
    assert peer.received.endswith(body)
    assert peer.received.count(b"GossipKV") == 1
    if head.startswith(b"HTTP"):
        assert peer.received.split(b"\r\n\r\n")[1].count(b"\n") == 1
        assert b"\r\nConnection: close\r\n" in peer.received
    else:
        assert peer.received.count(b"\n") == 1
    assert peer.driver.should_close(peer.handle)
    peer.driver.close(peer.handle)
    assert core.counters()["closed_bad_message"] == 1


@pytest.mark.parametrize("before", [PING, rpc.request(1, "get", ["db", b"k"]), rpc.notification("note", [])])
@pytest.mark.parametrize("data", [HTTP, RESP])
def test_who_has_spoken_is_told_nothing_in_another_protocol(tmp_path: Path, before: bytes, data: bytes) -> None:
    """A client whose stream goes astray must not find text among its answers."""
    core = make_core()
    core.publish(one_database(tmp_path, {b"k": b"v"}).table())
    for cut in (0, len(before)):
        peer = Peer(core)
        for piece in ((before + data)[:cut], (before + data)[cut:]):
            assert peer.send(piece) == []
        assert [answer[:2] for answer in peer.answers()] == [[1, 1]] * (before != rpc.notification("note", []))
        assert peer.driver.should_close(peer.handle)
