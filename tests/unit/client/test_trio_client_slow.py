"""The Trio client against nodes that answer, lie, stall and die."""

from __future__ import annotations

import contextlib
import os
import threading
from typing import TYPE_CHECKING

import pytest
import trio
import trio.testing

import gossipkv
from gossipkv.errors import BadRequest, NotReady, ProtocolError, TimedOut, Unavailable, Unknown
from tests.unit.client.behaviours import (
    GARBAGE,
    RECORDS,
    hang_up,
    hang_up_amid_an_answer,
    hang_up_on_request,
    one_answer,
    refused_address,
    silent,
    twice,
)
from tests.unit.client.fake_node import Connection, FakeNode, store
from tests.unit.client.under_trio import connected

if TYPE_CHECKING:
    from gossipkv.client import trio_client


class Gate:
    """A behaviour that answers in order once it is opened."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.asked: list[tuple[int, str, list[object]]] = []

    def __call__(self, connection: Connection) -> None:
        while (request := connection.next_request()) is not None:
            self.asked.append(request)
            assert self.open.wait(30)
            message_id, _, params = request
            connection.answer(message_id, [params[1], "v1"])

    async def wait_for_request(self) -> None:
        while not self.asked:
            await trio.sleep(0.001)


async def test_reads():
    """Keys may be bytes or text; absent and empty values differ."""
    with FakeNode(store(RECORDS)) as node:
        async with connected(node) as (client, data):
            assert await data.get(b"key001") == await data.get("key001") == b"value 1"
            assert await data.get(b"nope") is None
            assert await data.get(b"") == b""
            assert await data.get_with_version(b"\xff\x00") == (b"\x00", "v1")
            assert await data.get_many([b"key002", "nope", ""]) == [b"value 2", None, b""]
            assert await data.get_many([]) == []
            assert await data.get_many_with_version(iter([b"key002"]), version="v1") == ([b"value 2"], "v1")
            await client.ping()
            assert str(client.address) == node.address
            assert node.address in repr(data)
        assert node.accepted == 1


async def test_hundreds_of_tasks_share_one_connection():
    """Each task gets its own values, whatever the order of the answers."""
    keys = [key for key in RECORDS if key]

    def shuffled(connection: Connection) -> None:
        held = []
        count = 0
        while (request := connection.next_request()) is not None:
            held.append(request)
            count += 1
            if len(held) == 50 or count > 2000:  # Towards the end fewer than fifty requests remain.
                for message_id, _, params in reversed(held):
                    connection.answer(message_id, [RECORDS[params[1]], "v1"])
                held.clear()

    async def reader(data: trio_client.Dataset, number: int) -> None:
        for step in range(10):
            key = keys[(number * 7 + step) % len(keys)]
            assert await data.get(key) == RECORDS[key]

    with FakeNode(shuffled) as node:
        async with connected(node) as (_, data), trio.open_nursery() as nursery:
            for number in range(300):
                nursery.start_soon(reader, data, number)
        assert node.accepted == 1


async def test_a_cancelled_request_leaves_the_connection_usable():
    """A cancelled task wakes at once; the late answer is dropped."""
    gate = Gate()
    with FakeNode(gate) as node:
        async with connected(node) as (_, data):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(data.get, b"cancelled")
                await gate.wait_for_request()
                nursery.cancel_scope.cancel()
            gate.open.set()
            assert await data.get(b"next") == b"next"
            with trio.move_on_after(0):
                await data.get(b"never awaited")
            assert await data.get(b"last") == b"last"
        assert node.accepted == 1
    assert [params[1] for _, _, params in gate.asked] == [b"cancelled", b"next", b"never awaited", b"last"]


@pytest.mark.parametrize("timeout_ms", [50, None])
async def test_deadlines(autojump_clock, timeout_ms):
    """Silence is `TimedOut` at the request's or the client's time limit."""
    with FakeNode(silent) as node:
        async with connected(node, timeout_ms=60) as (_, data):
            for _ in range(3):
                with pytest.raises(TimedOut, match=f"{node.address} did not answer get in time"):
                    await data.get(b"k", timeout_ms=timeout_ms)


async def test_each_request_has_its_own_deadline(autojump_clock):
    """A later request with less time ends before an earlier one."""
    order = []

    async def ask(data: trio_client.Dataset, timeout_ms: int) -> None:
        with pytest.raises(TimedOut):
            await data.get(b"k", timeout_ms=timeout_ms)
        order.append(timeout_ms)

    with FakeNode(silent) as node:
        async with connected(node) as (_, data), trio.open_nursery() as nursery:
            for timeout_ms in (600, 200, 400):
                nursery.start_soon(ask, data, timeout_ms)
        assert order == [200, 400, 600]


async def test_a_scope_of_trio_is_a_deadline_too():
    """`move_on_after` ends a request, and the client stays usable."""
    with FakeNode(silent) as frozen:
        async with connected(frozen) as (client, data):
            with trio.move_on_after(0.02) as scope:
                await data.get(b"k")
            assert scope.cancelled_caught
            assert client.address is not None


async def test_a_frozen_node_is_left_even_by_callers_who_cancel():
    """A node that is silent until a cancelled request's deadline is left."""
    with FakeNode(silent) as frozen, FakeNode(store(RECORDS)) as living:
        async with connected(frozen, living) as (client, data):

            async def ask() -> None:
                with contextlib.suppress(TimedOut):  # On a busy machine the cancellation may come too late.
                    await data.get(b"key001", timeout_ms=200)

            async with trio.open_nursery() as nursery:
                nursery.start_soon(ask)
                await trio.testing.wait_all_tasks_blocked()
                nursery.cancel_scope.cancel()
            while client.address is not None:
                await trio.sleep(0.001)
            assert await data.get(b"key001") == b"value 1"
        assert frozen.accepted == living.accepted == 1


async def test_silence_moves_the_others():
    """When a request finds the node silent, those with more time move to the next address at once."""
    with FakeNode(silent) as frozen, FakeNode(store(RECORDS)) as living:
        async with connected(frozen, living) as (_, data), trio.open_nursery() as nursery:

            async def patient() -> None:
                assert await data.get(b"key001") == b"value 1"

            nursery.start_soon(patient)
            await trio.testing.wait_all_tasks_blocked()
            with pytest.raises(TimedOut):
                await data.get(b"k", timeout_ms=20)
        assert frozen.accepted == living.accepted == 1


@pytest.mark.parametrize("first", [hang_up, hang_up_on_request, hang_up_amid_an_answer])
async def test_a_broken_connection_is_repeated_elsewhere(first):
    """Reads in flight at a dying node are answered by the next address."""
    with FakeNode(first) as dying, FakeNode(store(RECORDS)) as living:
        async with connected(dying, living) as (client, data), trio.open_nursery() as nursery:

            async def ask(key: bytes) -> None:
                assert await data.get(key) == RECORDS[key]

            for key in RECORDS:
                nursery.start_soon(ask, key)
        assert (dying.accepted, living.accepted) == (1, 1)
        assert client.address is None


async def test_a_drained_connection_is_repeated_elsewhere():
    """Answers before the end of the stream count; the other requests go to the next address."""

    def drains(connection: Connection) -> None:
        requests = [connection.next_request() for _ in range(20)]
        for message_id, _, params in requests[::2]:
            connection.answer(message_id, [b"old " + params[1], "v1"])

    def takes_over(connection: Connection) -> None:
        while (request := connection.next_request()) is not None:
            connection.answer(request[0], [b"new " + request[2][1], "v1"])

    found = {}
    with FakeNode(drains) as dying, FakeNode(takes_over) as living:
        async with connected(dying, living) as (_, data), trio.open_nursery() as nursery:

            async def ask(number: int) -> None:
                found[number] = await data.get(b"%d" % number)

            for number in range(20):
                nursery.start_soon(ask, number)
    assert sorted(value.split()[0] for value in found.values()) == [b"new"] * 10 + [b"old"] * 10
    assert all(value.split()[1] == b"%d" % number for number, value in found.items())


async def test_an_idle_connection_that_was_closed_is_dialled_again():
    with FakeNode(one_answer) as node:
        async with connected(node) as (client, data):
            for _ in range(3):
                assert await data.get("k") == b"v"
                while client.address is not None:
                    await trio.sleep(0.001)
        assert node.accepted == 3


async def test_a_node_that_comes_back_is_found():
    """Requests wait within their time while the node is down, and are answered once it is back."""
    # The address belongs to this process: on a shared one, a parallel test could take the free port.
    host = f"127.3.{os.getpid() >> 8 & 255}.{os.getpid() & 255 or 1}"
    async with trio.open_nursery() as nursery:
        with FakeNode(store(RECORDS), host=host) as node:
            client = await stay_connected(nursery, node)
        with pytest.raises(Unavailable, match=f"{node.address}: "):
            await client.dataset("geo").get("key001")
        waiting = []

        async def wait() -> None:
            waiting.append(await client.dataset("geo").get("key001"))

        with FakeNode(store(RECORDS), host=host, port=node.port):
            nursery.start_soon(wait)  # This request arrives during the pause.
            assert await client.dataset("geo").get("key002") == b"value 2"
            while not waiting:
                await trio.sleep(0.001)
        nursery.cancel_scope.cancel()
    assert waiting == [b"value 1"]


async def stay_connected(nursery: trio.Nursery, node: FakeNode) -> trio_client.Client:
    """Return a client that stays until the nursery is cancelled."""

    async def stay(task_status) -> None:
        async with connected(node) as (client, _):
            task_status.started(client)
            await trio.sleep_forever()

    return await nursery.start(stay)


async def test_a_node_that_always_hangs_up_is_given_up():
    """A connection without an answer counts against its address."""
    with FakeNode(hang_up_on_request) as node:
        async with connected(node) as (_, data):
            with pytest.raises(Unavailable, match="closed the connection") as caught:
                await data.get("k")
            assert set(caught.value.details) == {node.address}


async def test_a_request_that_kills_each_node_ends():
    """A node that dies of a request is tried twice."""

    def poisoned(connection: Connection) -> None:
        while (request := connection.next_request()) is not None:
            if request[2] and request[2][1] == b"poison":
                return
            connection.answer(request[0], "pong")

    with FakeNode(poisoned) as node:
        async with connected(node) as (client, data):

            async def keep_proven() -> None:
                while True:
                    with contextlib.suppress(Unavailable):  # The ping may be lost with the other request.
                        await client.ping()

            async with trio.open_nursery() as nursery:
                nursery.start_soon(keep_proven)
                with pytest.raises(Unavailable):
                    await data.get(b"poison")
                nursery.cancel_scope.cancel()


async def test_what_may_not_be_repeated_is_not():
    """A possible write is not sent twice, and is `Unknown` however the connection ended."""
    for first in (hang_up_on_request, hang_up_amid_an_answer, silent):
        with FakeNode(first) as dying, FakeNode(store(RECORDS)) as living:
            async with connected(dying, living) as (client, data):
                with pytest.raises(Unknown, match="may or may not have been done") as caught:
                    await client.call("put", "t", b"k", b"v", timeout_ms=100)
                assert caught.value.details == {"address": dying.address}
                assert living.accepted == 0
                assert await data.get("key001") == b"value 1"


async def test_a_node_that_stops_reading_bounds_the_client():
    """Unsent bytes stay below the bound plus one request; tasks wait in order."""
    read_on = threading.Event()

    def stops_reading(connection: Connection) -> None:
        assert read_on.wait(30)
        while (request := connection.next_request()) is not None:
            order.append(len(request[2][1]) - 60_000)
            connection.answer(request[0], [b"%d" % len(request[2][1]), "v1"])

    order = []
    with FakeNode(stops_reading) as node:
        async with connected(node) as (client, data), trio.open_nursery() as nursery:

            async def ask(number: int) -> None:
                assert await data.get(bytes(60_000 + number)) == b"%d" % (60_000 + number)

            for number in range(400):  # 24 MB in total.
                nursery.start_soon(ask, number)
                await trio.lowlevel.checkpoint()
            await trio.testing.wait_all_tasks_blocked(0.05)
            session = client._dispatcher.link.session
            assert session.is_full
            assert session.unsent_bytes <= (1 << 20) + 61_000
            assert len(client._dispatcher._main.line) + session.in_flight == 400
            read_on.set()
    assert order == list(range(400))


async def test_requests_in_flight_are_bounded():
    """Requests beyond the bound wait in line, and cancelled ones leave it."""
    gate = Gate()
    with FakeNode(gate) as node:
        async with connected(node) as (client, data):
            async with trio.open_nursery() as nursery:
                for number in range(1500):
                    nursery.start_soon(data.get, b"%d" % number)
                await trio.testing.wait_all_tasks_blocked(0.05)
                assert client._dispatcher.link.session.in_flight == 1000
                assert len(client._dispatcher._main.line) == 500
                nursery.cancel_scope.cancel()
            assert len(client._dispatcher._main.line) == 0
            assert len(client._dispatcher._deadlines) == 0
            gate.open.set()
            assert await data.get(b"after") == b"after"


@pytest.mark.parametrize("raw", GARBAGE)
async def test_garbage_is_one_clear_error(raw):
    """All requests in flight get a `ProtocolError` with the address, and the connection is closed."""

    def garbage(connection: Connection) -> None:
        connection.next_request()
        connection.raw(raw)
        connection.next_request()

    with FakeNode(garbage) as node:
        async with connected(node) as (client, data):
            async with trio.open_nursery() as nursery:

                async def ask() -> None:
                    with pytest.raises(ProtocolError, match=node.address):
                        await data.get("k")

                for _ in range(3):
                    nursery.start_soon(ask)
            assert client.address is None
            assert "not connected" in repr(client)


async def test_an_answer_that_comes_twice():
    """The first of two answers counts, and the second ends the connection; the next request dials again."""
    with FakeNode(twice) as node:
        async with connected(node) as (client, data):
            for _ in range(3):
                assert await data.get("k") == b"v"
                while client.address is not None:
                    await trio.sleep(0.001)
        assert node.accepted == 3


@pytest.mark.parametrize(("method", "result"), [
    ("get", b"v"), ("get", [1, "v1"]), ("get", ["text", "v1"]), ("get_many", [[b"v"], "v1"]), ("scan", None),
    ("ping", None), ("info", []), ("databases", [1]), ("status", "x" * 500),
])  # fmt: skip
async def test_an_answer_of_another_shape_is_a_protocol_error(method, result):
    """An answer of the wrong shape is refused, and the connection stays."""

    def odd(connection: Connection) -> None:
        while (request := connection.next_request()) is not None:
            connection.answer(request[0], result)

    with FakeNode(odd) as node:
        async with connected(node) as (client, data):
            calls = {"get": (data.get, "k"), "get_many": (data.get_many, "ab"), "scan": (data.scan().__anext__,)}
            call, *arguments = calls.get(method) or (getattr(client, method),)
            for _ in range(2):
                with pytest.raises(ProtocolError, match=f"the node answered {method} with"):
                    await call(*map(list, arguments) if method == "get_many" else arguments)
        assert node.accepted == 1


async def test_the_nodes_own_error_is_raised():
    """The error has its class, and the connection stays."""

    def busy(connection: Connection) -> None:
        while (request := connection.next_request()) is not None:
            connection.answer(request[0], None, ["NOT_READY", "building", {"progress": 0.25}])

    with FakeNode(busy) as node:
        async with connected(node) as (client, data):
            for _ in range(2):
                with pytest.raises(NotReady, match="building"):
                    await data.get("k")
            with pytest.raises(NotReady):
                await client.refresh("geo")
            with pytest.raises(NotReady):
                await data.scan().__anext__()
        assert node.accepted == 1


async def test_refused_everywhere_lists_each_address():
    """The error is raised when the client is entered."""
    addresses = [refused_address(), refused_address()]
    with pytest.raises(Unavailable) as caught:
        async with gossipkv.connect(*addresses):
            pytest.fail("entered")
    assert set(caught.value.details) == set(addresses)
    assert str(caught.value).count("refused") == 2


@pytest.mark.parametrize("host", ["no-such-host.invalid", "a" * 70 + ".b", "xn--a"])
async def test_a_name_that_nobody_knows(host):
    """A host that does not resolve is `Unavailable` with the reason."""
    with pytest.raises(Unavailable, match="no node could be reached: "):
        async with gossipkv.connect(f"{host}:7070"):
            pytest.fail("entered")


async def test_the_callers_exception_comes_out_as_it_is():
    """An exception of the block is neither wrapped in a group nor replaced by a cancellation."""
    with FakeNode(store(RECORDS)) as node:
        for is_cancelled in (False, True):
            with trio.CancelScope() as scope, pytest.raises(KeyError, match="mine"):
                await fail_in_its_block(node, scope if is_cancelled else None)


async def fail_in_its_block(node: FakeNode, scope: trio.CancelScope | None) -> None:
    """Raise an exception in the block of a client, after cancelling `scope` if given."""
    async with connected(node):
        if scope is not None:
            scope.cancel()
        raise KeyError("mine")


async def test_a_client_after_its_block():
    """A closed client answers `Unavailable`, also to tasks that wait for an answer."""
    with FakeNode(silent) as node:
        async with trio.open_nursery() as nursery:

            async def ask() -> None:
                with pytest.raises(Unavailable, match="closed"):
                    await data.get(b"k")

            async with connected(node) as (client, data):
                nursery.start_soon(ask)
                await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(Unavailable, match="closed"):
            await data.get(b"k")
        with pytest.raises(RuntimeError, match="entered only once"):
            await client.__aenter__()


async def test_wrong_use():
    """Mistakes of the caller are reported before anything is sent."""
    with FakeNode(store(RECORDS)) as node:
        async with connected(node) as (client, data):
            with pytest.raises(TypeError, match="bytes, str or int, not float"):
                await data.get(1.5)
            with pytest.raises(BadRequest, match="UTF-8"):
                await data.get("\ud800")
            with pytest.raises(BadRequest, match="UTF-8"):
                client.dataset("\ud800")
            with pytest.raises(TypeError, match="such as a list"):
                await data.get_many(b"key")
            with pytest.raises(ValueError, match="timeout_ms"):
                await data.get("k", timeout_ms=0)
            with pytest.raises(BadRequest, match="limit"):
                data.scan(limit=-1)
            with pytest.raises(BadRequest, match="cannot be encoded"):
                await client.call("get", object())
            with pytest.raises(TypeError, match="cannot be pickled"):
                client.__reduce__()
            assert await data.get("key001") == b"value 1"
        assert node.accepted == 1
    with pytest.raises(ValueError, match="at least one address"):
        gossipkv.connect()
    with pytest.raises(ValueError, match="HOST:PORT"):
        gossipkv.connect("localhost")
    with pytest.raises(RuntimeError, match="the client is not entered"):
        await gossipkv.connect("127.0.0.1:1").ping()


async def test_another_run_or_thread_is_refused():
    """A client raises outside the `trio.run` in which it was entered."""
    with FakeNode(store(RECORDS)) as node:
        async with connected(node) as (_, data):

            def elsewhere() -> None:
                with pytest.raises(RuntimeError, match="another thread"):
                    trio.run(data.get, b"key001")
                with pytest.raises(RuntimeError, match="another thread"):
                    data.get(b"key001").send(None)

            await trio.to_thread.run_sync(elsewhere)
            assert await data.get(b"key001") == b"value 1"


async def test_a_call_is_a_checkpoint():
    """A request yields to other tasks, and notices an earlier cancellation."""
    with FakeNode(store(RECORDS)) as node:
        async with connected(node) as (client, data):
            with trio.testing.assert_checkpoints():
                await data.get(b"key001")
            with trio.testing.assert_checkpoints():
                assert [record async for record in data.scan(limit=0)] == []
            with trio.CancelScope() as scope:
                scope.cancel()
                await client.call("put", "t", b"k", b"v")
            assert scope.cancelled_caught
            await client.ping()  # The fake node would have failed on the put.
