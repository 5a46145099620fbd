"""The core lock: one thread at a time, re-entrant, and the pump's own thread in between."""

from __future__ import annotations

import os
import random
import select
import socket
import threading
import time
from typing import TYPE_CHECKING

import msgpack
import pytest

from gossipkv.serving._serving import Core, CoreLock, Loop, LoopGroup
from gossipkv.serving._transport import Sockets
from gossipkv.wire import rpc
from tests.oracle.core_lock import faults
from tests.unit.serving.driven import LIMITS, NODE, make_core
from tests.world._world import OwnThread

if TYPE_CHECKING:
    from collections.abc import Iterator

THREADS = 4
TURNS = 300


@pytest.fixture
def beside() -> Iterator[tuple[Loop, socket.socket]]:
    """Yield the loop of a second pump, which a thread serves, and a client of the loop."""
    group = LoopGroup(2, max_connections=9, max_of_address=0, max_in_flight=9, max_held=1 << 24)
    of_all = ("connections", "total", "held")
    limits = {name: limit for name, limit in LIMITS.items() if not any(word in name for word in of_all)}
    first = Loop(Core(**limits, node=NODE, group=group), Sockets(listener := listening(), polls=False))
    loop = Loop(Core(**limits, node=NODE, group=group, pump=1), Sockets(None, polls=False))
    clients = [socket.create_connection(listener.getsockname(), timeout=60) for _ in range(2)]
    thread = threading.Thread(target=loop.serve_alone, args=(1000,))
    thread.start()
    while first.connection_count < 1 or counted(loop) < 1:
        first.round(never, 1000, 1000)
    try:
        yield loop, served(clients)
    finally:
        assert loop.core.lock is not None
        with loop.core.lock:
            loop.stop()
        thread.join()
        with loop.core.lock:
            loop.close()
        first.close()
        for client in clients:
            client.close()


def listening() -> socket.socket:
    listener = socket.create_server(("127.0.0.1", 0))
    listener.settimeout(0)
    return listener


def never(method: object, params: object, _caller: object) -> bytes:
    raise AssertionError(method, params)


def counted(loop: Loop) -> int:
    assert loop.core.lock is not None
    with loop.core.lock:
        return loop.connection_count


def served(clients: list[socket.socket]) -> socket.socket:
    """Return the client that the thread answers; nothing serves the first pump."""
    for client in clients:
        client.sendall(rpc.request(1, "ping", []))
    (client,), _, _ = select.select(clients, [], [], 60)
    assert client.recv(100) == rpc.response(1, "pong")
    return client


@pytest.mark.parametrize("seed", range(3))
def test_one_thread_at_a_time(beside: tuple[Loop, socket.socket], seed: int) -> None:
    """The lock is re-entrant; the pump serves in between, and no thread starves."""
    loop, client = beside
    lock, log = loop.core.lock, []
    assert lock is not None

    def take_turns(who: int) -> None:
        chance = random.Random(seed * THREADS + who)
        for _ in range(TURNS):
            with lock:
                log.append(("enter", who))
                if chance.random() < 0.3:
                    with lock:
                        log.append(("enter", who))
                        loop.core.counters()
                        log.append(("leave", who))
                log.append(("leave", who))

    threads = [threading.Thread(target=take_turns, args=(who,)) for who in range(THREADS)]
    for thread in threads:
        thread.start()
    for number in range(200):
        client.sendall(rpc.request(number, "ping", []))
        assert msgpack.unpackb(client.recv(100)) == [1, number, None, "pong"]
    for thread in threads:
        thread.join()
    assert faults(log) == []
    assert len(log) > 2 * THREADS * TURNS


def test_the_oracle_sees_two_at_once() -> None:
    assert faults([("enter", 1), ("enter", 2), ("leave", 2), ("leave", 1)]) != []
    assert faults([("enter", 1)]) == ["1 never left"]
    assert faults([("leave", 1)]) == ["1 left and was not in"]


def test_what_belongs_to_whose_turn_it_is(beside: tuple[Loop, socket.socket]) -> None:
    """A change needs the lock; a node's only pump has no lock."""
    loop, _ = beside
    with pytest.raises(RuntimeError, match="does not hold the core lock"):
        loop.core.set_peer(0, "n2", 0)
    assert loop.core.lock is not None
    with loop.core.lock:
        loop.core.set_peer(0, "n2", 0)
    assert make_core().lock is None


def test_a_thread_that_waits_goes_before_the_pump() -> None:
    """A pump that releases the lock and takes it again has let the waiting thread in."""
    lock, entered = CoreLock(), []
    own = OwnThread(lock, -1)

    def enter() -> None:
        with lock:
            entered.append(True)

    own.take()
    thread = threading.Thread(target=enter)
    thread.start()
    while not own.is_wanted:
        time.sleep(0)
    own.give(asleep=False)
    own.take()
    was_in = [*entered]
    own.give(asleep=False)
    thread.join()
    assert was_in == [True]


def test_a_sleeping_pump_is_woken() -> None:
    """A thread that held the lock may have left work for the pump."""
    lock, waker = CoreLock(), os.eventfd(0)
    own = OwnThread(lock, waker)
    own.take()
    own.give(asleep=True)
    with lock:
        pass
    is_woken = select.select([waker], [], [], 0)[0] == [waker]
    os.close(waker)
    assert is_woken
