"""Tests over real processes, sockets, threads or time; `test_registers.py` has the others."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests.world.register.swarm import RegisterPlan

pytestmark = pytest.mark.timeout(1200)


@pytest.mark.parametrize("stored", [False, True])
def test_a_run_is_the_same_twice(stored):
    """Another process with other string hashes gives the same events and faults."""
    plan = RegisterPlan(7, stored=stored)
    one = plan.run()
    environment = os.environ | {"PYTHONHASHSEED": "8"}
    told = subprocess.run(
        [sys.executable, *plan.command.split()[1:], "--json"], env=environment, capture_output=True, check=True
    )
    other = json.loads(told.stdout)
    assert (other["trace"], other["struck"], other["transitions"]) == (one.trace, one.struck, one.transitions)
