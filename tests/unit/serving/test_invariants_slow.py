"""The invariants of the debug build: each one that is broken on purpose is reported."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from gossipkv.wire import rpc
from tests.unit.debug_build import ONLY_DEBUG_BUILD
from tests.unit.serving.asker import AWAY, Asker
from tests.unit.serving.driven import Peer, make_core
from tests.unit.serving.test_pump_slow import PATIENCE_S, exchange, serving
from tests.unit.serving.test_serving_slow import Asked, Served
from tests.world._world import Driver
from tests.world.logs import capture_logs

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = ONLY_DEBUG_BUILD

PING = rpc.request(1, "ping", [])
PONG = rpc.response(1, "pong")
BREAKS = {
    "held bytes": "`held_bytes` is the sum of all inputs and outputs",
    "ids in flight": "`in_flight_count` is how many ids are in flight",
    "two answers": "an id is in flight once, so its request is answered once",
    "read while held": "a connection that is held or has ended is not read",
    "state": "a connection goes from open over finishing to lingering",
    "slots": "a slot is free or has a connection",
    "attempts": "a connection's attempts are those in its list",
    "relay bytes": "the bytes that relays hold are counted on their connections",
    "bytes of all relays": "the bytes that relays hold are counted on their connections",
    "attempt without a peer": "an attempt is on a connection to a peer",
}


@pytest.mark.parametrize("which", BREAKS)
def test_what_is_broken_is_noticed(which: str) -> None:
    """The next step of the connection names the invariant and the connection."""
    peer = Peer(make_core())

    def go_on() -> None:
        peer.driver.break_invariant(peer.handle, which)
        assert peer.send(PING) == []
        peer.driver.close(peer.handle)

    with pytest.raises(AssertionError, match=rf"{BREAKS[which]}.*\(connection {peer.handle:#x}\)"):
        go_on()


def test_an_answer_that_nobody_awaits_is_noticed(tmp_path: Path) -> None:
    """The id of a forwarded read is lost."""
    asker = Asker(tmp_path)
    asker.get(AWAY[0])
    (link,) = asker.links
    asker.client.driver.break_invariant(asker.client.handle, "relay without an id")
    with pytest.raises(AssertionError, match="the id of a relay is in flight until it is answered"):
        link.answer(link.asked(), b"value")


def test_a_connection_to_another_peer_is_noticed(tmp_path: Path) -> None:
    """The table and the connection name different peers."""
    asker = Asker(tmp_path)
    asker.client.driver.break_invariant(asker.links[0].handle, "another peer")
    with pytest.raises(AssertionError, match="a read asks a peer on the connection to that peer"):
        asker.get(AWAY[0])


def test_only_the_connection_ends(tmp_path: Path) -> None:
    """The loop closes and reports the broken connection once; others are served."""
    served = Served(tmp_path)
    broken, whole = served.connect(), served.connect()
    served.until(lambda: served.loop.connection_count == 2)
    Driver(served.core).break_invariant(1 << 32, "held bytes")
    broken.send(PING)
    while served.loop.connection_count == 2:
        served.loop.round(Asked, 1000, 1000)
    (told,) = served.core.broken_invariants()
    assert told == "`held_bytes` is the sum of all inputs and outputs (connection 0x100000000)"
    assert broken.recv(100) in {PONG, b""}
    whole.send(PING)
    assert served.receive(whole, len(PONG)) == PONG
    served.close()


async def test_the_node_goes_on(tmp_path: Path) -> None:
    """The pump logs the violation, and serves the next client."""
    with capture_logs() as logs, trio.fail_after(PATIENCE_S):
        async with serving(tmp_path) as running:
            client = await running.connect()
            assert await exchange(client, PING, 1) == [[1, 1, None, "pong"]]
            Driver(running.core).break_invariant(1 << 32, "ids in flight")
            await client.send_all(rpc.request(1, "info", []))
            while not logs:
                await trio.sleep(0.01)
            assert await exchange(await running.connect(), PING, 1) == [[1, 1, None, "pong"]]
    (told,) = logs
    assert (told["event"], told["log_level"]) == ("invariant_broken", "error")
    assert told["invariant"] == f"{BREAKS['ids in flight']} (connection 0x100000000)"
