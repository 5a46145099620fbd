"""Datasets and tables as containers of keys: defaults, `in` and indexes, and what can be awaited of these."""

from __future__ import annotations

import asyncio

import pytest
import trio

import gossipkv
from tests.unit.client.fake_node import FakeNode, store
from tests.unit.client.table_node import TableNode

KINDS = ("dataset", "table")


def behaviour(kind):
    if kind == "dataset":
        return store({b"k": b"v", b"": b""}, "v1")
    node = TableNode()
    node.records = {b"k": b"v", b"": b""}
    return node


@pytest.mark.parametrize("kind", KINDS)
def test_in_threads(kind):
    with FakeNode(behaviour(kind)) as node, gossipkv.blocking.connect(node.address) as client:
        keys = getattr(client, kind)("t")
        assert (keys.get("k", b"else"), keys.get("", b"else"), keys.get("none", b"else")) == (b"v", b"", b"else")
        assert (keys.get("none"), keys.get("none", default=7, session=client.session())) == (None, 7)
        assert ("k" in keys, b"" in keys, "none" in keys) == (True, True, False)
        assert (keys.has("k", session=client.session()), keys.has("none")) == (True, False)
        assert keys["k"] == b"v"
        with pytest.raises(KeyError, match="none"):
            keys["none"]
        with pytest.raises(TypeError, match="not iterable"):
            list(keys)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("library", ["trio", "asyncio"])
def test_awaited(kind, library):
    async def ask(connect):
        async with connect(node.address) as client:
            keys = getattr(client, kind)("t")
            assert [await keys.get("k", b"else"), await keys.get("none", b"else")] == [b"v", b"else"]
            assert [await keys.has("k"), await keys.has("none"), await keys["k"]] == [True, False, b"v"]
            with pytest.raises(KeyError, match="none"):
                await keys["none"]
            with pytest.raises(TypeError, match=rf"write: await {kind}\.has\(key\)"):
                "k" in keys  # noqa: B015  # It must raise.

    with FakeNode(behaviour(kind)) as node:
        if library == "trio":
            trio.run(ask, gossipkv.connect)
        else:
            asyncio.run(ask(gossipkv.aio.connect))
