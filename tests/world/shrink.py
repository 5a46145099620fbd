"""A failing run with as few faults as still make it fail."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.world.swarm import Outcome


def shrink(failed: Outcome, tell: Callable[[str], None]) -> Outcome:
    """Switch faults off, one after the other, as long as one of the first complaints remains."""
    complained = {violation.checker for violation in failed.violations}
    best = failed
    for name in sorted(failed.faults):
        tried = replace(best.plan, without=best.plan.without | {name}).run()
        if complained & {violation.checker for violation in tried.violations}:
            tell(f"fails without {name}")
            best = tried
    return best
