"""The network as the processes of one machine see it: `environment.Sockets`, with simulated ones behind it."""

from __future__ import annotations

import errno
import os
from collections import deque
from typing import TYPE_CHECKING, Final, final

import trio

from gossipkv.address import Address
from gossipkv.testing.nodes.streams import connect

if TYPE_CHECKING:
    from gossipkv.environment import HasFileno
    from gossipkv.testing.nodes.network import Network
    from gossipkv.testing.nodes.streams import StreamEnd

FIRST_EPHEMERAL_PORT: Final = 32_768
ANY: Final = ("0.0.0.0", "")  # noqa: S104  # Nothing is bound: these mean all addresses of the machine.


@final
class Readiness:
    """Whether a descriptor is readable, for those who wait."""

    def __init__(self) -> None:
        self._ready = trio.Event()

    def set(self) -> None:
        """It is; `wait` says so once."""
        self._ready.set()

    async def wait(self) -> None:
        """Returns when it is."""
        await self._ready.wait()
        self._ready = trio.Event()


@final
class SimulatedSockets:
    """The sockets of one process; when it ends, all of them do."""

    def __init__(self, network: Network, host: str) -> None:
        self.network = network
        self.host = host
        self._descriptors: dict[int, Readiness] = {}
        self._listeners: list[SimulatedListener] = []
        self._ends: list[StreamEnd] = []

    def listen(self, host: str, port: int, backlog: int) -> SimulatedListener:
        """As `environment.Sockets` says; the only hosts are this machine's address and those that mean all."""
        address = self._own_address(host, port)
        if address in self.network.listening:
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
        listener = SimulatedListener(self, address, backlog)
        self.network.listening[address] = listener
        self._listeners.append(listener)
        return listener

    async def wait_readable(self, source: HasFileno) -> None:
        """Returns when the owner of a descriptor from here has something to do."""
        await self._descriptors[source.fileno()].wait()

    async def connect(self, host: str, port: int) -> SimulatedStream:
        """A connection.  Raises OSError."""
        end = await connect(self.network, self.host, Address(host, port))
        self._ends.append(end)
        return SimulatedStream(end)

    def new_descriptor(self) -> tuple[int, Readiness]:
        """A descriptor for a socket."""
        descriptor = len(self._descriptors) + 3
        self._descriptors[descriptor] = Readiness()
        return descriptor, self._descriptors[descriptor]

    def knocked(self, end: StreamEnd) -> None:
        """This process has one more connection."""
        self._ends.append(end)

    def end(self, *, silently: bool) -> None:
        """The process is gone; the kernel tells its peers, unless the power went."""
        for listener in self._listeners:
            listener.close()
        for stream in self._ends:
            if silently:
                stream.lose()
            else:
                stream.abort()

    def _own_address(self, host: str, port: int) -> Address:
        if host not in {self.host, *ANY}:
            raise OSError(errno.EADDRNOTAVAIL, os.strerror(errno.EADDRNOTAVAIL))
        taken = {address.port for address in self.network.listening if address.host == self.host}
        while port == 0 or (port >= FIRST_EPHEMERAL_PORT and port in taken):
            port = max(port + 1, FIRST_EPHEMERAL_PORT)
        return Address(self.host, port)


@final
class SimulatedListener:
    """A listening socket, and the descriptor of the loop that serves its connections."""

    def __init__(self, sockets: SimulatedSockets, address: Address, backlog: int) -> None:
        self._sockets = sockets
        self._address = address
        self._backlog = backlog
        self._waiting: deque[StreamEnd] = deque()
        self._descriptor, self._readiness = sockets.new_descriptor()
        self._closed = False

    def fileno(self) -> int:
        """Its descriptor."""
        return self._descriptor

    def getsockname(self) -> tuple[str, int]:
        """Where it listens."""
        return self._address

    def knock(self, stream: StreamEnd) -> None:
        """Somebody has connected."""
        if len(self._waiting) >= self._backlog:
            stream.abort()
            return
        self._sockets.knocked(stream)
        stream.on_move = self._readiness.set
        self._waiting.append(stream)
        self._readiness.set()

    def accept(self) -> StreamEnd | None:
        """The next connection, if there is one."""
        return self._waiting.popleft() if self._waiting else None

    def wake(self) -> None:
        """Make the descriptor readable."""
        self._readiness.set()

    def close(self) -> None:
        """Stop listening; those who still wait are turned away."""
        if not self._closed:
            self._closed = True
            del self._sockets.network.listening[self._address]
            while self._waiting:
                self._waiting.popleft().abort()


@final
class SimulatedStream:
    """A connection for Trio's tasks: what `trio.SocketStream` is over a socket."""

    def __init__(self, end: StreamEnd) -> None:
        self._end = end
        self._moved = Readiness()
        end.on_move = self._moved.set

    async def send_all(self, data: bytes) -> None:
        """Send all of it.

        Raises:
            trio.BrokenResourceError: the peer is gone.
        """
        await trio.lowlevel.checkpoint()
        while data:
            if self._end.is_broken:
                raise trio.BrokenResourceError
            portion = data[: self._end.room_bytes]
            if portion:
                self._end.send(portion)
                data = data[len(portion) :]
            else:
                await self._moved.wait()

    async def receive_some(self, max_bytes: int = 65_536) -> bytes:
        """What has arrived; nothing at the end.

        Raises:
            trio.BrokenResourceError: the peer is gone.
        """
        await trio.lowlevel.checkpoint()
        while True:
            try:
                data = self._end.receive(max_bytes)
            except OSError as error:
                raise trio.BrokenResourceError from error
            if data is not None:
                return data
            await self._moved.wait()

    async def aclose(self) -> None:
        """End it."""
        self._end.close()
        await trio.lowlevel.checkpoint()

    def abort(self) -> None:
        """End it at once."""
        self._end.abort()
