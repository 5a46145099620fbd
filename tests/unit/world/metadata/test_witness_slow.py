"""Tests that cost seconds; `test_witness.py` has the others."""

from __future__ import annotations

from tests.world.metadata import world


def test_a_register_that_takes_nothing(monkeypatch):
    """In the time that it has, which is none."""
    monkeypatch.setattr(world, "LIVE_S", 0)
    assert {violation.checker for violation in world.run(1).violations} == {"live"}
