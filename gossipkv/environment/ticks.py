"""Ticks: moments at which all periodic tasks of an idle process wake together.

A wake from sleep costs a quarter of a millisecond, however little the task does: the interpreter's code and data have
left the processor's caches. Tasks that wake at the same moment share this cost.
"""

from __future__ import annotations

from math import floor
from typing import Final

import trio

TICK_S: Final = 0.5


def next_look(period_s: float) -> float:
    """Return the last tick of the next `period_s` seconds by Trio's clock; their end if a tick is longer."""
    end = trio.current_time() + period_s
    return end if period_s < TICK_S else floor(end / TICK_S) * TICK_S
