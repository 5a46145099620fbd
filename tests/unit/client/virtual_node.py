"""A node without sockets and clocks, and the clients under asyncio and Trio that ask it in virtual time."""

from __future__ import annotations

import asyncio
import selectors
import socket
from contextlib import contextmanager
from typing import TYPE_CHECKING

import msgpack
import trio
import trio.testing

from gossipkv.client import aio, trio_client
from gossipkv.client.link import Opening

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Generator, Sequence

ADDRESSES = ("127.0.0.1:1", "127.0.0.1:2")


class Connection:
    """The node's end: requests that are not answered yet, and bytes that are not delivered yet."""

    def __init__(
        self, deliver: Callable[[bytes], None], hang_up: Callable[[], None], go_on: Callable[[], None] = lambda: None
    ) -> None:
        self._deliver, self._hang_up, self._go_on = deliver, hang_up, go_on
        self.is_reading = True
        self._unpacker = msgpack.Unpacker(max_buffer_size=1 << 30)
        self._output = b""
        self.writes: list[bytes] = []  # Bytes as they came, each by one system call.
        self.requests: list[tuple[int, str, list[object]]] = []
        self.is_open = True

    def feed(self, data: bytes) -> None:
        self.writes.append(data)
        self._unpacker.feed(data)
        self.requests += [(message_id, method, params) for _, message_id, method, params in self._unpacker]

    @contextmanager
    def stopped(self) -> Generator[None]:
        """Read nothing meanwhile."""
        self.is_reading = False
        yield
        self.is_reading = True
        self._go_on()

    def answer(self, index: int) -> None:
        """Answer a request with its own keys."""
        message_id, method, params = self.requests.pop(index)
        result = {
            "get": lambda: [params[1], "v1"],
            "get_many": lambda: [params[1], "v1"],
            "put": lambda: params[1],
            "ping": lambda: "pong",
            "members": list,
            "cancel": lambda: None,
        }[method]()
        self._output += msgpack.packb([1, message_id, None, result])

    def deliver(self, size: int | None = None) -> None:
        size = len(self._output) if size is None else size
        data, self._output = self._output[:size], self._output[size:]
        if data and self.is_open:
            self._deliver(data)

    def hang_up(self) -> None:
        if self.is_open:
            self.is_open = False
            self._hang_up()


class Node:
    """All connections that were made, the last one at the end."""

    def __init__(self) -> None:
        self.connections: list[Connection] = []

    @property
    def open(self) -> list[Connection]:
        return [connection for connection in self.connections if connection.is_open]


class _Transport(asyncio.Transport):
    def __init__(self, loop: VirtualLoop, protocol: asyncio.BufferedProtocol, node: Node) -> None:
        super().__init__()
        self._loop, self._protocol = loop, protocol
        self._rest = b""
        self.connection = Connection(self._deliver, self._hang_up, self._go_on)
        node.connections.append(self.connection)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        assert high == 0

    def write(self, data: bytes) -> None:
        if not data or not self.connection.is_open:
            return
        if self.connection.is_reading:
            self.connection.feed(data)
        else:
            self._rest += data
            self._protocol.pause_writing()

    def _go_on(self) -> None:
        if self._rest and self.connection.is_open:
            rest, self._rest = self._rest, b""
            self.connection.feed(rest)
            self._protocol.resume_writing()

    def get_write_buffer_size(self) -> int:
        return len(self._rest)

    def close(self) -> None:
        self.connection.is_open = False

    abort = close

    def _deliver(self, data: bytes) -> None:
        self._loop.call_soon(self._take, data)

    def _take(self, data: bytes) -> None:
        while data and self.connection.is_open:
            place = self._protocol.get_buffer(-1)
            size = min(len(data), len(place))
            place[:size] = data[:size]
            self._protocol.buffer_updated(size)
            data = data[size:]

    def _hang_up(self) -> None:
        self._loop.call_soon(self._protocol.eof_received)
        self._loop.call_soon(self._protocol.connection_lost, None)


class _NoWait(selectors.SelectSelector):
    """A selector under which time passes at once."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[object]:
        assert timeout is not None, "nothing will ever happen"
        self.now += timeout
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop with virtual time, which reaches nothing but a node."""

    def __init__(self, node: Node) -> None:
        self._clock = _NoWait()
        super().__init__(self._clock)
        self._node = node

    def time(self) -> float:
        return self._clock.now

    async def sock_connect(self, sock: socket.socket, address: object) -> None:
        await asyncio.sleep(0)

    async def create_connection(
        self, factory: Callable[[], asyncio.BufferedProtocol], *, sock: socket.socket
    ) -> object:
        sock.close()
        protocol = factory()
        transport = _Transport(self, protocol, self._node)
        self.call_soon(protocol.connection_made, transport)
        await asyncio.sleep(0)
        return transport, protocol


class UnderAsyncio:
    """Tasks of asyncio, and time."""

    def __init__(self) -> None:
        self._tasks: list[asyncio.Task[None]] = []

    def start(self, work: Callable[[], Coroutine[object, object, None]]) -> Callable[[], object]:
        """Start a task; return what cancels it."""
        self._tasks.append(asyncio.create_task(work()))
        return self._tasks[-1].cancel

    async def turn(self) -> None:
        """Let all that can go on do so for a while."""
        await asyncio.sleep(0)

    def compute(self, seconds: float) -> None:
        """Take time without a turn of the loop."""
        asyncio.get_running_loop()._clock.now += seconds

    async def settle(self) -> None:
        for _ in range(12):
            await asyncio.sleep(0)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        await self.settle()

    async def end(self) -> None:
        await asyncio.gather(*self._tasks, return_exceptions=True)


class UnderTrio:
    """Tasks of Trio, and time."""

    def __init__(self, node: Node, nursery: trio.Nursery, clock: trio.testing.MockClock) -> None:
        self._node, self._nursery, self._clock = node, nursery, clock
        self._ends: list[tuple[socket.socket, Connection]] = []

    def start(self, work: Callable[[], Awaitable[None]]) -> Callable[[], object]:
        scope = trio.CancelScope()

        async def run() -> None:
            with scope:
                await work()

        self._nursery.start_soon(run)
        return scope.cancel

    async def dial(self, *_: object) -> tuple[socket.socket, Opening]:
        ours, theirs = socket.socketpair()
        theirs.settimeout(0)
        connection = Connection(theirs.sendall, theirs.close)
        self._ends.append((theirs, connection))
        self._node.connections.append(connection)
        return ours, Opening()

    async def turn(self) -> None:
        await trio.lowlevel.checkpoint()
        self._read()

    async def settle(self) -> None:
        for _ in range(4):
            await trio.testing.wait_all_tasks_blocked()
            self._read()

    async def sleep(self, seconds: float) -> None:
        self._clock.jump(seconds)
        await self.settle()

    async def end(self) -> None:
        await self.settle()

    def _read(self) -> None:
        for theirs, connection in self._ends:
            while connection.is_open and connection.is_reading:
                try:
                    data = theirs.recv(1 << 16)
                except BlockingIOError:
                    break
                except OSError:
                    data = b""
                if not data:
                    connection.is_open = False
                    theirs.close()
                    break
                connection.feed(data)

    def close(self) -> None:
        for theirs, _ in self._ends:
            theirs.close()


def under_asyncio(main: Callable[..., Coroutine[object, object, None]], addresses: Sequence[str] = ADDRESSES) -> None:
    """Run `main(client, node, tasks)`."""

    async def run() -> None:
        tasks = UnderAsyncio()
        async with aio.Client(addresses, timeout_ms=1000, draw=lambda: 1.0) as client:
            await main(client, node, tasks)
            await tasks.end()

    node = Node()
    with asyncio.Runner(loop_factory=lambda: VirtualLoop(node)) as runner:
        wrongs: list[object] = []
        runner.get_loop().set_exception_handler(lambda _, context: wrongs.append(context))
        runner.run(run())
    assert wrongs == []


def under_trio(main: Callable[..., Awaitable[None]]) -> None:
    async def run() -> None:
        async with trio.open_nursery() as nursery:
            tasks = UnderTrio(node, nursery, clock)
            try:
                client = trio_client.Client(ADDRESSES, timeout_ms=1000, draw=lambda: 1.0)
                client.dial = tasks.dial
                async with client:
                    await main(client, node, tasks)
                    await tasks.end()
            finally:
                tasks.close()

    node, clock = Node(), trio.testing.MockClock()
    trio.run(run, clock=clock)
