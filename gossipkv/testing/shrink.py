"""A failing run with as few faults as still make it fail."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gossipkv.testing.swarm import run, without

if TYPE_CHECKING:
    from collections.abc import Callable

    from gossipkv.testing.swarm import SwarmOutcome


def shrink(failed: SwarmOutcome, tell: Callable[[str], None]) -> SwarmOutcome:
    """Switch faults off, one after the other, as long as a checker that complained at first still does."""
    complained = {violation.checker for violation in failed.violations}
    best = failed
    for name in sorted(failed.faults):
        tried = run(without(best.plan, name))
        if complained & {violation.checker for violation in tried.violations}:
            tell(f"fails without {name}")
            best = tried
    return best
