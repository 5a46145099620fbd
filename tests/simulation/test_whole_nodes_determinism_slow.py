"""Tests over real processes, sockets, threads or time; `test_whole_nodes_determinism.py` has the others."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.simulation.lively_nodes import once

PROGRAM = """
import sys
from tests.simulation.lively_nodes import once
ballast = [bytearray(int(n)) for n in range(1000)] if sys.argv[1] == "1" else []
print(once().trace)
"""


def test_a_seed_gives_the_same_run_in_fresh_processes() -> None:
    """String hashes and memory addresses differ between the processes."""
    traces = {
        subprocess.run(
            [sys.executable, "-c", PROGRAM, ballast],
            env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(sys.path)},
            stdout=subprocess.PIPE,
            check=True,
            text=True,
            timeout=120,
        ).stdout.strip()
        for hash_seed, ballast in (("1", "0"), ("2", "1"), ("random", "0"))
    }
    assert traces == {once().trace}
