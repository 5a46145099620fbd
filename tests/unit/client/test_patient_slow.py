"""A client that does not connect before it is asked."""

from __future__ import annotations

import pytest

from gossipkv.client.trio_client import Client
from gossipkv.errors import Unavailable
from tests.unit.client.behaviours import RECORDS, refused_address
from tests.unit.client.fake_node import FakeNode, store


async def test_it_does_not_connect_before_it_is_asked():
    """It is entered where nobody is; what it asks fails then, and is answered once somebody is there."""
    address = refused_address()
    async with Client([address], patient=True) as client:
        with pytest.raises(Unavailable, match="refused"):
            await client.ping()
    with FakeNode(store(RECORDS)) as node:
        async with Client([node.address], patient=True) as client:
            assert node.accepted == 0
            await client.ping()
        assert node.accepted == 1
