"""All nodes tell the acceptors of a register truly, soon after a change, whichever node was asked for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.world.nodes.phases import begin
from tests.world.nodes.whole_cluster import simulated

if TYPE_CHECKING:
    from tests.world.nodes.whole_cluster import SimulatedCluster

GROWN_S = 30.0
TOLD_S = 2.0


@pytest.mark.parametrize(("asked", "table"), [("the leaving acceptor", None), ("a node that is none", "t")])
@simulated(4)
async def test_all_nodes_know_that_an_acceptor_has_left(
    cluster: SimulatedCluster, asked: str, table: str | None
) -> None:
    """Acceptors publish hints; the asked node is none, so it lets one of them read the register."""
    await begin(cluster)
    by_name = {f"n{number}": machine for number, machine in enumerate(cluster.machines, 1)}
    await cluster.ask(by_name["n1"], "create_table", "t", {"kind": "hash", "partitions": 4})

    async def acceptors(name: str) -> set[str]:
        status, *_ = await cluster.ask(by_name[name], "metadata_status", table)
        return {acceptor["node"] for acceptor in status["new"]}

    async def are_three() -> bool:
        return [len(await acceptors(name)) for name in by_name] == [3] * 4

    await cluster.until(are_three, within_s=GROWN_S)
    before = await acceptors("n1")
    (outsider,), leaver = by_name.keys() - before, min(before)
    await cluster.ask(by_name[outsider if asked != "the leaving acceptor" else leaver], "metadata_leave", table, leaver)

    async def is_told() -> bool:
        return all([await acceptors(name) == before - {leaver} for name in by_name])

    await cluster.until(is_told, within_s=TOLD_S)


@simulated(5)
async def test_a_cluster_that_shrinks_keeps_its_majorities(cluster: SimulatedCluster) -> None:
    """Two of five nodes are removed and stopped; then a third is lost, and tables are still made and repaired."""
    await begin(cluster)
    by_name = {f"n{number}": machine for number, machine in enumerate(cluster.machines, 1)}
    await cluster.ask(by_name["n1"], "create_table", "t", {"kind": "hash", "partitions": 4, "replication": 2})

    async def acceptors(table: str | None) -> list[str]:
        status, *_ = await cluster.ask(by_name["n1"], "metadata_status", table)
        return sorted(acceptor["node"] for acceptor in status["new"])

    async def are_five() -> bool:
        return [len(await acceptors(table)) for table in (None, "t")] == [5, 5]

    await cluster.until(are_five, within_s=GROWN_S)
    for name in ("n4", "n5"):
        told = await cluster.ask(by_name["n1"], "remove_node", name, {}, timeout_s=30)
        assert told["decides_on"] == []
    assert [await acceptors(table) for table in (None, "t")] == [["n1", "n2", "n3"]] * 2

    async def is_empty() -> bool:
        told = await cluster.ask(by_name["n1"], "partition_map", "t")
        return {one["node"] for part in told["partitions"] for one in part["assignments"]} <= {"n1", "n2", "n3"}

    await cluster.until(is_empty, within_s=60)
    for name in ("n4", "n5"):
        await by_name[name].stop()
    by_name["n3"].kill()

    async def is_made() -> bool:
        await cluster.ask(by_name["n1"], "create_table", "u", {"kind": "hash", "partitions": 1, "replication": 2})
        return True

    await cluster.until(is_made, within_s=30)
    told = await cluster.ask(by_name["n1"], "remove_node", "n3", {"force": True}, timeout_s=60)
    assert told["decides_on"] == []
    assert "n3" not in await acceptors("t")
