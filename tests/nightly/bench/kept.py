"""Goals that are met, and stay so."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tests.bench import figures

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT = Path(__file__).parents[3]
ROUNDS = 3


def check(part: str, directory: Path, *, python: str = sys.executable, environ: Mapping[str, str] | None = None) -> str:
    """Measure a part in full and return its ratios; some round of each row meets the goal, as others are disturbed."""
    command = [python, "-m", "tests.bench", "--only", part, "--rounds", str(ROUNDS), "--figures", str(directory)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environ, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    rows = figures.read(directory / f"{part}.json")["rows"]
    said = "; ".join(
        f"{row['what']}, to {row['peer']}: {row['least']:.2f} to {row['greatest']:.2f} (≤ {row['goal']:g})"
        for row in rows
    )
    assert rows
    assert all(row["least"] <= row["goal"] for row in rows), said
    return said
