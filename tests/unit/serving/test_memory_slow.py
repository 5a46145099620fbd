"""Resident memory compared with the core's own count, over rounds of incomplete requests."""

from __future__ import annotations

import random
from pathlib import Path

from gossipkv.wire import rpc
from tests.unit.serving.driven import Peer, make_core

MIB = 1 << 20
HELD, ROUNDS, PEERS = 64 * MIB, 4, 60
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
