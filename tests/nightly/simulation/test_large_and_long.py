"""Large clusters, long partitions, and the slowest scenarios."""

from __future__ import annotations

import pytest

from gossipkv.gossip.profile import LAN
from tests.simulation.scenarios import SCENARIOS, partitioned
from tests.simulation.scenarios_of_branches import full_branches
from tests.simulation.scenarios_of_datasets import empty_cluster
from tests.simulation.test_scenarios_slow import LONGEST
from tests.world.gossip.members import formed
from tests.world.scheduler import HOUR, SECOND


@pytest.mark.parametrize("name", LONGEST)
def test_no_promise_is_broken(name):
    assert SCENARIOS[name]() == {}


def test_thirty_nodes():
    """Thirty nodes share out a version as three do."""
    assert empty_cluster(30) == {}


def test_a_partition_of_a_day():
    """After 24 hours apart two halves show the same in 35 s, and nothing that died comes back."""
    assert partitioned(24 * HOUR, LAN, 4) == {}


@pytest.mark.parametrize("seed", range(2, 6))
def test_full_branches_are_alike_everywhere(seed):
    """The order of joins and writes does not matter."""
    assert full_branches(seed) == {}


def test_a_large_cluster_is_deterministic():
    """Sixty-four members that come together do so twice in the same way."""

    def trace():
        world = formed(5, 64, LAN)
        world.run(10 * SECOND)
        return world.trace

    assert trace() == trace()
