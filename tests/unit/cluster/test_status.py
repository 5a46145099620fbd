"""How a node ended, in words."""

from __future__ import annotations

import signal

import pytest

from gossipkv.cluster import NodeStatus


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (0, "ended with status 0"),
        (-signal.SIGKILL, "ended by SIGKILL"),
        (-(signal.SIGRTMIN + 1), f"ended by signal {signal.SIGRTMIN + 1}"),
        (None, "ended"),
    ],
)
def test_ends(status, words):
    """Every signal has words, also the real-time ones that have no name."""
    assert NodeStatus(1, "n1", "127.0.0.1:7070", "ended", exit_status=status).end() == words
