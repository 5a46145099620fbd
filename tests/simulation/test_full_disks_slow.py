"""Tests that cost seconds; `test_full_disks.py` has the others."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.simulation.test_full_disks import check_relieved
from tests.world.nodes.whole_cluster import simulated

if TYPE_CHECKING:
    from tests.world.nodes.whole_cluster import SimulatedCluster


@pytest.mark.parametrize("happens", ["nothing", "restart"])
@simulated(3)
async def test_three_full_disks_are_relieved_by_deletes(cluster: SimulatedCluster, happens: str) -> None:
    await check_relieved(cluster, "delete", happens)
