"""Programs of ours: how one is started by the interpreter that runs now, and how it ended, in words."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


def command(module: str) -> list[str]:
    """Return the command that runs a module as a program, and imports nothing from where it happens to stand."""
    return [sys.executable, "-P", "-m", module]


def environment(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return `environ`, in which it imports from where this process does, however this one was started."""
    path = os.pathsep.join(entry or str(Path.cwd()) for entry in sys.path)
    return {**environ, "PYTHONPATH": path}


def how_it_ended(status: int | None) -> str:
    """Return the end of a process in words, from its exit status: below zero, the signal that killed it."""
    return f"was killed by signal {-status}" if status is not None and status < 0 else f"ended with status {status}"
