"""Mutated messages between nodes that keep records: a few of those of the night."""

from __future__ import annotations

from tests.nightly.fuzz.replica_messages import MESSAGES, numbers, send


def test_mutated_messages():
    """A node takes some, refuses the others with one clear error, and goes on."""
    taken = sum(map(send, numbers(2_000)))
    assert 2_000 // 5 < taken < 2_000 - MESSAGES
