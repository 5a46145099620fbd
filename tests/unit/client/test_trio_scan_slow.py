"""Scans under Trio: pages, reading ahead, and loops that are left, cancelled or nested."""

from __future__ import annotations

import gc
import threading
import warnings

import pytest
import trio
import trio.testing

from tests.unit.client.behaviours import RECORDS
from tests.unit.client.fake_node import Connection, FakeNode, store
from tests.unit.client.under_trio import connected


def scanned(options: dict[str, object]) -> list[tuple[bytes, bytes]]:
    """Return the expected records of a scan."""
    start, end, prefix = (options.get(name, b"") for name in ("start", "end", "prefix"))
    found = [
        (key, RECORDS[key])
        for key in sorted(RECORDS)
        if key >= start and (not end or key < end) and key.startswith(prefix)
    ]
    return (found[::-1] if options.get("reverse") else found)[: options.get("limit")]


@pytest.mark.parametrize("options", [
    {}, {"start": b"key010", "end": b"key020"}, {"prefix": b"key04"}, {"reverse": True}, {"limit": 0}, {"limit": 1},
    {"limit": 7, "reverse": True, "prefix": b"key"}, {"limit": 1000}, {"version": "v1"},
])  # fmt: skip
async def test_scan_follows_the_cursor(options):
    """A scan gives exactly the requested records, whatever the size of a page."""
    with FakeNode(store(RECORDS)) as node:
        async with connected(node) as (_, data):
            assert [record async for record in data.scan(**options)] == scanned(options)


async def test_a_scan_reads_one_page_ahead():
    """The first record of a page makes the scan request the next page, pinned to the version, and no more."""
    asked = []

    def pages(connection: Connection) -> None:
        while (request := connection.next_request()) is not None:
            asked.append(request[2][-1])
            page = len(asked)
            connection.answer(request[0], [[[b"%d" % page, b"a"], [b"%d+" % page, b"b"]], b"%d" % page, f"v{page}"])

    with FakeNode(pages) as node:
        async with connected(node) as (client, data):
            scan = data.scan()
            assert asked == []
            assert await scan.__anext__() == (b"1", b"a")
            while len(asked) < 2:
                await trio.sleep(0.001)
            assert await scan.__anext__() == (b"1+", b"b")
            assert asked == ["geo", {"cursor": b"1", "version": "v1"}]
            async for key, _ in scan:
                if key == b"3":
                    break
            await scan.aclose()
            with pytest.raises(StopAsyncIteration):
                await scan.__anext__()
            assert client._dispatcher._deadlines.next == float("inf")


async def test_a_scan_that_is_left_early_leaves_nothing():
    """After a `break` no task, request or warning remains."""
    with FakeNode(store(RECORDS)) as node:
        async with connected(node) as (client, data):
            await client.ping()
            before = trio.lowlevel.current_statistics().tasks_living
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                async for _ in data.scan():
                    break
                gc.collect()
            assert trio.lowlevel.current_statistics().tasks_living == before
            async with data.scan() as scan:
                await scan.__anext__()
            await client.ping()
            assert client._dispatcher.link.session.in_flight == 0
        assert node.accepted == 1


async def test_a_cancelled_scan_goes_on():
    """The awaited page is requested again."""
    go = threading.Event()

    def serve(connection: Connection) -> None:
        while (request := connection.next_request()) is not None:
            if go.is_set():
                connection.answer(request[0], [[[b"k", b"v"]], None, "v1"])

    with FakeNode(serve) as node:
        async with connected(node) as (_, data):
            scan = data.scan()
            with trio.move_on_after(0.02):
                await scan.__anext__()
            go.set()
            assert [record async for record in scan] == [(b"k", b"v")]


async def test_reads_inside_a_scan():
    """A task may send other requests in the loop over a scan."""
    with FakeNode(store(RECORDS)) as node:
        async with connected(node) as (_, data):
            async for key, value in data.scan():
                assert await data.get(key) == value
        assert node.accepted == 1


async def test_two_tasks_on_one_scan_never_get_the_same_page():
    """Each record is given once to either task, or a task is refused."""
    with FakeNode(store(RECORDS)) as node:
        async with connected(node) as (_, data):
            scan = data.scan()
            found, refused = [], []

            async def read() -> None:
                try:
                    async for key, _ in scan:
                        found.append(key)
                        await trio.lowlevel.checkpoint()
                except trio.BusyResourceError as error:
                    refused.append(error)

            async with trio.open_nursery() as nursery:
                nursery.start_soon(read)
                nursery.start_soon(read)
            assert sorted(found) == sorted(set(found))
            assert len(refused) <= 1
            assert found


async def test_a_scan_serves_one_task_at_a_time():
    """A second task that reads or closes the scan is refused; the first gets its page."""

    def late(connection: Connection) -> None:
        first = connection.next_request()
        second = connection.next_request()
        connection.answer(first[0], [[[b"k", b"v"]], None, "v1"])
        connection.answer(second[0], "pong")

    with FakeNode(late) as node:
        async with connected(node) as (client, data):
            scan = data.scan()
            found = []

            async def read() -> None:
                found.append(await scan.__anext__())

            async with trio.open_nursery() as nursery:
                nursery.start_soon(read)
                await trio.testing.wait_all_tasks_blocked()
                with pytest.raises(trio.BusyResourceError, match="another task"):
                    await scan.__anext__()
                with pytest.raises(trio.BusyResourceError, match="another task"):
                    await scan.aclose()
                await client.ping()
            assert found == [(b"k", b"v")]
            await scan.aclose()
