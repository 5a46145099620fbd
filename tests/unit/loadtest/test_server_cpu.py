"""Processor time of servers: of the process that listens, where it is here."""

from __future__ import annotations

import socket
import time

from gossipkv.loadtest.plan_text import parse_target
from gossipkv.loadtest.server_cpu import cpu_of_targets


def test_the_process_that_listens_is_found() -> None:
    """It is this one, whose time grows as it works; nobody listens elsewhere."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        target = parse_target(f"redis://127.0.0.1:{listener.getsockname()[1]}")
        before = cpu_of_targets([target])[str(target)]
        assert abs(before - time.process_time()) < 0.5
        until = time.process_time() + 0.1
        while time.process_time() < until:
            pass
        assert cpu_of_targets([target])[str(target)] > before
    assert cpu_of_targets([target]) == {}


def test_of_what_is_elsewhere_nothing_is_known() -> None:
    """An address that is not this machine's, or a name that nobody knows."""
    assert cpu_of_targets([parse_target("redis://192.0.2.1:1"), parse_target("http://nobody.invalid:1")]) == {}
