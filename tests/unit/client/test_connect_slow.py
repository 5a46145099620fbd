"""Slow tests of connecting; the fast ones are in `test_connect.py`."""

from __future__ import annotations

import asyncio

import gossipkv
from tests.unit.client.behaviours import RECORDS, refused_address
from tests.unit.client.fake_node import FakeNode, store
from tests.unit.client.under_trio import LONG_MS


def test_the_blocking_client_goes_through_a_list():
    with (
        FakeNode(store(RECORDS)) as node,
        gossipkv.blocking.connect([refused_address(), node.address], timeout_ms=LONG_MS) as client,
    ):
        assert client.dataset("geo").get(bytearray(b"key001")) == b"value 1"


async def test_the_client_under_trio_goes_through_a_list():
    with FakeNode(store(RECORDS)) as node:
        async with gossipkv.connect([refused_address(), node.address], timeout_ms=LONG_MS) as client:
            assert await client.dataset("geo").get(memoryview(b"key001")) == b"value 1"


def test_the_client_under_asyncio_goes_through_a_list():
    async def read(address: str) -> None:
        async with gossipkv.aio.connect([refused_address(), address], timeout_ms=LONG_MS) as client:
            assert await client.dataset("geo").get(memoryview(b"key001")) == b"value 1"

    with FakeNode(store(RECORDS)) as node:
        asyncio.run(read(node.address))
