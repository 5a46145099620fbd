"""A poll of a change feed that a client leaves is freed at the node at once, and not when its 60 seconds are over."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import TYPE_CHECKING

import pytest
import trio

import gossipkv
from gossipkv.errors import NotReady, Overloaded, Unavailable, Unknown
from tests.ci.cluster.node_process import PATIENCE_S, NodeProcess, connect

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

BEGIN_S = 0.3  # A poll has reached the node by then; if not, the test shows nothing, but holds.
FREED_S = 10  # A poll that nobody ends waits for far longer; on an idle machine this takes milliseconds.


class OneFeed:
    """A node with a table, at which one feed may wait."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._client = connect(address)
        self._client.call("create_table", "t", {"kind": "hash", "partitions": 2, "replication": 1})
        self.token = b""
        self._until(self._has_begun, PATIENCE_S)

    def is_freed(self) -> None:
        self._until(self._has_room, FREED_S)

    def _has_room(self) -> bool:
        try:
            self._client.call("changes", "t", {"token": self.token})
        except Overloaded:
            return False
        return True

    def _has_begun(self) -> bool:
        try:
            self.token = self._client.call("changes", "t", {"prefix": b"none"})[1]
        except (NotReady, Unavailable):
            return False
        return True

    def _until(self, holds: Callable[[], bool], within_s: float) -> None:
        end_s = time.monotonic() + within_s
        while not holds():
            assert time.monotonic() < end_s, holds
            time.sleep(0.01)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OneFeed]:
    place: Path = tmp_path_factory.mktemp("feeds")
    with NodeProcess(place, "--max-feeds", "1", "--refresh-period", "off") as process:
        process.ready()
        yield OneFeed(process.address)


async def test_a_cancelled_task_of_trio(node: OneFeed) -> None:
    async with gossipkv.connect(node.address) as client, trio.open_nursery() as nursery:
        nursery.start_soon(anext, client.table("t").changes())
        await trio.sleep(BEGIN_S)
        nursery.cancel_scope.cancel()
        with trio.CancelScope(shield=True):
            await trio.to_thread.run_sync(node.is_freed)


def test_a_cancelled_task_of_asyncio(node: OneFeed) -> None:
    async def follow() -> None:
        async with gossipkv.aio.connect(node.address) as client:
            feed = client.table("t").changes()
            task = asyncio.ensure_future(anext(feed))
            await asyncio.sleep(BEGIN_S)
            task.cancel()
            await asyncio.to_thread(node.is_freed)

    asyncio.run(follow())


def test_a_call_whose_time_is_over(node: OneFeed) -> None:
    """The time is the client's; `wait_ms` lets the node wait for longer."""

    async def call() -> None:
        async with gossipkv.aio.connect(node.address) as client:
            with pytest.raises(Unknown, match="no answer in time"):
                await client.call("changes", "t", {"token": node.token, "wait_ms": 60_000}, timeout_ms=300)
            await asyncio.to_thread(node.is_freed)

    asyncio.run(call())


@pytest.mark.parametrize("library", ["trio", "asyncio"])
def test_a_loop_that_is_left(node: OneFeed, library: str) -> None:
    """The next page is asked for ahead, and dropped with the loop."""

    async def follow(connect, to_thread) -> None:
        async with connect(node.address) as client:
            await client.table("t").put(b"k", b"v")
            async for change in client.table("t").changes(start="snapshot"):
                assert change.key == b"k"
                break
            await to_thread(node.is_freed)

    if library == "trio":
        trio.run(follow, gossipkv.connect, trio.to_thread.run_sync)
    else:
        asyncio.run(follow(gossipkv.aio.connect, asyncio.to_thread))


def test_a_blocking_client_that_is_closed(node: OneFeed) -> None:
    client = gossipkv.blocking.connect(node.address)

    def follow() -> None:
        with pytest.raises(Unavailable, match="closed"):
            next(client.table("t").changes())

    thread = threading.Thread(target=follow)
    thread.start()
    time.sleep(BEGIN_S)
    client.close()
    node.is_freed()
    thread.join(PATIENCE_S)
    assert not thread.is_alive()
