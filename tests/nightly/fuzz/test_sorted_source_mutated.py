"""40,000 mutated sorted files as a source: every record as it was written, or an error, and nothing else."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

from tests.nightly.fuzz import sorted_source_mutations

if TYPE_CHECKING:
    from pathlib import Path

FILES = 40_000
OUTCOMES = {"plain: refused", "plain: answered", "resealed: refused", "resealed: met", "resealed: answered"}


def test_mutated_files_are_refused_met_or_answered(tmp_path: Path) -> None:
    """Plain damage never gives a wrong record, insane content never ends the process, and every outcome occurs."""
    place = tmp_path / "case"
    module = [sys.executable, "-X", "faulthandler", "-m", sorted_source_mutations.__name__]
    done = subprocess.run([*module, "0", str(FILES), place], capture_output=True, text=True, check=False)
    case = place.read_text().strip()
    assert done.returncode == 0, f"replay: python -m {module[-1]} {case} 1\n{done.stderr[-2000:]}"
    counts = json.loads(done.stdout)
    assert sum(counts.values()) == FILES
    assert set(counts) >= OUTCOMES
    assert min(counts[outcome] for outcome in OUTCOMES) > FILES // 1000
