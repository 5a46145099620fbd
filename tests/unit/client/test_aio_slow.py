"""The client under asyncio, with its own loop and with uvloop, against nodes that answer, stall and die."""

from __future__ import annotations

import ast
import asyncio
import gc
import threading
import warnings

import pytest
import uvloop

import gossipkv
from gossipkv.errors import ProtocolError, TimedOut, Unavailable, Unknown
from tests.unit.client.behaviours import (
    GARBAGE,
    RECORDS,
    hang_up,
    hang_up_amid_an_answer,
    hang_up_on_request,
    refused_address,
    silent,
)
from tests.unit.client.fake_node import Connection, FakeNode, store
from tests.unit.client.test_processes_slow import run as in_process
from tests.unit.client.under_trio import LONG_MS


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
            with pytest.raises(Unavailable, match="the client is closed"):
                await client

    with FakeNode(store(RECORDS)) as node:
        run(main(node))
        assert node.accepted == 2


def test_refused_everywhere_lists_each_address(run):
    async def main() -> None:
        with pytest.raises(Unavailable, match=r"Connection refused.*; .*Connection refused"):
            await gossipkv.aio.connect(refused_address(), refused_address(), timeout_ms=LONG_MS)

    run(main())


@pytest.mark.parametrize("first", [hang_up, hang_up_on_request, hang_up_amid_an_answer])
def test_a_broken_connection_is_repeated_elsewhere(run, first):
    async def main(dying: FakeNode, living: FakeNode) -> None:
        async with connect(dying, living) as client:
            data = client.dataset("geo")
            assert await asyncio.gather(*map(data.get, RECORDS)) == list(RECORDS.values())

    with FakeNode(first) as dying, FakeNode(store(RECORDS)) as living:
        run(main(dying, living))


def test_what_may_not_be_repeated_is_unknown(run):
    async def main(dying: FakeNode, living: FakeNode) -> None:
        async with connect(dying, living) as client:
            with pytest.raises(Unknown, match="may or may not have been done"):
                await client.call("put", "t", b"k", b"v")

    with FakeNode(hang_up_on_request) as dying, FakeNode(store(RECORDS)) as living:
        run(main(dying, living))
        assert living.accepted == 0


def test_silence_is_timed_out(run):
    async def main(node: FakeNode) -> None:
        async with connect(node) as client:
            with pytest.raises(TimedOut, match="did not answer get in time"):
                await client.dataset("geo").get("k", timeout_ms=50)

    with FakeNode(silent) as node:
        run(main(node))


@pytest.mark.parametrize("raw", GARBAGE)
def test_garbage_is_one_clear_error(run, raw):
    async def main(node: FakeNode) -> None:
        async with connect(node) as client:
            with pytest.raises(ProtocolError, match=node.address):
                await client.dataset("geo").get("k")

    def lies(connection: Connection) -> None:
        connection.next_request()
        connection.raw(raw)
        connection.next_request()

    with FakeNode(lies) as node:
        run(main(node))


def test_a_node_that_stops_reading_bounds_the_client(run):
    """Bytes that the connection does not take wait in the session, and further requests in line."""

    def stops_reading(connection: Connection) -> None:
        assert goes_on.wait(30)
        while (request := connection.next_request()) is not None:
            connection.answer(request[0], [None, "v1"])

    async def main(node: FakeNode) -> None:
        async with connect(node) as client:
            data = client.dataset("geo")
            asking = [asyncio.create_task(data.get(bytes(1 << 20))) for _ in range(20)]
            await asyncio.sleep(0.05)
            link = client._dispatcher.link
            assert link.session.in_flight < 20
            assert link.session.queued_bytes - link.session.sent_bytes <= 3 << 20
            goes_on.set()
            assert set(await asyncio.gather(*asking)) == {None}

    goes_on = threading.Event()
    with FakeNode(stops_reading) as node:
        run(main(node))


# -- where a client belongs --------------------------------------------------------------------------------------------


def test_a_second_loop_and_a_closed_one_are_refused(run):
    async def open_it() -> gossipkv.aio.Client:
        return await connect(node)

    async def use(client: gossipkv.aio.Client, why: str) -> None:
        with pytest.raises(RuntimeError, match=why):
            await client.ping()
        with pytest.raises(RuntimeError, match=why):
            await client.aclose()

    with FakeNode(store(RECORDS)) as node, warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # A loop is closed under an open client.
        with asyncio.Runner() as first, asyncio.Runner() as second:
            client = first.run(open_it())
            second.run(use(client, "belongs to another thread or event loop"))
            first.run(client.ping())
        run(use(client, "the event loop of the client is closed"))
        del client
        gc.collect()


def test_another_thread_is_refused(run):
    async def main(node: FakeNode) -> None:
        async with connect(node) as client:
            with pytest.raises(RuntimeError, match="belongs to another thread or event loop"):
                await asyncio.to_thread(lambda: asyncio.run(client.ping()))
            with pytest.raises(RuntimeError, match="belongs to another thread or event loop"):
                await asyncio.to_thread(lambda: client.ping().send(None))
            await client.ping()

    with FakeNode(store(RECORDS)) as node:
        run(main(node))


def test_a_forked_child_is_refused_and_its_parent_unharmed():
    program = """
        import asyncio

        async def main():
            async with gossipkv.aio.connect(address, timeout_ms=60_000) as client:
                await client.ping()
                in_child(lambda: asyncio.run(child(client)))
                assert await client.dataset("geo").get("key001") == b"value 1"

        async def child(client):
            try:
                await client.ping()
            except RuntimeError as error:
                assert "before this process was forked" in str(error)
            else:
                raise AssertionError
            async with gossipkv.aio.connect(address, timeout_ms=60_000) as own:
                assert await own.dataset("geo").get("key001") == b"value 1"

        asyncio.run(main())
        """
    with FakeNode(store(RECORDS)) as node:
        in_process(program, node.address)
        assert node.accepted == 2


def test_a_notebook_uses_it_in_several_cells():
    """Cells with top-level `await` run one after the other in one loop, which is busy with the notebook."""
    cells = [
        "import gossipkv",
        "client = await gossipkv.aio.connect(address)\ngeo = client.dataset('geo')",
        "value = await geo.get('key001')",
        "keys = [key async for key, _ in geo.scan(prefix='key00')]",
        "await client.aclose()",
    ]

    async def notebook(names: dict[str, object]) -> None:
        for cell in cells:
            code = compile(cell, "cell", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
            if (running := eval(code, names)) is not None:
                await running
            await asyncio.sleep(0)

    with FakeNode(store(RECORDS)) as node:
        names: dict[str, object] = {"address": node.address}
        asyncio.run(notebook(names))
    assert (names["value"], len(names["keys"])) == (b"value 1", 10)


def test_importing_loads_no_event_loop():
    program = """
        assert not {"asyncio", "trio"} & set(sys.modules)
        gossipkv.aio
        assert "asyncio" in sys.modules and "trio" not in sys.modules
        """
    in_process(program, "")
