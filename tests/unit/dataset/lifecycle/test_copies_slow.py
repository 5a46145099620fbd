"""Power losses while copies change; the fast tests are in `test_copies.py`."""

import pytest

from gossipkv.dataset.lifecycle.version_states import VersionWord
from tests.unit.dataset.lifecycle.test_copies import Cluster, files_of, held, here, manifest, put, share_of
from tests.unit.dataset.simulated_node import SimulatedNode
from tests.world.faulty_files import Action


@pytest.fixture
def cluster():
    return Cluster()


@pytest.fixture
def node(cluster):
    """Start a node with an empty source."""
    node = SimulatedNode(cluster)
    node.start()
    yield node
    node.close()


def whole(node, name):
    """True if every partition here has all its records, of the right version."""
    found = [(key, value) for file in held(node, name).files if file is not None for key, value in file.scan()]
    return len(found) == manifest(node, name).records and {value for _, value in found} <= {name.encode()}


@pytest.mark.parametrize("action", [Action.CRASH_BEFORE, Action.CRASH_HALFWAY, Action.CRASH_AFTER])
def test_a_power_loss_at_any_change_leaves_what_was_here_or_what_is(cluster, action):
    """The power fails while partitions are added or dropped; the node serves all along and ends with its share."""
    cluster.had = cluster.gates = {"v1"}
    seen = set()
    for at in range(100):
        cluster.shares["v1"] = share_of(0, 1)
        node = SimulatedNode(cluster)
        node.start()
        try:
            put(node, "v1")
            node.finish()
            cluster.shares["v1"] = share_of(0, 1, 2)
            node.crash_at(at, action)
            node.decide_again()
            if not node.down:
                node.finish()
            if not node.down:
                node.drop("v1", share_of(0))
            if not node.down:
                break
            node.lose_power(at)
            node.start()
            seen.add(here(node, "v1"))
            assert held(node, "v1").active
            assert whole(node, "v1")
            if node.states["v1"] is VersionWord.BUILDING:
                node.finish()
            assert (node.states["v1"], here(node, "v1")) == (VersionWord.ACTIVE, (0, 1, 2))
            assert whole(node, "v1")
            assert files_of(node, "v1") == {f"part-0000{partition}.gkv" for partition in range(3)}
        finally:
            node.close()
    else:
        raise AssertionError("every change was struck, and there are more")
    assert seen == {(0, 1), (0, 1, 2), (1, 2)}
