"""Processor time of servers: the listening process, if it runs on this machine."""

from __future__ import annotations

import socket
import time

from gossipkv.loadtest.plan_text import parse_target
from gossipkv.loadtest.server_cpu import Spent, between, cpu_of_targets


def test_the_process_that_listens_is_found() -> None:
    """The listening process is this one, whose time grows with its work; other targets are unknown."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        target = parse_target(f"redis://127.0.0.1:{listener.getsockname()[1]}")
        before = cpu_of_targets([target])[str(target)]
        assert abs(before.cpu_s - time.process_time()) < 0.5
        until = time.process_time() + 0.1
        while time.process_time() < until:
            pass
        after = cpu_of_targets([target])
        assert between({str(target): before}, after) == {str(target): after[str(target)].cpu_s - before.cpu_s}
        assert after[str(target)].cpu_s > before.cpu_s
    assert cpu_of_targets([target]) == {}


def test_of_what_is_elsewhere_nothing_is_known() -> None:
    """The time is unknown for a foreign address and an unknown name."""
    assert cpu_of_targets([parse_target("redis://192.0.2.1:1"), parse_target("http://nobody.invalid:1")]) == {}


def test_a_process_that_began_anew_is_left_out() -> None:
    """A restart shows in the start time, or, without one, in a lower time."""
    before = {"same": Spent(1.0, (7,)), "anew": Spent(1.0, (7,)), "less": Spent(2.0, ()), "gone": Spent(1.0, (7,))}
    after = {"same": Spent(1.5, (7,)), "anew": Spent(3.0, (8,)), "less": Spent(1.0, ()), "new": Spent(1.0, (7,))}
    assert between(before, after) == {"same": 0.5}
