"""Whether to look out for the next event, as a function of everything that happened before."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

HIT = "hit"
MISS = "miss"
SHORT_SLEEP_NS = 100_000


def pays(history: Sequence[str | int]) -> bool:
    """A hit, a miss, or how many nanoseconds a sleep without a look-out took; the oldest first."""
    credit = 0
    for event in history:
        if event == HIT:
            credit += 1
        elif event == MISS:
            credit -= 4
        elif isinstance(event, int) and event <= SHORT_SLEEP_NS:
            credit += 1
        else:
            credit = 0
        credit = max(0, min(8, credit))
    return credit >= 4
