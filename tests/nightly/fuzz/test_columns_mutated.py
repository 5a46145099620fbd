"""Mutated files with columns are refused or read, or, rarely, end the building process."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections import Counter
from typing import TYPE_CHECKING

from tests.nightly.fuzz import column_mutations

if TYPE_CHECKING:
    from pathlib import Path

FILES = 2000
# pyarrow 26 ends the process over statistics of a wrong size, and possibly in other cases.
DEADLY = {-signal.SIGABRT, -signal.SIGSEGV}
MAX_DEATHS = FILES // 50


def test_mutated_files_are_refused_or_read(tmp_path: Path) -> None:
    """The reader raises no other exception; deaths of pyarrow are counted, and the next process continues."""
    place = tmp_path / "case"
    counts: Counter[str] = Counter()
    first = 0
    while first < FILES:
        command = [sys.executable, "-m", column_mutations.__name__, str(first), str(FILES - first), str(place)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            counts.update(json.loads(done.stdout))
            break
        case, so_far = place.read_text().split(" ", 1)
        assert done.returncode in DEADLY, f"replay: {' '.join(command[1:3])} {case} 1 x\n{done.stderr[-2000:]}"
        counts.update(json.loads(so_far))
        counts["died"] += 1
        first = int(case) + 1
    assert counts.total() == FILES
    assert counts["died"] <= MAX_DEATHS
    assert min(counts["refused"], counts["read"]) > FILES // 10
