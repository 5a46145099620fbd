"""100,000 mutated SequenceFiles through the reader: read or refused exactly as by the oracle."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

from tests.nightly.fuzz import sequence_file_mutations
from tests.oracle import sequence_file as oracle
from tests.unit.dataset.formats.sequence_files import CODECS, short

if TYPE_CHECKING:
    from pathlib import Path

FILES = 100_000
KINDS = ["none"] + [
    f"{compression} {short(codec)}{inside}"
    for compression in (oracle.RECORD, oracle.BLOCK)
    for codec in CODECS
    for inside in ("", " inside")
]
# The memory for the largest allowed files, the oracle, and the allocator's reserve.
PEAK_BYTES = 64 << 20
SANITIZED = "libasan" in os.environ.get("LD_PRELOAD", "")  # A sanitized process takes several times as much memory.


def test_mutated_files_are_read_or_refused(tmp_path: Path) -> None:
    """No crash, no other error, no deviation from the oracle, bounded memory; every outcome occurs."""
    place = tmp_path / "case"
    module = [sys.executable, "-X", "faulthandler", "-m", sequence_file_mutations.__name__]
    done = subprocess.run([*module, "0", str(FILES), place], capture_output=True, text=True, check=False)
    case = place.read_text().strip()
    assert done.returncode == 0, f"replay: python -m {module[-1]} {case} 1\n{done.stderr[-2000:]}"
    told = json.loads(done.stdout)
    counts = told["counts"]
    assert sum(counts.values()) == FILES
    assert set(counts) == {f"{kind}: {outcome}" for kind in KINDS for outcome in ("read", "refused")}
    assert min(counts.values()) > FILES // 5000
    assert told["peak_bytes"] < PEAK_BYTES or SANITIZED
