"""FUZZ_FRAMES mutated messages between nodes that hold replicas: one answer each, and no replica is corrupted."""

from __future__ import annotations

from tests.nightly.fuzz.frames import FRAMES
from tests.nightly.fuzz.replica_messages import numbers, send


def test_mutated_messages(record_property):
    """A node accepts some, refuses the others with one clear error, and goes on."""
    taken = sum(send(number) for number in numbers(min(FRAMES, 1_000_000)))
    record_property("taken", taken)
    assert taken
