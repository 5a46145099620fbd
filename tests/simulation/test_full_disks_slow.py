"""Tests that cost seconds; `test_full_disks.py` has the others."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, cast

import pytest

from tests.simulation.test_full_disks import check_relieved, each_writes, fill
from tests.world.nodes import process
from tests.world.nodes.whole_cluster import USUAL, simulated

if TYPE_CHECKING:
    from gossipkv.wire.rpc import Value
    from tests.world.nodes.whole_cluster import SimulatedCluster

    Page = tuple[list[list[Value]], bytes]

SKEW_MS = 60_000
TTL_MS = 600_000


@pytest.mark.parametrize("happens", ["nothing", "restart"])
@simulated(3)
async def test_three_full_disks_are_relieved_by_deletes(cluster: SimulatedCluster, happens: str) -> None:
    await check_relieved(cluster, "delete", happens)


@simulated(3, config=replace(USUAL, max_clock_skew=SKEW_MS))
async def test_three_full_disks_are_relieved_by_expiry(
    cluster: SimulatedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody deletes anything; a feed that was asked for on a full disk has the first write after it."""
    monkeypatch.setattr(process, "MAX_WALL_OFFSET_MS", SKEW_MS // 4)
    count, running = await fill(cluster, "restart", TTL_MS)
    changes, token = cast("Page", await cluster.ask(running[0], "changes", "u", {}))
    assert not changes
    await cluster.until(partial(each_writes, cluster, running), within_s=1.5 * TTL_MS / 1000, every_s=5.0)
    changes, _ = cast("Page", await cluster.ask(running[1], "changes", "u", {"token": token, "wait_ms": 5000}))
    assert changes[0][:2] == [b"k", b"v"]
    for number in range(count):
        assert cast("list[Value]", await cluster.ask(running[0], "get", "t", b"%05d" % number))[0] is None
