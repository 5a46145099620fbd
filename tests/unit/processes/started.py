"""Look-ups of running child processes."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path


def started_by(process: int) -> list[int]:
    """Return the running descendants, each before its own children."""
    found = []
    with suppress(OSError):  # The process has ended.
        for task in Path(f"/proc/{process}/task").iterdir():
            for child in map(int, (task / "children").read_text().split()):
                found += [child, *started_by(child)]
    return found


def is_running(process: int) -> bool:
    """Return True if the process exists and is no zombie."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
