"""A client under Trio, for tests."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import gossipkv

if TYPE_CHECKING:
    from tests.unit.client.fake_node import FakeNode

LONG_MS = 60_000  # A time limit that never matters.


@asynccontextmanager
async def connected(*nodes: FakeNode, timeout_ms: int = LONG_MS):
    """Yield a client of these nodes, and the dataset `geo`.  However slow a node is, no other one is asked as well."""
    addresses = [node.address for node in nodes]
    async with gossipkv.connect(addresses, timeout_ms=timeout_ms, stage_timeout_ms=LONG_MS) as client:
        yield client, client.dataset("geo")
