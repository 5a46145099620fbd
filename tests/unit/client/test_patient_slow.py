"""A client that connects with its first request."""

from __future__ import annotations

import pytest

from gossipkv.client.trio_client import Client
from gossipkv.errors import Unavailable
from tests.unit.client.behaviours import RECORDS, refused_address
from tests.unit.client.fake_node import FakeNode, store


async def test_it_does_not_connect_before_it_is_asked():
    """A client without a reachable node can be entered; its requests fail until a node listens."""
    address = refused_address()
    async with Client([address], patient=True) as client:
        with pytest.raises(Unavailable, match="refused"):
            await client.ping()
    with FakeNode(store(RECORDS)) as node:
        async with Client([node.address], patient=True) as client:
            assert node.accepted == 0
            await client.ping()
        assert node.accepted == 1
