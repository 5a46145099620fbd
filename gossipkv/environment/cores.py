"""How many processor cores there are for this process."""

from __future__ import annotations

import os


def cores() -> int:
    """How many this process may use."""
    return len(os.sched_getaffinity(0))
