"""Cancellations, under asyncio and Trio; and what the client under asyncio does in a turn of its loop."""

from __future__ import annotations

import random
import socket
import threading
from typing import TYPE_CHECKING

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

import gossipkv
from gossipkv.errors import ProtocolError, TimedOut, Unavailable, Unknown
from tests.unit.client.virtual_node import under_asyncio, under_trio

if TYPE_CHECKING:
    from collections.abc import Callable

METHODS = ("get", "get", "get_many", "put")
# Deeds by weight.
CALM = {"ask": 30, "cancel": 12, "answer": 25, "deliver": 25, "turn": 10, "settle": 15}
STORMY = CALM | {"hang up": 1, "sleep": 3}
STEPS = 200
LARGE = bytes(1 << 19)  # More than a connection holds while the node does not read.
PIECE = 1 << 16


class Schedule:
    """The outcomes of drawn steps: each task has its own answer, an error that fits, or was cancelled."""

    def __init__(self, client, node, tasks) -> None:
        self._client, self._node, self._tasks = client, node, tasks
        self._cancels: list[Callable[[], object]] = []
        self.cancelled: set[int] = set()
        self.answers: dict[int, object] = {}
        self.errors: dict[int, Exception] = {}

    async def run(self, draw: random.Random, deeds: dict[str, int]) -> None:
        for deed in draw.choices(list(deeds), list(deeds.values()), k=STEPS):
            match deed:
                case "ask":
                    self._ask(draw.choice(METHODS))
                case "cancel" if self._cancels:
                    number = draw.randrange(max(0, len(self._cancels) - 5), len(self._cancels))
                    self.cancelled.add(number)
                    self._cancels[number]()
                case "sleep":
                    await self._tasks.sleep(draw.choice([0.02, 0.3]))
                case "turn":
                    await self._tasks.turn()
                case "settle":
                    await self._tasks.settle()
                case _:
                    self._have_node(deed, draw)
        for _ in range(20):  # The node answers all that comes; what it never got is late.
            await self._tasks.settle()
            for connection in self._node.open:
                while connection.requests:
                    connection.answer(0)
                connection.deliver()
            await self._tasks.sleep(0.2)

    def _have_node(self, deed: str, draw: random.Random) -> None:
        for connection in self._node.open:
            match deed:
                case "answer" if connection.requests:
                    connection.answer(draw.randrange(len(connection.requests)))
                case "deliver":
                    connection.deliver(draw.choice([None, None, 1, 7, 30]))
                case "hang up":
                    connection.hang_up()

    def _ask(self, method: str) -> None:
        number = len(self._cancels)
        key = b"%d" % number

        async def work() -> None:
            try:
                match method:
                    case "get":
                        answer = await self._client.dataset("geo").get(key)
                    case "get_many":
                        answer = await self._client.dataset("geo").get_many([key, b"and " + key])
                    case _:
                        answer = await self._client.call("put", "geo", key, b"value")
            except (ProtocolError, TimedOut, Unavailable, Unknown) as error:
                self.errors[number] = error
            else:
                self.answers[number] = answer

        self._cancels.append(self._tasks.start(work))

    def check(self) -> None:
        for number in range(len(self._cancels)):
            key = b"%d" % number
            assert self.answers.get(number, key) in (key, [key, b"and " + key])
            assert not isinstance(self.errors.get(number), ProtocolError)
            outcomes = (number in self.answers) + (number in self.errors)
            assert outcomes == 1 or (outcomes == 0 and number in self.cancelled)


@pytest.mark.parametrize("deeds", [CALM, STORMY], ids=["calm", "stormy"])
@pytest.mark.parametrize("run", [under_asyncio, under_trio])
@given(seed=st.integers(0, 1 << 32))
def test_no_cancellation_gives_a_task_the_answer_of_another(run, deeds, seed):
    """Answers come in drawn order and pieces, tasks are cancelled, connections break and deadlines pass.

    While no connection breaks and no deadline passes, each task that is not cancelled has its answer.
    """

    async def main(client, node, tasks) -> None:
        schedule = Schedule(client, node, tasks)
        await schedule.run(random.Random(seed), deeds)
        schedule.check()
        if deeds is CALM:
            assert (schedule.errors, len(node.connections)) == ({}, 1)

    run(main)


@pytest.mark.parametrize("run", [under_asyncio, under_trio])
def test_cancelled_while_its_bytes_are_half_written(run):
    """The rest of a cancelled request is sent, so that the stream stays valid."""

    async def main(client, node, tasks) -> None:
        data, (connection,) = client.dataset("geo"), node.connections
        with connection.stopped():
            cancel = tasks.start(lambda: data.get(LARGE))
            await tasks.settle()
            cancel()
            await tasks.settle()
            assert not connection.requests
        found = []
        tasks.start(lambda: gathering(data.get(b"next"), found))
        for _ in range(4):
            await tasks.settle()
        assert [params[-1] for _, _, params in connection.requests] == [LARGE, 0, b"next"]
        await answer_in_pieces(connection, tasks)
        assert (found, node.connections) == ([b"next"], [connection])

    run(main)


@pytest.mark.parametrize("run", [under_asyncio, under_trio])
def test_what_was_not_sent_is_sent_elsewhere(run):
    """A write without a sent byte is not unknown when the connection breaks."""

    async def main(client, node, tasks) -> None:
        found, (connection,) = [], node.connections
        with connection.stopped():
            tasks.start(lambda: gathering(client.dataset("geo").get(LARGE), found))
            await tasks.settle()
            tasks.start(lambda: gathering(client.call("put", "geo", b"k", b"v"), found))
            await tasks.settle()
            connection.hang_up()
        for _ in range(4):
            await tasks.settle()
        (other,) = node.open
        assert [(method, params[1]) for _, method, params in other.requests] == [("get", LARGE), ("put", b"k")]
        await answer_in_pieces(other, tasks)
        assert sorted(found) == [LARGE, b"k"]

    run(main)


async def answer_in_pieces(connection, tasks) -> None:
    while connection.requests:
        connection.answer(0)
    for _ in range(len(LARGE) // PIECE + 1):
        connection.deliver(PIECE)
        await tasks.settle()


async def gathering(asking, found: list[object]) -> None:
    found.append(await asking)


@pytest.fixture
def hanging_names(monkeypatch):
    """Let the name service hang until the end of the test."""

    def hang(host, *arguments, **named):
        if named.get("flags", 0) & socket.AI_NUMERICHOST:
            raise socket.gaierror(socket.EAI_NONAME, "a name")
        goes_on.wait()
        return []

    goes_on = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", hang)
    yield
    goes_on.set()


HANGING = pytest.raises(Unavailable, match=r"name\.example:1: .*in time")


def test_a_name_service_that_hangs_takes_the_time_of_the_client_only(hanging_names):
    """Neither the client nor the end of the loop waits for the service."""
    with HANGING:
        under_asyncio(None, ["name.example:1"])


async def test_a_name_service_that_hangs_under_trio(hanging_names, autojump_clock):
    began = trio.current_time()
    with HANGING:
        async with gossipkv.connect("name.example:1", timeout_ms=500):
            pytest.fail("entered")
    assert 0.4 < trio.current_time() - began <= 0.5


def test_answers_that_have_come_count_after_the_loop_was_busy():
    """A task that computes for longer than the deadline does not lose answers that are here."""

    async def main(client, node, tasks) -> None:
        found, (connection,) = [], node.connections
        tasks.start(lambda: gathering(client.dataset("geo").get(b"k", timeout_ms=100), found))
        await tasks.settle()
        tasks.compute(0.3)
        connection.answer(0)
        connection.deliver()
        await tasks.settle()
        assert found == [b"k"]

    under_asyncio(main)


def test_requests_of_one_turn_leave_in_one_write():
    """A lone request leaves at once, in the turn in which it is asked."""

    async def main(client, node, tasks) -> None:
        data, writes = client.dataset("geo"), node.connections[0].writes
        for _ in range(2):
            tasks.start(lambda: data.get(b"lone"))
            await tasks.turn()
            assert len(writes) == 1
            answer_all(node)
            await tasks.settle()
            for number in range(100):
                tasks.start(lambda number=number: data.get(b"%d" % number))
            await tasks.settle()
            assert len(writes) in (2, 3)  # The first of many may be taken for a lone one.
            assert len(node.connections[0].requests) == 100
            answer_all(node)
            await tasks.settle()
            for number in range(3):  # A connection that was busy is quiet again after one answer.
                tasks.start(lambda number=number: data.get(b"%d" % number))
                await tasks.settle()
                answer_all(node)
                await tasks.settle()
            writes.clear()

    def answer_all(node) -> None:
        (connection,) = node.connections
        while connection.requests:
            connection.answer(0)
        connection.deliver()

    under_asyncio(main)
