"""Slow tests of the simulated disk; the fast ones are in `test_simulated_disk.py`."""

from hypothesis import settings
from hypothesis.stateful import (
    run_state_machine_as_test,
)

from tests.unit.world.test_simulated_disk import Disks


def test_three_disks_show_the_same():
    """The three disks agree for any order of operations and power losses."""
    run_state_machine_as_test(Disks, settings=settings(stateful_step_count=40))
