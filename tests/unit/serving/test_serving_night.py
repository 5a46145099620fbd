"""Busy polling in the serving loop."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from gossipkv.serving.pumps import polls
from tests.unit.serving import test_serving_slow as usual
from tests.unit.serving.test_serving_slow import PATIENCE_S, PING, PONG, Served

if TYPE_CHECKING:
    from pathlib import Path


served = usual.served


@pytest.mark.skipif(not polls("auto"), reason="one core: nobody asks while the loop looks out")
def test_looking_out_for_requests(tmp_path: Path) -> None:
    """Polling happens while requests are frequent, hits some, and stops without requests."""
    served = Served(tmp_path, polls=True)
    client = served.connect()
    client.settimeout(PATIENCE_S)
    stop = threading.Event()

    def ask() -> None:
        while not stop.is_set():
            client.sendall(PING)
            assert client.recv(100) == PONG

    asking = threading.Thread(target=ask)
    asking.start()
    try:
        served.until(lambda: served.counters("busy_poll_hits") > 0)
    finally:
        stop.set()
        served.until(lambda: not asking.is_alive())
        asking.join()
    served.step()
    before = served.counters("busy_polls")
    for _ in range(1000):
        served.step()
    assert served.counters("busy_polls") == before
    served.close()
