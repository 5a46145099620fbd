"""The client under asyncio, with its own loop and with uvloop, against nodes that answer, stall and die."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
import uvloop

import gossipkv
from gossipkv.errors import Unavailable
from tests.unit.client.behaviours import (
    RECORDS,
    refused_address,
)
from tests.unit.client.fake_node import FakeNode, store
from tests.unit.client.under_trio import LONG_MS

ROOT = Path(__file__).parents[3]


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def run(request):
    """Return a function that runs a coroutine in a new event loop."""

    def run(coroutine):
        with asyncio.Runner(loop_factory=request.param) as runner:
            return runner.run(coroutine)

    return run


def connect(*nodes: FakeNode, timeout_ms: int = LONG_MS):
    return gossipkv.aio.connect(*(node.address for node in nodes), timeout_ms=timeout_ms)


def test_reads(run):
    """All reads use one connection."""

    async def main(node: FakeNode) -> None:
        async with connect(node) as client:
            data = client.dataset("geo")
            assert await data.get(b"key001") == await data.get("key001") == b"value 1"
            assert await data.get_with_version(b"\xff\x00") == (b"\x00", "v1")
            assert await data.get_many([b"key002", "nope", ""]) == [b"value 2", None, b""]
            assert [key async for key, _ in data.scan(prefix="key00")] == [f"key00{n}".encode() for n in range(10)]
            await client.ping()
            assert str(client.address) == node.address
            assert repr(data).startswith("<gossipkv.aio.Dataset 'geo' of <gossipkv.aio.Client connected to 127.0.0.1:")

    with FakeNode(store(RECORDS)) as node:
        run(main(node))
        assert node.accepted == 1


def test_a_service_opens_and_closes_it_without_a_block(run):
    """A client connects when it is awaited or with the first request, and `aclose` ends it."""

    async def main(node: FakeNode) -> None:
        awaited, lazy = await connect(node), connect(node)
        assert (str(awaited.address), lazy.address) == (node.address, None)
        for client in (awaited, lazy):
            assert await client.dataset("geo").get("key001") == b"value 1"
            await client.aclose()
            await client.aclose()
            with pytest.raises(Unavailable, match="the client is closed"):
                await client.ping()

    with FakeNode(store(RECORDS)) as node:
        run(main(node))
        assert node.accepted == 2


def test_refused_everywhere_lists_each_address(run):
    async def main() -> None:
        with pytest.raises(Unavailable, match=r"Connection refused.*; .*Connection refused"):
            await gossipkv.aio.connect(refused_address(), refused_address(), timeout_ms=LONG_MS)

    run(main())
