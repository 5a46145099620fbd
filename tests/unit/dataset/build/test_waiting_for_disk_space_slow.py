"""A full disk at each operation; the fast tests are in `test_waiting_for_disk_space.py`."""

import errno

import pytest

from tests.unit.dataset.build.test_waiting_for_disk_space import begin, put, until_active
from tests.unit.dataset.simulated_node import DATABASE
from tests.world.faulty_files import CHANGING, Action, Fault


@pytest.fixture
def node():
    """Start a node that serves v1."""
    with_first = begin()
    yield with_first
    with_first.close()


def operations():
    """Count the changes to the disk during an upgrade."""
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
    """The node waits, continues by itself, and leaves no files over."""
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
