"""The loop over real sockets while it sleeps in Trio's place."""

from __future__ import annotations

import os
import select
import threading
import time
from typing import TYPE_CHECKING

import pytest

from gossipkv.wire import rpc
from tests.unit.serving.test_serving_slow import PATIENCE_S, PING, PONG, Served

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


class Resting:
    """A loop that sleeps in Trio's place; a pipe stands for Trio's descriptor."""

    def __init__(self, served: Served) -> None:
        self.served = served
        self.others, self.for_others = os.pipe()
        assert served.loop.watch_others(self.others)
        self.client = served.connect()
        self.client.settimeout(PATIENCE_S)

    def rest_beside(self, act: Callable[[], object]) -> object:
        """Rest once while a thread runs `act` and then signals the pipe; return the thread's result."""
        done: list[object] = []

        def run() -> None:
            try:
                done.append(act())
            finally:
                os.write(self.for_others, b"x")

        thread = threading.Thread(target=run)
        thread.start()
        self.served.loop.rest(PATIENCE_S, 1000)
        thread.join()
        os.read(self.others, 1)
        return done[0]

    def exchange(self) -> bytes:
        self.client.sendall(PING)
        return self.client.recv(100)

    @property
    def rings(self) -> bool:
        """True if the loop's descriptor is readable."""
        return bool(select.select([self.served.loop.fileno()], [], [], 0)[0])


@pytest.fixture(params=[False, True], ids=["sleeping", "looking out"])
def resting(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Resting]:
    resting = Resting(Served(tmp_path, polls=request.param))
    yield resting
    resting.served.close()
    os.close(resting.others)
    os.close(resting.for_others)


def test_a_rest_answers_until_others_have_something_to_do(resting: Resting) -> None:
    """A rest serves connections in one call without Python, and requests no round."""
    assert resting.rest_beside(lambda: {resting.exchange() for _ in range(300)}) == {PONG}
    assert resting.served.counters("pings") == 300
    assert not resting.rings


def test_a_rest_ends_when_its_time_is_over(resting: Resting) -> None:
    """A rest ends at its deadline; with no time left it only looks once."""
    before = time.monotonic()
    resting.served.loop.rest(0.03, 1000)
    assert time.monotonic() >= before + 0.03
    resting.client.sendall(PING)
    resting.served.loop.rest(0, 1000)
    assert resting.client.recv(100) == PONG
    resting.served.loop.rest(0, 1000)
    assert not resting.rings


def test_a_rest_ends_for_what_python_answers(resting: Resting) -> None:
    """The descriptor is readable until a round begins; that round sends the answer."""
    resting.client.sendall(rpc.request(1, "info", []))
    while not resting.rings:
        resting.served.loop.rest(PATIENCE_S, 1000)
    resting.served.loop.rest(PATIENCE_S, 1000)
    assert resting.served.hand_offs == []
    resting.served.step()
    assert not resting.rings
    resting.served.reply(resting.served.hand_offs[0], "info")
    resting.served.loop.rest(PATIENCE_S, 1000)
    assert resting.rings
    resting.served.step()
    assert resting.client.recv(100) == rpc.response(1, "info")


def test_a_rest_ends_with_the_last_connection_of_a_drain(resting: Resting) -> None:
    """A drain is told at once."""
    assert resting.rest_beside(resting.exchange) == PONG
    resting.served.loop.drain()
    resting.client.close()
    while not resting.rings:
        resting.served.loop.rest(PATIENCE_S, 1000)
    assert resting.served.loop.connection_count == 0


def test_a_loop_is_woken_while_others_are_watched(resting: Resting) -> None:
    """Waking uses the descriptor that Trio watches, which is not the epoll descriptor."""
    resting.served.loop.wake()
    assert resting.rings
    resting.served.step()
    assert not resting.rings


def test_the_bell_is_rung_once_until_a_round_has_begun(resting: Resting) -> None:
    """Many wakes before a round cost one system call."""
    for _ in range(2):
        for _ in range(3):
            resting.served.loop.wake()
        resting.served.loop.rest(0, 1000)
        assert resting.rings
        assert os.eventfd_read(resting.served.loop.fileno()) == 1  # The eventfd counts its writes.
        resting.served.step()


def test_a_loop_that_is_closed_does_not_rest(resting: Resting) -> None:
    resting.served.loop.close()
    resting.served.loop.rest(PATIENCE_S, 1000)
