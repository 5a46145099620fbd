"""No connection keeps others waiting: the loop over real sockets, stepped by hand."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest

from gossipkv.wire import rpc
from tests.unit.debug_build import NOT_IN_DEBUG_BUILD
from tests.unit.serving.test_serving_slow import PING, PONG, Served

if TYPE_CHECKING:
    from pathlib import Path

    from gossipkv.serving._serving import Caller

# New requests have 8,000 units of work, and a key takes at least two; each further connection has 16 requests, and
# queued work has a slice of 4,000. All requests together are over 64,000 keys.
MAX_KEYS = 4000 + 64 * 16 + 2000
UNHURRIED_US = 60_000_000  # A look at sockets that ends early for lack of time may be followed by another.


def test_a_flood_does_not_starve_others(tmp_path: Path) -> None:
    """A ping is answered within a few steps while another connection sends without end."""
    served = Served(tmp_path)
    try:
        flood = served.connect(receive_buffer=1 << 20)
        other = served.connect()
        served.until(lambda: served.loop.connection_count == 2)
        requests = rpc.request(1, "get", ["db", b"key001"]) * 5000
        other.sendall(PING)
        for _ in range(20):
            try:
                flood.send(requests)
                flood.recv(1 << 20)
            except BlockingIOError:
                pass
            served.step(50)
        assert other.recv(100) == PONG
    finally:
        served.close()


def test_held_input_for_python_does_not_starve_others(tmp_path: Path) -> None:
    """Every round reads the sockets, also during a long pipeline that Python answers."""
    served = Served(tmp_path, max_in_flight=10)
    flood, other = served.connect(), served.connect()
    answered: list[bytes] = []

    def answer(method: bytes, params: bytes, _caller: Caller) -> bytes:
        answered.append(method + params)
        return b"\xc0"

    try:
        served.until(lambda: served.loop.connection_count == 2)
        flood.sendall(b"".join(rpc.request(number, "m", []) for number in range(4000)))
        while served.counters("paused_for_hand_offs") == 0:
            served.loop.round(answer, 50, 0)
        other.sendall(PING)
        for _ in range(3):
            served.loop.round(answer, 50, 0)
        assert other.recv(100) == PONG
        assert len(answered) < 3000
    finally:
        served.close()


def test_held_input_that_is_much_work_does_not_starve_others(tmp_path: Path) -> None:
    """Ready connections get a part of every round."""
    served = Served(tmp_path, max_queued=1 << 24, max_held=1 << 28)
    floods = [served.connect(receive_buffer=1 << 20) for _ in range(4)]
    others = [served.connect() for _ in range(30)]
    many = rpc.request(1, "get_many", ["db", [b"key%03d" % number for number in range(1000)]])
    try:
        served.until(lambda: served.loop.connection_count == 34)
        for flood in floods:
            flood.sendall(many * 5)
        served.until(lambda: served.counters("get_manys") > 4)
        for other in others:
            other.sendall(PING)
        for _ in range(20):  # A few rounds suffice unless a round loses its processor and ends early.
            for flood in floods:
                with contextlib.suppress(BlockingIOError):
                    flood.send(many * 5)
                    flood.recv(1 << 20)
            served.step(1)
        assert [other.recv(100) for other in others] == [PONG] * 30
    finally:
        served.close()


@NOT_IN_DEBUG_BUILD
@pytest.mark.parametrize(
    "requests",
    [
        rpc.request(1, "get_many", ["db", [b"key%03d" % (number % 100) for number in range(3600)]]),
        b"".join(rpc.request(number, "get_many", ["db", [b"key001"] * 100]) for number in range(20)),
        b"".join(rpc.request(number, "get", ["db", b"key001"]) for number in range(1000)),
    ],
    ids=["large batches", "small batches", "gets"],
)
def test_little_is_done_before_one_that_comes_behind_much(tmp_path: Path, requests: bytes) -> None:
    """Work, and not the number of messages, bounds the wait of the last connection."""
    served = Served(tmp_path, max_queued=1 << 24, max_held=1 << 28)
    floods = [served.connect(receive_buffer=1 << 20) for _ in range(64)]
    last = served.connect()
    read: list[int] = []

    def answer(method: bytes, params: bytes, _caller: Caller) -> bytes:
        read.append(served.counters("keys_read"))
        return b"\xc0"

    try:
        served.until(lambda: served.loop.connection_count == 65)
        for flood in floods:
            flood.sendall(requests)
        last.sendall(rpc.request(1, "m", []))
        while not read:
            served.loop.round(answer, UNHURRIED_US, 1000)
        assert read[0] <= MAX_KEYS
    finally:
        served.close()
