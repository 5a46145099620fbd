"""Tests that cost seconds; `test_simulated_disk.py` has the others."""

from hypothesis import settings
from hypothesis.stateful import (
    run_state_machine_as_test,
)

from tests.unit.world.test_simulated_disk import Disks


def test_three_disks_show_the_same():
    """In whatever order files are made, written, allocated, linked, renamed, synced, and the power goes."""
    run_state_machine_as_test(Disks, settings=settings(stateful_step_count=40))
