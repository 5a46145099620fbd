"""The end of a node is described in words."""

from __future__ import annotations

import signal

import pytest

from gossipkv.launcher import NodeFailed, NodeStatus


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


def test_a_node_that_has_no_log():
    """The node may not have started, or the log was removed."""
    node = NodeStatus(1, "n1", "127.0.0.1:7070", "ended", error="/n1/log: No space left on device", log="/none/log")
    assert node.end() == "could not be started (/n1/log: No space left on device)"
    assert "(nothing)" in str(NodeFailed.of(node))
