"""Several pumps over real sockets and threads: placement, common limits, and publishing at one moment."""

from __future__ import annotations

import json
import os
import select
import socket
import subprocess
import sys
import threading
from contextlib import asynccontextmanager
from subprocess import PIPE
from typing import TYPE_CHECKING

import msgpack
import pytest
import trio

from gossipkv.environment.trio_world import real
from gossipkv.serving.loop import Sockets
from gossipkv.serving.published import Published, publish
from gossipkv.serving.pumps import Pumps
from gossipkv.settings.config import Config
from gossipkv.wire import rpc
from gossipkv.wire.results import DeferredResult, Later
from tests.unit.serving.driven import make_version, one_database

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from gossipkv.serving._serving import Caller, Refusal

PATIENCE_S = 60
COUNT = 3
MIB = 1 << 20
MAX_PAGE_THREADS = 16
HALF = rpc.request(1, "m", [bytes(15 * MIB)])  # A request that is never sent completely.


class EchoingAnswers:
    """Answers with the method; `slow` waits for `go`, `later` for a callback."""

    def __init__(self) -> None:
        self.go = trio.Event()
        self.later: list[Callable[[object], object]] = []

    def answer(self, method: bytes | None, params: bytes, _caller: Caller) -> bytes | Refusal | DeferredResult | Later:
        del params
        if method == b"slow":

            async def wait() -> bytes:
                await self.go.wait()
                return b"slow"

            return DeferredResult(wait)
        if method == b"later":
            return Later(self.later.append)
        return msgpack.packb(method)

    async def complete(self, method: bytes, waiting: DeferredResult) -> bytes | Refusal:
        del method
        return msgpack.packb(await waiting.result())

    def begin(self, method: bytes, later: Later, on_answer: Callable[[bytes | Refusal], None]) -> None:
        del method
        later.begin(lambda result: on_answer(msgpack.packb(result)))


class NoPeers:
    def hear(self, events: object, replies: object) -> None:
        """Ignore all events."""


class Client:
    def __init__(self, address: tuple[str, int]) -> None:
        self.socket = socket.create_connection(address, timeout=PATIENCE_S)
        self._unpacker = msgpack.Unpacker()

    def ask(self, *requests: tuple[str, list[object]]) -> list[object]:
        """Return the results in the order of the requests."""
        self.socket.sendall(b"".join(rpc.request(at, method, params) for at, (method, params) in enumerate(requests)))
        results: dict[int, object] = {}
        while len(results) < len(requests):
            received = self.socket.recv(1 << 16)
            assert received, "closed"
            self._unpacker.feed(received)
            for _, msgid, error, result in self._unpacker:
                results[msgid] = result if error is None else error
        return [results[at] for at in range(len(requests))]

    def is_closed(self) -> bool:
        """Return True when the other end has closed the connection."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True


class Running:
    def __init__(self, count: int, directory: Path, **settings: int) -> None:
        self.pumps = Pumps(Config(data=directory, **settings), count, seed=lambda: 1, node="n1")
        listener, resp = (socket.create_server(("127.0.0.1", 0), backlog=200) for _ in range(2))
        listener.settimeout(0)
        resp.settimeout(0)
        self.address, self.resp_address = listener.getsockname(), resp.getsockname()
        self.pumps.open(Sockets, listener, resp, polls=False)
        self.answers = EchoingAnswers()
        self.clients: list[Client] = []

    async def connect(self) -> Client:
        client = await trio.to_thread.run_sync(Client, self.address)
        self.clients.append(client)
        return client

    async def ask(self, client: Client, method: str, *params: object) -> object:
        (result,) = await trio.to_thread.run_sync(lambda: client.ask((method, [*params])))
        return result

    async def hold(self, client: Client, begin: int, end: int) -> None:
        """Send a part of an incomplete request, and wait until it is held."""
        wanted = sum(self.each("held_bytes")) + end - begin
        await trio.to_thread.run_sync(client.socket.sendall, HALF[begin:end])
        while sum(self.each("held_bytes")) < wanted:
            await trio.sleep(0.001)

    def each(self, name: str) -> list[int]:
        return [counters[name] for counters in self.pumps.counters_by_loop()]


@asynccontextmanager
async def serving(directory: Path, count: int = COUNT, **settings: int) -> AsyncIterator[Running]:
    """Yield pumps that run until the block is left."""
    running = Running(count, directory, **settings)
    with trio.fail_after(PATIENCE_S):
        async with trio.open_nursery() as nursery:
            await nursery.start(running.pumps.run, real(), running.answers, [NoPeers()] * count)
            try:
                yield running
            finally:
                nursery.cancel_scope.cancel()
                for client in running.clients:
                    client.socket.close()
                running.pumps.release()


async def test_whoever_comes_is_served_by_the_pump_with_fewest(tmp_path: Path) -> None:
    """Connections are even also after those of one pump have closed; each pump answers from the core and Python."""
    async with serving(tmp_path) as running:
        running.pumps.publish(one_database(tmp_path, {b"k": b"v"}))
        clients = [await running.connect() for _ in range(2 * COUNT)]
        for client in clients:
            assert await running.ask(client, "get", "db", b"k") == [b"v", "v1"]
            assert await running.ask(client, "named") == b"named"
            assert await running.ask(client, "ping") == "pong"
        assert running.each("connections") == [2] * COUNT
        assert running.each("gets") == running.each("handed_off") == [2] * COUNT
        assert running.pumps.counters()["gets"] == 2 * COUNT
        assert running.pumps.requests_of("db", "v1") == running.pumps.reads()["db"]["requests"] == 2 * COUNT
        assert running.pumps.latency()["local"].count == 4 * COUNT
        for client in clients[1::COUNT]:
            client.socket.close()
        while sum(running.each("connections")) > 2 * COUNT - 2:
            await trio.sleep(0.01)
        lonely = running.each("connections").index(0)
        for wanted in (1, 2):
            assert await running.ask(await running.connect(), "ping") == "pong"
            assert running.each("connections")[lonely] == wanted


async def test_each_pump_speaks_resp_to_whoever_came_for_that(tmp_path: Path) -> None:
    async with serving(tmp_path) as running:
        running.pumps.publish(one_database(tmp_path, {b"k": b"v"}))
        for _ in range(COUNT):
            client = await trio.to_thread.run_sync(socket.create_connection, running.resp_address, PATIENCE_S)
            client.sendall(b"GET db:k\r\nPING\r\n")
            received = b""
            while len(received) < 14:
                received += await trio.to_thread.run_sync(client.recv, 100)
            assert received == b"$1\r\nv\r\n+PONG\r\n"
            running.clients.append(Client(running.address))
            client.close()
            assert await running.ask(running.clients[-1], "get", "db", b"k") == [b"v", "v1"]
        assert sum(running.each("gets")) == 2 * COUNT
        assert min(running.each("gets")) > 0


@pytest.mark.parametrize(("most", "of_address"), [(7, 0), (100, 7)])
async def test_limits_hold_for_all_pumps_together(tmp_path: Path, most: int, of_address: int) -> None:
    """The limit of connections is exact; a free place is used whichever pump had it."""
    async with serving(tmp_path, max_connections=most, max_connections_per_address=of_address) as running:
        clients = []
        for _ in range(7):
            clients.append(await running.connect())
            assert await running.ask(clients[-1], "ping") == "pong"
        for _ in range(3):
            assert await trio.to_thread.run_sync((await running.connect()).is_closed)
        counters = running.pumps.counters()
        assert counters["connections_refused" + ("_by_address" if of_address else "")] == 3
        clients[4].socket.close()
        while sum(running.each("connections")) > 6:
            await trio.sleep(0.01)
        assert await running.ask(await running.connect(), "ping") == "pong"
        assert await trio.to_thread.run_sync((await running.connect()).is_closed)


async def test_requests_in_flight_are_counted_together(tmp_path: Path) -> None:
    """One more request than `max_in_flight_total` is refused at every pump until one is answered."""
    async with serving(tmp_path, max_in_flight_total=1024) as running:
        clients = [await running.connect() for _ in range(2 * COUNT)]
        slow = [("later", [])] * (1024 // len(clients))
        left = 1024 - len(slow) * len(clients)
        for client in clients:
            client.socket.sendall(b"".join(rpc.request(100 + at, "later", []) for at in range(len(slow))))
        for at in range(left):
            clients[0].socket.sendall(rpc.request(50 + at, "later", []))
        while sum(running.each("in_flight")) < 1024:
            await trio.sleep(0.01)
        for client in clients:
            (code, *_) = await running.ask(client, "named")
            assert code == "OVERLOADED"
        assert running.pumps.counters()["overloaded"] == 2 * COUNT
        while len(running.answers.later) < 1024:
            await trio.sleep(0.01)
        for answer in running.answers.later:
            answer(b"done")
        while sum(running.each("in_flight")) > 0:
            await trio.sleep(0.01)


async def test_what_is_held_is_held_for_all_pumps(tmp_path: Path) -> None:
    """One pump may hold all but the other's block; one more byte closes, and free blocks are lent again."""
    block, most = MIB, 7 * MIB
    async with serving(tmp_path, 2, max_queued_total=8 * MIB) as running:
        one, other, third = [await running.connect() for _ in range(3)]
        for client in (one, other, third):
            assert await running.ask(client, "ping") == "pong"
        await running.hold(one, 0, most)
        await running.hold(other, 0, block)
        assert running.each("held_bytes") == [most, block]
        assert running.pumps.counters()["closed_memory"] == 0
        for client in (other, one):
            client.socket.sendall(b"x")
            assert await trio.to_thread.run_sync(client.is_closed)
        while any(running.each("held_bytes")):
            await trio.sleep(0.001)
        fourth = await running.connect()
        assert await running.ask(fourth, "ping") == "pong"
        await running.hold(fourth, 0, most)
        await running.hold(third, 0, block)
        assert running.each("held_bytes") == [block, most]
        assert running.pumps.counters()["closed_memory"] == 2


async def test_what_takes_time_is_answered_at_its_pump(tmp_path: Path) -> None:
    """Tasks and callbacks answer at the request's pump; a closed client gets nothing."""
    async with serving(tmp_path) as running:
        clients = [await running.connect() for _ in range(2 * COUNT)]
        for client in clients:
            client.socket.sendall(rpc.request(7, "slow", []) + rpc.request(8, "later", []))
        while len(running.answers.later) < len(clients):
            await trio.sleep(0.01)
        clients[-1].socket.close()
        running.answers.go.set()
        for answer in running.answers.later:
            answer(b"later")
        for client in clients[:-1]:
            answers = msgpack.Unpacker()
            got: dict[int, object] = {}
            while len(got) < 2:
                answers.feed(await trio.to_thread.run_sync(client.socket.recv, 1 << 16))
                got |= {msgid: result for _, msgid, _, result in answers}
            assert got == {7: b"slow", 8: b"later"}


def generation(directory: Path, number: int) -> Published:
    """Return the database with the active version `number`."""
    name = f"v{number:06}"
    return publish([(make_version(directory, "db", name, {b"k": name.encode()}), True)])


def begin_looking(port: int) -> subprocess.Popen[str]:
    """Start a client in a process of its own."""
    command = [sys.executable, "-m", "tests.unit.serving.looking", str(port)]
    return subprocess.Popen(command, stdin=PIPE, stdout=PIPE, text=True)


async def test_nobody_steps_back_over_any_connection(tmp_path: Path) -> None:
    """Clients that ask all pumps in turn see no older version after a newer one."""
    async with serving(tmp_path) as running:
        running.pumps.publish(generation(tmp_path, 0))
        lookers = [begin_looking(running.address[1]) for _ in range(2)]
        for looker in lookers:
            assert await trio.to_thread.run_sync(looker.stdout.readline) == "begun\n"
        for number in range(1, 101):
            running.pumps.publish(generation(tmp_path, number))
            await trio.sleep(0.002)
        for looker in lookers:
            said, _ = await trio.to_thread.run_sync(looker.communicate, "\n")
            looks, wrong = json.loads(said)
            assert looks
            assert wrong == []


async def test_a_generation_is_published_at_one_moment(tmp_path: Path) -> None:
    """No pump serves a generation while another cannot take it."""
    async with serving(tmp_path) as running:
        running.pumps.publish(generation(tmp_path, 1))
        clients = [await running.connect() for _ in range(COUNT)]
        for client in clients:
            assert await running.ask(client, "get", "db", b"k") == [b"v000001", "v000001"]
        held, early, newer = threading.Event(), [], generation(tmp_path, 2)

        def hold() -> None:
            with running.pumps._locks[COUNT - 1]:
                held.set()
                for _ in range(20):  # The loop lasts until the publisher waits, and longer.
                    for client in clients[: COUNT - 1]:
                        client.socket.sendall(rpc.request(0, "get", ["db", b"k"]))
                    came = select.select([client.socket for client in clients], [], [], 0.01)[0]
                    early.extend(each.recv(1 << 16) for each in came)

        holder = threading.Thread(target=hold)
        holder.start()
        held.wait()
        running.pumps.publish(newer)
        holder.join()
        assert not any(b"v000002" in answer for answer in early)
        for client in [await running.connect() for _ in range(COUNT)]:
            assert await running.ask(client, "get", "db", b"k") == [b"v000002", "v000002"]


async def test_files_of_what_is_served_no_longer_are_let_go(tmp_path: Path) -> None:
    """The files can be closed once no pump reads them."""
    async with serving(tmp_path) as running:
        held = make_version(tmp_path, "db", "v1", {b"k": b"v"})
        running.pumps.publish(publish([(held, True)]))
        clients = [await running.connect() for _ in range(COUNT)]
        for client in clients:
            assert await running.ask(client, "get", "db", b"k") == [b"v", "v1"]
        (file,) = held.files
        assert file is not None
        with pytest.raises(BufferError):
            file.close()
        running.pumps.publish(Published())
        file.close()


async def test_pages_come_back_to_the_pump_that_has_asked(tmp_path: Path) -> None:
    """A bounded number of threads reads from the disk for all pumps, and every answer is correct."""
    records = {b"k%04d" % number: b"%04d" % number * 500 for number in range(600)}
    cold = [("get", ["db", key]) for key in records]
    async with serving(tmp_path) as running:
        version = make_version(tmp_path, "db", "v1", records)
        (file,) = version.files
        assert file is not None
        clients = [await running.connect() for _ in range(COUNT)]
        for client in clients:
            assert await running.ask(client, "ping") == "pong"
        threads = len(os.listdir("/proc/self/task"))

        async def read(client: Client) -> None:
            found = await trio.to_thread.run_sync(client.ask, *cold)
            assert found == [[value, "v1"] for value in records.values()]

        for _ in range(6):
            file.set_paged(False)
            file.set_paged(True)  # This drops cached pages.
            running.pumps.publish(publish([(version, True)]))
            async with trio.open_nursery() as nursery:
                for client in clients:
                    nursery.start_soon(read, client)
        assert min(running.each("cold_pages")) > 50
        assert sum(running.each("in_flight")) == sum(running.each("held_bytes")) == 0
        # Each asking client is a thread as well.
        assert len(os.listdir("/proc/self/task")) <= threads + MAX_PAGE_THREADS + COUNT


async def test_drain_answers_what_was_asked_at_all_pumps(tmp_path: Path) -> None:
    """A drain accepts no new connections."""
    async with serving(tmp_path) as running:
        clients = [await running.connect() for _ in range(2 * COUNT)]
        for client in clients:
            client.socket.sendall(rpc.request(7, "slow", []))
        while sum(running.each("in_flight")) < len(clients):
            await trio.sleep(0.01)
        async with trio.open_nursery() as nursery:
            done: list[bool] = []

            async def drain() -> None:
                done.append(await running.pumps.drain(PATIENCE_S))

            nursery.start_soon(drain)
            await trio.sleep(0.05)
            with pytest.raises(ConnectionRefusedError):
                await running.connect()
            running.answers.go.set()
            for client in clients:
                received = await trio.to_thread.run_sync(client.socket.recv, 1 << 16)
                assert msgpack.unpackb(received) == [1, 7, None, b"slow"]
                assert await trio.to_thread.run_sync(client.is_closed)
        assert done == [True]


async def test_cancelling_closes_everything(tmp_path: Path) -> None:
    """Requests in flight do not keep connections open."""
    async with serving(tmp_path) as running:
        clients = [await running.connect() for _ in range(2 * COUNT)]
        for client in clients:
            assert await running.ask(client, "ping") == "pong"
            client.socket.sendall(rpc.request(7, "slow", []))
        kept, running.clients = running.clients, []
    for client in kept:
        assert client.is_closed()
        client.socket.close()


async def test_each_pump_passes_rounds(tmp_path: Path) -> None:
    async with serving(tmp_path) as running:
        for _ in range(20):
            await running.pumps.pass_round()
