"""Resident memory compared with the core's own count, over rounds of incomplete requests."""

from __future__ import annotations

import random
from pathlib import Path

import msgpack

from gossipkv.wire import rpc
from tests.unit.serving.driven import Peer, make_core
from tests.unit.serving.test_resp import array
from tests.unit.serving.test_resp_session import token
from tests.world._world import Driver

MIB = 1 << 20
HELD, ROUNDS, PEERS = 64 * MIB, 4, 60
CLIENTS = 10_000
SIZES = [MIB // 3, MIB // 2, MIB, 2 * MIB, 3 * MIB, 5 * MIB, 8 * MIB]


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def test_what_is_held_is_what_is_resident() -> None:
    """Each round's memory is about the counted one, whatever the sizes before, and hardly any is left."""
    core = make_core(max_held=HELD, max_frame=17 * MIB, max_connections=1000)
    draw = random.Random(4)
    frame = rpc.request(1, "get", ["db", b"x" * (9 * MIB)])
    before = resident_bytes()
    for _ in range(ROUNDS):
        peers = [Peer(core) for _ in range(PEERS)]
        left = [(peer, draw.choice(SIZES)) for peer in peers]
        at = 0
        while left:  # All requests grow together.
            for peer, _ in left:
                if not peer.driver.should_close(peer.handle):
                    peer.driver.feed(peer.handle, frame[at : at + 65_536], 1)
            at += 65_536
            left = [(peer, size) for peer, size in left if size > at and not peer.driver.should_close(peer.handle)]
            for peer in list(peers):
                if peer.driver.should_close(peer.handle):
                    peer.driver.close(peer.handle)
                    peers.remove(peer)
        assert core.counters()["held_bytes"] <= HELD
        assert resident_bytes() - before <= HELD * 5 // 4
        for peer in peers:
            peer.driver.close(peer.handle)
    assert resident_bytes() - before <= HELD // 8


def test_what_ten_thousand_connections_of_redis_cost() -> None:
    """Each has said something, and is idle; a session has 16 bytes for each origin."""
    drivers = []  # None may use the memory of those before.
    for origins, most_bytes in ((0, 3 << 10), (1, 4 << 10), (60, 6 << 10)):
        before = resident_bytes()
        driver = Driver(make_core(max_connections=CLIENTS))
        command = array(b"SET", b"carts:a", b"1") if origins else array(b"PING")
        seen = token(*((origin, 7) for origin in range(1, origins + 1)))
        for number in range(CLIENTS):
            handle = driver.open(1, number.to_bytes(4, "big"), 1)
            for _, msgid, _, _ in driver.feed(handle, command, 1):
                driver.reply(handle, msgid, msgpack.packb([1, msgid, None, seen]))
            assert driver.take_output(handle, 1 << 20, 1) in {b"+OK\r\n", b"+PONG\r\n"}
        drivers.append(driver)
        each_bytes = (resident_bytes() - before) // CLIENTS
        assert each_bytes < most_bytes, (origins, each_bytes)
