"""What whole nodes go through, by name; each scenario draws its details from the seed, and ends when all is well again.

A scenario that fails raises `Violation`, or an `AssertionError` when something did not come about in time.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from tests.world.nodes.bad_network import partition, storm, tree
from tests.world.nodes.churn import blackout, crashes, death, join, leave, read_only, restarts
from tests.world.nodes.deciding import (
    acceptor_lost,
    cut_while_founding,
    founder_lost,
    table_restarts,
    table_storm,
    tables,
    transactions,
    two_clusters,
    two_lone,
)
from tests.world.nodes.differences import another_count, another_disk, disk_full, join_into_nothing, two_contents
from tests.world.nodes.losses import (
    all_cut_off,
    back_alone,
    death_after_the_gate,
    death_at_the_gate,
    death_before_the_gate,
    laggard,
    left_alone,
    stalled,
    views_that_differ,
    wrong_dead,
)
from tests.world.nodes.misconfiguration import strangers, twins
from tests.world.nodes.records import records, remade
from tests.world.nodes.upgrades import (
    all_stopped,
    automatic_ids,
    empty_cluster,
    half_uploaded,
    late_joiner,
    late_source,
    one_empty_node,
    one_version,
    owner_stopped,
    rolling_restart,
    slow_source,
    source_gone,
    stopped_amid_upgrades,
    told_at_once,
    upgrade,
    upgrade_restarts,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from tests.world.nodes.whole_cluster import SimulatedCluster

    Scenario = Callable[[SimulatedCluster], Awaitable[None]]


def _named(*functions: Scenario) -> Mapping[str, Scenario]:
    return MappingProxyType({function.__name__: function for function in functions})


MEMBERSHIP: Final = _named(
    join, leave, death, restarts, blackout, crashes, read_only, partition, storm, tree, twins, strangers
)
"""They find, miss and find each other again."""

SHARING: Final = _named(
    one_empty_node,
    empty_cluster,
    one_version,
    automatic_ids,
    upgrade,
    told_at_once,
    slow_source,
    late_source,
    source_gone,
    upgrade_restarts,
    rolling_restart,
    owner_stopped,
    stopped_amid_upgrades,
    all_stopped,
    late_joiner,
    death_before_the_gate,
    death_at_the_gate,
    death_after_the_gate,
    all_cut_off,
    wrong_dead,
    stalled,
    laggard,
    left_alone,
    back_alone,
    views_that_differ,
    half_uploaded,
    two_contents,
    another_count,
    another_disk,
    join_into_nothing,
    disk_full,
)
"""They share the partitions of a database, and clients read."""

DECIDING: Final = _named(
    tables,
    table_storm,
    table_restarts,
    transactions,
    two_lone,
    two_clusters,
    cut_while_founding,
    founder_lost,
    acceptor_lost,
)
"""They decide on tables, and clients make and drop them."""

RECORDS: Final = _named(records, remade)
"""They keep records of tables, and clients write and read."""

SCENARIOS: Final[Mapping[str, Scenario]] = MappingProxyType({**MEMBERSHIP, **SHARING, **DECIDING, **RECORDS})
