"""The scenarios of whole nodes, by name; each draws its details from the seed, and ends when all is well again.

A scenario that fails raises `Violation`, or an `AssertionError` if a condition was not met in time.
"""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import trio

from tests.world.nodes import views
from tests.world.nodes.backups import backups
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
from tests.world.nodes.phases import BACK_S, EVEN, LEFT_S, TWINS_S, settle, shown, watched
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
from tests.world.nodes.whole_cluster import Violation

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from tests.world.nodes.whole_cluster import SimulatedCluster

    Scenario = Callable[[SimulatedCluster], Awaitable[None]]


async def twins(cluster: SimulatedCluster) -> None:
    """A second node of one name, perhaps with a copy of the first one's disk, stops and says why; the first goes on."""
    chance = cluster.chance
    async with watched(cluster, calm=True):
        first, second = chance.sample(cluster.machines, 2)
        await trio.sleep(5)
        await second.stop()
        await shown(cluster, second, "left", LEFT_S)
        if chance.choice(EVEN):
            cluster.struck["copied"] += 1
            second.disk = first.disk.copied()
        else:
            cluster.struck["named"] += 1
            second.lose_disk()
        second.config = replace(second.config, node=first.name, join=(first.address,))
        await second.start()
        with trio.move_on_after(TWINS_S):
            await second.ended()
        if second.runs or second.error is None:
            raise Violation(f"a second node called {first.name} goes on")
        if str(first.address) not in second.error.message:
            raise Violation(f"it does not say where the other is: {second.error.message}")
        await settle(cluster, BACK_S)


async def strangers(cluster: SimulatedCluster) -> None:
    """A node of another cluster's name is not admitted; it says why, and goes on alone."""
    chance = cluster.chance
    stranger = chance.choice(cluster.machines[1:])
    stranger.config = replace(stranger.config, cluster="other")
    async with watched(cluster, but=stranger):
        stranger.config = replace(stranger.config, join=(cluster.machines[0].address,))
        await stranger.start()
        await trio.sleep(30)
        for machine in cluster.machines:
            names = set(await views.members(cluster, machine))
            expected = (
                {stranger.name} if machine is stranger else {other.name for other in cluster.machines} - {stranger.name}
            )
            if names != expected:
                raise Violation(f"{machine.name} of {machine.config.cluster!r} knows {sorted(names)}")
        if not any(
            "'simulated'" in line and "'other'" in line
            for line in cluster.trace.lines_with(f" {stranger.name} warning")
        ):
            raise Violation("the stranger does not say why it is alone")


def _named(*functions: Scenario) -> Mapping[str, Scenario]:
    return MappingProxyType({function.__name__: function for function in functions})


MEMBERSHIP: Final = _named(
    join, leave, death, restarts, blackout, crashes, read_only, partition, storm, tree, twins, strangers
)
"""Nodes find, miss and find each other again."""

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
"""Nodes share the partitions of a database, and clients read."""

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
"""Nodes decide on tables, and clients create and drop them."""

RECORDS: Final = _named(records, remade, backups)
"""Nodes keep records of tables, clients write and read, and backups bring the tables back."""

SCENARIOS: Final[Mapping[str, Scenario]] = MappingProxyType({**MEMBERSHIP, **SHARING, **DECIDING, **RECORDS})
