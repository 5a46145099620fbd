"""Which addresses both `connect` take, and where."""

from __future__ import annotations

import asyncio

import pytest

import gossipkv
from gossipkv.address import Address
from gossipkv.client.route import addresses_of
from tests.unit.client.behaviours import RECORDS, refused_address
from tests.unit.client.fake_node import FakeNode, store
from tests.unit.client.under_trio import LONG_MS

A, B, C = Address("127.0.0.1", 7070), Address("::1", 7071), Address("c", 7072)


@pytest.mark.parametrize(
    "given",
    [
        (str(A), str(B), str(C)),
        ([str(A), str(B), str(C)],),
        ((str(A), B, str(C)),),
        (A, [B], C),
        (iter([A, B]), C),
        ([], [A, B, C]),
    ],
)
def test_one_by_one_or_in_lists(given):
    """In the order in which they stand there."""
    assert addresses_of(given) == [A, B, C]


@pytest.mark.parametrize("given", [(), ([],), ([], ())])
def test_none(given):
    """An empty list is no address, as nothing is."""
    with pytest.raises(ValueError, match="at least one address"):
        addresses_of(given)


@pytest.mark.parametrize("given", [(b"127.0.0.1:7070",), ([b"127.0.0.1:7070"],), ([[str(A)]],), ([7070],)])
def test_what_is_no_address(given):
    """Bytes, numbers, lists in lists: said by their type."""
    with pytest.raises(TypeError, match=r"an address is text, such as '127.0.0.1:7070', not (bytes|list|int)"):
        addresses_of(given)


def test_the_blocking_client_goes_through_a_list():
    """As through addresses one by one."""
    with (
        FakeNode(store(RECORDS)) as node,
        gossipkv.blocking.connect([refused_address(), node.address], timeout_ms=LONG_MS) as client,
    ):
        assert client.dataset("geo").get(bytearray(b"key001")) == b"value 1"


async def test_the_client_under_trio_goes_through_a_list():
    """As through addresses one by one."""
    with FakeNode(store(RECORDS)) as node:
        async with gossipkv.connect([refused_address(), node.address], timeout_ms=LONG_MS) as client:
            assert await client.dataset("geo").get(memoryview(b"key001")) == b"value 1"


def test_asyncio_is_told_which_client_to_use():
    """Entered where no Trio runs it says so, and names the one that works there."""

    async def enter() -> None:
        async with gossipkv.connect("127.0.0.1:1"):
            pass

    with pytest.raises(RuntimeError, match=r"for Trio.*asyncio.*gossipkv\.blocking\.connect"):
        asyncio.run(enter())


def test_asyncio_reads_as_the_error_says():
    """The blocking client in threads of asyncio's."""

    async def read(address: str) -> bytes | None:
        client = await asyncio.to_thread(gossipkv.blocking.connect, address, timeout_ms=LONG_MS)
        with client:
            return await asyncio.to_thread(client.dataset("geo").get, "key001")

    with FakeNode(store(RECORDS)) as node:
        assert asyncio.run(read(node.address)) == b"value 1"
