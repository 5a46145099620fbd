"""Slow tests of the METADATA checkers; the fast ones are in `test_witness.py`."""

from __future__ import annotations

from tests.world.metadata import world


def test_a_register_that_takes_nothing(monkeypatch):
    """With no time to take effect, no change counts as live."""
    monkeypatch.setattr(world, "LIVE_S", 0)
    assert {violation.checker for violation in world.run(1).violations} == {"live"}
