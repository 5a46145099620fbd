"""Tests over real processes, sockets, threads or time; `test_replication.py` has the others."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.timeout(1200)


def test_a_run_is_the_same_twice():
    """The two processes hash strings differently and allocate at other addresses."""
    command = [sys.executable, "-m", "tests.world", "--replication", "--seed", "78", "--runs", "1"]
    said = [
        subprocess.run(
            command, capture_output=True, text=True, env=os.environ | {"PYTHONHASHSEED": str(seed)}, check=True
        ).stdout
        for seed in (1, 2)
    ]
    assert said[0] == said[1]
    assert {"records sent", "advance DONE", "joined"} <= {line[9:] for line in said[0].splitlines()}
