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
    """Yield a client of these nodes, and the dataset `geo`."""
    async with gossipkv.connect(*(node.address for node in nodes), timeout_ms=timeout_ms) as client:
        yield client, client.dataset("geo")
