"""Scans over real sockets: in slices between other requests, through a drain, dropped with their connection."""

from __future__ import annotations

import socket
import struct
import sys
import threading
import time
from typing import TYPE_CHECKING

import msgpack
import pytest
import trio

from gossipkv.serving.published import publish
from gossipkv.wire import rpc
from tests.oracle import scan
from tests.unit.debug_build import NOT_IN_DEBUG_BUILD
from tests.unit.serving.driven import make_version, one_database
from tests.unit.serving.test_pump_slow import PATIENCE_S, receive, serving
from tests.unit.serving.test_serving_slow import Served

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.unit.serving.driven import BuiltVersion

UNHURRIED_US = 60_000_000  # A round of this length ends when no work is left, however busy the machine is.
KEPT_S = 60.0  # A thread keeps the interpreter's lock at most this long without progress.
RECORDS = {b"key%05d" % number: b"value of %05d" % number for number in range(5000)}
REQUEST = rpc.request(7, "scan", ["db", {"limit": 100_000}])
GET = rpc.request(1, "get", ["db", b"key00007"])
GOT = rpc.response(1, [RECORDS[b"key00007"], "v1"])
ANSWER: bytes = msgpack.packb([
    1, 7, None, scan.result(sorted(RECORDS.items()), "v1", {}, scan_limit=100_000, max_frame=1 << 20)
])  # fmt: skip


@pytest.fixture(scope="module")
def version(tmp_path_factory: pytest.TempPathFactory) -> BuiltVersion:
    """Return RECORDS in 200 partitions, so that a full scan takes several slices."""
    return make_version(tmp_path_factory.mktemp("many"), "db", "v1", RECORDS, 200)


@pytest.fixture
def served(tmp_path: Path, version: BuiltVersion) -> Iterator[Served]:
    served = Served(tmp_path, scan_limit=100_000)
    served.core.publish(publish([(version, True)]).table())
    yield served
    served.loop.close()
    for client in served.clients:
        client.close()


def under_way(served: Served) -> socket.socket:
    """Return a client with an unanswered scan; rounds without time do one slice each."""
    client = served.connect()
    served.until(lambda: served.loop.connection_count == len(served.clients))
    client.sendall(REQUEST)
    while served.core.counters()["in_flight"] == 0:
        served.step(0)
        assert served.core.counters()["scans"] == 0
    return client


def test_gets_are_answered_between_slices(served: Served) -> None:
    """A get waits for a round or two during a scan, whose answer is complete in the end."""
    getter = served.connect()
    client = under_way(served)
    assert served.loop.has_work
    gets = 0
    while served.core.counters()["in_flight"] > 0:
        getter.sendall(GET)
        for _ in range(3):
            served.step(0)
        assert getter.recv(100) == GOT
        gets += 1
    assert gets >= 1
    assert served.receive(client, len(ANSWER)) == ANSWER
    served.step()
    assert not served.loop.has_work
    assert served.core.latency()["local"].count == gets + 1


def test_a_round_goes_on_until_scans_are_done(served: Served) -> None:
    """Within the time of a round, no wake-up is needed between slices."""
    under_way(served)
    for _ in range(3):
        served.step(UNHURRIED_US)
    assert served.core.counters()["scans"] == 1


@NOT_IN_DEBUG_BUILD
def test_a_round_without_hand_offs_does_not_wait_for_the_lock(served: Served) -> None:
    """A round finishes a scan beside a computing thread without releasing the interpreter's lock."""
    under_way(served)
    for _ in range(20):  # These take some milliseconds, in which the thread reaches its lock.
        served.connect().sendall(GET * 1000)
    compute, done = threading.Lock(), []

    def keep_the_lock() -> None:
        with compute:
            until = time.monotonic() + KEPT_S
        while served.core.counters()["scans"] == 0 and time.monotonic() < until:
            pass
        done.append(served.core.counters()["scans"])

    interval_s = sys.getswitchinterval()
    with compute:
        thread = threading.Thread(target=keep_the_lock)
        thread.start()
        sys.setswitchinterval(PATIENCE_S)  # The interval is longer than the lock is kept.
    try:
        served.step(UNHURRIED_US)
    finally:
        thread.join()
        sys.setswitchinterval(interval_s)
    assert done == [1]


def test_a_drain_waits_for_scans(served: Served) -> None:
    """The answer comes before the node's end."""
    client = under_way(served)
    served.loop.drain()
    assert served.receive(client, len(ANSWER)) == ANSWER
    client.settimeout(PATIENCE_S)
    assert client.recv(1) == b""


def test_a_reset_amid_a_scan(served: Served) -> None:
    """The scan ends with its connection, and no work is left."""
    client = under_way(served)
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()
    served.until(lambda: served.loop.connection_count == 0)
    assert served.core.counters()["in_flight"] == served.core.counters()["held_bytes"] == 0
    assert not served.loop.has_work


def test_a_loop_that_is_closed_amid_a_scan(tmp_path: Path) -> None:
    """The files of a replaced table are released when no scan reads them any more."""
    version = make_version(tmp_path, "db", "v1", RECORDS, 200)
    served = Served(tmp_path, scan_limit=100_000)
    served.core.publish(publish([(version, True)]).table())
    client = under_way(served)
    served.core.publish(one_database(tmp_path, {b"k": b"v"}).table())
    served.step(0)
    assert version.files[0] is not None
    with pytest.raises(BufferError):
        version.files[0].close()
    served.loop.close()
    client.close()
    for file in version.files:
        assert file is not None
        file.close()


async def test_scans_under_trio(tmp_path: Path, version: BuiltVersion) -> None:
    """Several scans and a get run at once; then the pump drains during a scan."""
    async with serving(tmp_path, scan_limit=100_000) as running:
        running.core.publish(publish([(version, True)]).table())
        clients = [await running.connect() for _ in range(4)]
        for client in clients[1:]:
            await client.send_all(REQUEST)
        await clients[0].send_all(GET)
        assert await receive(clients[0], 1) == [[1, 1, None, [RECORDS[b"key00007"], "v1"]]]
        for client in clients[1:]:
            assert await receive(client, 1) == [msgpack.unpackb(ANSWER)]
        await clients[0].send_all(REQUEST)
        with trio.fail_after(PATIENCE_S):
            while running.core.counters()["scans"] + running.core.counters()["in_flight"] < 4:
                await trio.lowlevel.checkpoint()
            assert await running.pump.drain(PATIENCE_S)
        assert await receive(clients[0], 1) == [msgpack.unpackb(ANSWER)]
