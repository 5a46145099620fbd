"""Tests over real processes, sockets, threads or time; `test_metadata.py` has the others."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.world.metadata.world import run

pytestmark = pytest.mark.timeout(1200)


def test_a_run_is_the_same_twice():
    """The two processes hash strings differently."""
    command = [sys.executable, "-m", "tests.world", "--metadata", "--seed", "3"]
    said = [
        subprocess.run(
            command, capture_output=True, text=True, env=os.environ | {"PYTHONHASHSEED": str(seed)}, check=True
        ).stdout
        for seed in (1, 2)
    ]
    assert said[0] == said[1]
    assert "messages" in said[0]


# Seeds beyond the usual range that found a defect, each with the defect.
FOUND: dict[int, str] = {
    48: "a table that was dropped behind a force came back at acceptors whom the force had left out",
    66: "a force that came to nothing stopped its register for good, and could not be repeated",
}


@pytest.mark.parametrize("seed", FOUND)
def test_what_was_found_once(seed):
    outcome = run(seed)
    assert not outcome.violations, f"to replay: {outcome.command}\n    {outcome.violations[0]}"
