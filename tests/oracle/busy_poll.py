"""The decision to poll for the next event, as a function of the whole history."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

HIT = "hit"
MISS = "miss"
SHORT_SLEEP_NS = 100_000


def pays(history: Sequence[str | int]) -> bool:
    """Return True if polling pays; an event is a hit, a miss, or the nanoseconds of a sleep; the oldest comes first."""
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
