"""Tests that cost seconds; `test_waiting_for_disk_space.py` has the others."""

import errno

import pytest

from tests.unit.dataset.build.test_waiting_for_disk_space import begin, put, until_active
from tests.unit.dataset.simulated_node import DATABASE
from tests.world.faulty_files import CHANGING, Action, Fault


@pytest.fixture
def node():
    """A node that serves v1."""
    with_first = begin()
    yield with_first
    with_first.close()


def operations():
    """How many changes of the disk an upgrade makes until it is switched to."""
    node = begin()
    before = len(node.files.trace)
    put(node, "v2")
    node.finish()
    assert node.active == "v2"
    count = len(node.files.trace) - before
    node.close()
    return count


@pytest.mark.parametrize("action", [Action.FAIL, Action.FAIL_HALFWAY])
def test_a_disk_that_is_full_at_any_operation(action):
    """It waits, whatever was refused, goes on by itself, and leaves nothing over."""
    waited = 0
    total = operations()
    assert total > 15
    for at in range(total):
        node = begin()
        node.files.faults = (Fault(at, action, kinds=CHANGING, error=errno.ENOSPC),)
        node.files._seen = [0]
        put(node, "v2")
        until_active(node, "v2")
        assert node.files.struck
        assert node.disk.list_directory(f"/data/building/{DATABASE}") == []
        waited += node.builds.count("v2") > 1
        node.close()
    assert waited > total / 2
