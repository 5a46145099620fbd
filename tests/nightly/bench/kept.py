"""Goals that are met, and stay so."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tests.bench import report

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT = Path(__file__).parents[3]
ROUNDS = 3


def check(part: str, directory: Path, *, python: str = sys.executable, environ: Mapping[str, str] | None = None) -> str:
    """Measure a part in full and return its ratios; some round of each row meets the goal, as others are disturbed."""
    command = [python, "-m", "tests.bench", "--only", part, "--rounds", str(ROUNDS), "--figures", str(directory)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environ, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    lines = report.lines_of((directory / f"{part}.md").read_text(encoding="utf-8"))
    said = "; ".join(f"{what}, to {peer}: {spread} ({goal})" for what, _, peer, _, _, spread, goal, _ in lines)
    assert lines
    assert all(float(spread.split()[0]) <= float(goal.split()[-1]) for *_, spread, goal, _ in lines), said
    return said
