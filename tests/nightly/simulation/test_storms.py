"""Every kind of fault strikes in a few storms over whole nodes."""

from __future__ import annotations

from tests.world.nodes.replay import WholePlan, run


def test_every_fault_strikes() -> None:
    """Twelve storms are enough; a fault that never struck would be untested."""
    missing = {"kill", "power", "crash", "cut", "clog", "heal", "leave", "loss", "duplicate", "reorder", "corrupt"}
    seeds = iter(range(12))
    while missing and (seed := next(seeds, None)) is not None:
        missing -= {fault for fault, times in run(WholePlan("storm", 3, seed)).struck.items() if times}
    assert missing == set()
