"""Which processes one has started."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path


def started_by(process: int) -> list[int]:
    """Those that have not ended, each before those that it has started itself."""
    found = []
    with suppress(OSError):  # It has ended.
        for task in Path(f"/proc/{process}/task").iterdir():
            for child in map(int, (task / "children").read_text().split()):
                found += [child, *started_by(child)]
    return found


def is_running(process: int) -> bool:
    """Whether it is there; a zombie only waits for whoever adopted it."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
