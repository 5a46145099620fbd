"""Tests that cost seconds; `test_sessions.py` has the others."""

from __future__ import annotations

import pytest

from gossipkv.replication.replica import clock
from gossipkv.table.session.token import decode
from tests.unit.table.hopping import TABLES, hop
from tests.unit.table.record_nodes import TOKEN_KEYS


@pytest.mark.parametrize("seed", range(12))
def test_sessions_hop_over_nodes(seed):
    """No session sees older values; after full replication all nodes are ready and tokens omit local origins."""
    world, faults = hop(seed, 250)
    assert faults == []
    assert min(world.ends[method] for method in ("put", "delete", "get", "get_many", "scan", "put_many")) > 0
    assert world.ends["NOT_READY"] > 0
    assert world.collected > 0
    world.heal()
    for token in world.tokens.values():
        for node in world.records.nodes:
            for table in TABLES:
                _, _, after = node.call("scan", table, {"token": token})
                left = {
                    origin for seen in decode(after, TOKEN_KEYS).values() for origin, _ in clock.entries(seen.clock)
                }
                assert left.isdisjoint(node.replicas.of_origin)
