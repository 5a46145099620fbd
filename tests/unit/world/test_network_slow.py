"""Slow tests of the network; the fast ones are in `test_network.py`."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.unit.world.toy import two
from tests.world.scheduler import SECOND


def run_for_trace(seed):
    """Return the trace of a run with every fault of a link."""
    world, _, _ = two(seed)
    usual = world.network.usual
    usual.loss = usual.duplicate = usual.reorder = usual.corrupt = usual.heavy_delay = 0.2
    world.network.changed()
    world.run(50 * SECOND)
    return world.trace


@pytest.mark.parametrize("hash_seed", ["0", "4711"])
def test_the_hashing_of_strings_does_not_matter(hash_seed):
    code = "from tests.unit.world.test_network import run_for_trace; print(run_for_trace(3))"
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={"PYTHONHASHSEED": hash_seed}
    )
    assert ran.stdout.strip() == run_for_trace(3)
