"""What a process does, seen from outside: the processor time that it had, and whether it wants more.

One that says nothing waits for something outside (a source that hangs), or is not let: it is stopped, or others have
the processors.  From the outside the two look alike, but for the state of its threads (proc(5)).
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

# Runnable, whether it has a processor or not; stopped by a signal or a debugger.
HELD_UP: Final = frozenset("RTt")
# Fields of `stat`, from the state on: what stands before is the command's name, which may hold anything.
STATE, USER_TICKS, SYSTEM_TICKS = 0, 11, 12
TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")


class Activity(NamedTuple):
    """A process at one moment."""

    processor_s: float  # What it had so far; when it has ended, nothing.
    is_held_up: bool  # One of its threads would go on if it had a processor, or were not stopped.


def activity_of(process: int) -> Activity:
    """Return what it does now; nothing if it has ended."""
    ticks = sum(int(stat[USER_TICKS]) + int(stat[SYSTEM_TICKS]) for stat in _stats(Path(f"/proc/{process}")))
    held_up = any(stat[STATE] in HELD_UP for task in _tasks(process) for stat in _stats(task))
    return Activity(ticks / TICKS_PER_S, held_up)


def _tasks(process: int) -> list[Path]:
    with contextlib.suppress(OSError):
        return list(Path(f"/proc/{process}/task").iterdir())
    return []


def _stats(place: Path) -> Iterator[list[str]]:
    """Yield the fields of `stat`, unless that has ended."""
    with contextlib.suppress(OSError):
        yield (place / "stat").read_text().rpartition(")")[2].split()
