"""The memory of a store and of its merging child stays within the budgets."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from gossipkv.storage.engine.options import EngineOptions
from tests.unit.storage.engine import memory_of_shell

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="RssAnon is Linux's")

MIB = 1 << 20

SEGMENT_BYTES = 8 * MIB

BATCHES = 300

PROGRAM_BYTES = 16 * MIB  # Shared libraries and the interpreter, mapped from files, as inputs are.


def test_memory_of_much_that_is_written(tmp_path, record_property):
    """Writing 300 MiB takes both memtables and at most 64 MiB more, and the child stays within its budget."""
    arguments = [str(tmp_path / "store"), str(SEGMENT_BYTES), str(BATCHES), str(MIB)]
    done = subprocess.run(
        [sys.executable, "-m", memory_of_shell.__name__, *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    options = EngineOptions(segment_bytes=SEGMENT_BYTES)
    assert told["user_bytes"] > BATCHES * MIB
    assert told["merged_bytes"] > BATCHES * MIB * 0.8
    record_property("measured", done.stdout)
    taken = told["most"] - told["before"]
    assert SEGMENT_BYTES / 2 < taken <= 2 * options.memtable_bytes + 64 * MIB, f"{taken / MIB:.1f} MiB"
    assert 0 < told["child"] <= memory_of_shell.MERGE_MEMORY + PROGRAM_BYTES, f"{told['child'] / MIB:.1f} MiB"
