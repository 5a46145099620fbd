"""The addresses that both `connect` functions accept."""

from __future__ import annotations

import asyncio

import pytest

import gossipkv
from gossipkv.address import Address
from gossipkv.client.route import addresses_of

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
    assert addresses_of(given) == [A, B, C]


@pytest.mark.parametrize("given", [(), ([],), ([], ())])
def test_none(given):
    with pytest.raises(ValueError, match="at least one address"):
        addresses_of(given)


@pytest.mark.parametrize("given", [(b"127.0.0.1:7070",), ([b"127.0.0.1:7070"],), ([[str(A)]],), ([7070],)])
def test_what_is_no_address(given):
    """The error names the type."""
    with pytest.raises(TypeError, match=r"an address must be a str, such as '127.0.0.1:7070', not (bytes|list|int)"):
        addresses_of(given)


def test_asyncio_is_told_which_client_to_use():
    """The errors outside their loops name the other clients."""

    async def enter() -> None:
        async with gossipkv.connect("127.0.0.1:1"):
            pass

    with pytest.raises(RuntimeError, match=r"trio\.run.*asyncio, use gossipkv\.aio.*gossipkv\.blocking\.connect"):
        asyncio.run(enter())


async def test_trio_is_told_which_client_to_use():
    with pytest.raises(
        RuntimeError, match=r"asyncio event loop.*Trio, use gossipkv\.connect.*gossipkv\.blocking\.connect"
    ):
        await gossipkv.aio.connect("127.0.0.1:1")
