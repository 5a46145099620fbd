"""150,000 mutated sorted files through the reader: refused, met, or answered, and nothing else."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

from tests.nightly.fuzz import sorted_file_mutations

if TYPE_CHECKING:
    from pathlib import Path

FILES = 150_000
OUTCOMES = {f"{kind}: {outcome}" for kind in ("plain", "resealed") for outcome in ("refused", "met", "answered")}


def test_mutated_files_are_refused_met_or_answered(tmp_path: Path) -> None:
    """Plain damage never gives a wrong answer, insane content never ends the process, and every outcome occurs."""
    place = tmp_path / "case"
    module = [sys.executable, "-X", "faulthandler", "-m", sorted_file_mutations.__name__]
    done = subprocess.run([*module, "0", str(FILES), place], capture_output=True, text=True, check=False)
    case = place.read_text().strip()
    assert done.returncode == 0, f"replay: python -m {module[-1]} {case} 1\n{done.stderr[-2000:]}"
    counts = json.loads(done.stdout)
    assert sum(counts.values()) == FILES
    assert set(counts) == OUTCOMES
    assert min(counts.values()) > FILES // 200
