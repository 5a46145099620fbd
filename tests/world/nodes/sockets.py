"""The network as the processes of one machine see it: `environment.Sockets` over simulated connections."""

from __future__ import annotations

import errno
import os
from collections import deque
from ipaddress import IPv4Address
from typing import TYPE_CHECKING, Final, final

import trio

from gossipkv.address import Address
from gossipkv.environment.seam import MAX_DATAGRAM_BYTES, UNCONFIRMED_S
from tests.world.nodes.network import connect

if TYPE_CHECKING:
    from collections.abc import Callable

    from gossipkv.environment.seam import HasFileno
    from tests.world.nodes.network import SimulatedNetwork, StreamEnd

FIRST_EPHEMERAL_PORT: Final = 32_768
ANY: Final = (str(IPv4Address(0)), "")  # All addresses of the machine.


# A socket's buffer for datagrams, and the kernel's charge for each.
RECEIVE_BUFFER_BYTES: Final = 2 << 20
DATAGRAM_OVERHEAD_BYTES: Final = 768


@final
class Readiness:
    """The readability of a descriptor, which tasks can await."""

    def __init__(self, is_so: Callable[[], bool] | None = None) -> None:
        """`is_so` returns the present state; without it, `set` makes the descriptor readable once."""
        self._is_so = is_so
        self._changed = trio.Event()

    def set(self) -> None:
        self._changed.set()

    async def wait(self) -> None:
        await trio.lowlevel.checkpoint()
        while not self._changed.is_set() if self._is_so is None else not self._is_so():
            await self._changed.wait()
            if self._is_so is not None:
                self._changed = trio.Event()
        self._changed = trio.Event()


@final
class SimulatedSockets:
    """The sockets of one process, which end with it."""

    def __init__(self, network: SimulatedNetwork, host: str) -> None:
        self.network = network
        self.host = host
        self._descriptors: dict[int, Readiness] = {}
        self._listeners: list[SimulatedListener] = []
        self._ends: list[StreamEnd] = []
        self._datagrams: list[SimulatedDatagrams] = []

    def listen(self, host: str, port: int, backlog: int) -> SimulatedListener:
        """Listen like `environment.Sockets`; the host is this machine's address or a wildcard."""
        address = self._own_address(host, port)
        if address in self.network.listening:
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
        listener = SimulatedListener(self, address, backlog)
        self.network.listening[address] = listener
        self._listeners.append(listener)
        return listener

    async def wait_readable(self, source: HasFileno) -> None:
        """Return when the owner of the descriptor has work."""
        await self._descriptors[source.fileno()].wait()

    async def event_loop(self) -> None:
        """Return None: in virtual time no loop sleeps."""

    def datagrams(self, host: str, port: int) -> SimulatedDatagrams:
        address = self._own_address(host, port)
        if address in self.network.receiving:
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
        datagrams = SimulatedDatagrams(self, address)
        self.network.receiving[address] = datagrams
        self._datagrams.append(datagrams)
        return datagrams

    async def connect(self, to: Address) -> SimulatedStream:
        end = await connect(self.network, self.host, to)
        end.give_up_s = UNCONFIRMED_S
        self._ends.append(end)
        return SimulatedStream(end)

    async def resolve(self, name: Address) -> list[Address]:
        """Resolve a name at the network's name service, which is sometimes slow."""
        await trio.sleep(self.network.delay_s(self.network.usual))
        if name.host.replace(".", "").isdigit():
            return [name]
        if name.host not in self.network.names:
            raise OSError(errno.ENOENT, f"nobody knows {name.host}")
        return [Address(host, name.port) for host in self.network.names[name.host]]

    def source_towards(self, to: Address) -> str:
        assert to.host
        return self.host

    def new_descriptor(self, is_so: Callable[[], bool] | None = None) -> tuple[int, Readiness]:
        descriptor = len(self._descriptors) + 3
        self._descriptors[descriptor] = Readiness(is_so)
        return descriptor, self._descriptors[descriptor]

    def knocked(self, end: StreamEnd) -> None:
        self._ends.append(end)

    def end(self, *, silently: bool) -> None:
        """End all sockets; the kernel tells the peers, unless the power failed (`silently`)."""
        for listener in self._listeners:
            listener.close()
        for datagrams in self._datagrams:
            datagrams.close()
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
        return self._descriptor

    def getsockname(self) -> tuple[str, int]:
        return self._address

    def knock(self, stream: StreamEnd) -> None:
        if len(self._waiting) >= self._backlog:
            stream.abort()
            return
        self._sockets.knocked(stream)
        stream.on_move = self._readiness.set
        self._waiting.append(stream)
        self._readiness.set()

    @property
    def is_readable(self) -> bool:
        return bool(self._waiting)

    def accept(self) -> StreamEnd | None:
        return self._waiting.popleft() if self._waiting else None

    def watch(self, stream: StreamEnd) -> None:
        """Make the descriptor readable also when a stream from elsewhere moves."""
        stream.on_move = self._readiness.set

    def wake(self) -> None:
        self._readiness.set()

    def close(self) -> None:
        """Stop listening; connections that still wait are refused."""
        if not self._closed:
            self._closed = True
            del self._sockets.network.listening[self._address]
            while self._waiting:
                self._waiting.popleft().abort()


@final
class SimulatedDatagrams:
    def __init__(self, sockets: SimulatedSockets, address: Address) -> None:
        self._sockets = sockets
        self._address = address
        self._waiting: deque[tuple[bytes, Address]] = deque()
        self._waiting_bytes = 0
        self._descriptor, self._readiness = sockets.new_descriptor(lambda: bool(self._waiting))
        self._closed = False
        self.lost = 0

    def fileno(self) -> int:
        return self._descriptor

    def reaches(self, to: Address) -> bool:
        return (":" in to.host) == (":" in self._address.host)

    def send(self, packet: bytes, to: Address) -> None:
        if not self._closed:
            self._sockets.network.send_datagram(self._address, to, packet)

    def arrive(self, packet: bytes, source: Address) -> None:
        size_bytes = len(packet) + DATAGRAM_OVERHEAD_BYTES
        if self._waiting_bytes + size_bytes > RECEIVE_BUFFER_BYTES:
            self.lost += 1
            return
        self._waiting.append((packet, source))
        self._waiting_bytes += size_bytes
        self._readiness.set()

    def receive(self) -> tuple[bytes, Address]:
        """Return the next datagram; raise BlockingIOError if none waits."""
        if not self._waiting:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        packet, source = self._waiting.popleft()
        self._waiting_bytes -= len(packet) + DATAGRAM_OVERHEAD_BYTES
        return packet[:MAX_DATAGRAM_BYTES], source

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            del self._sockets.network.receiving[self._address]


@final
class SimulatedStream:
    """A connection for Trio's tasks."""

    def __init__(self, end: StreamEnd) -> None:
        self._end = end
        self._moved = Readiness()
        end.on_move = self._moved.set

    async def send_all(self, data: bytes) -> None:
        """Send all of `data`.  Raises OSError if the connection breaks."""
        await trio.lowlevel.checkpoint()
        while data:
            if self._end.is_broken:
                raise ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET))
            portion = data[: self._end.room_bytes]
            if portion:
                self._end.send(portion)
                data = data[len(portion) :]
            else:
                await self._moved.wait()

    async def receive_some(self, most_bytes: int) -> bytes:
        """Return arrived bytes; empty at the end.  Raises OSError if the connection breaks."""
        await trio.lowlevel.checkpoint()
        while (data := self._end.receive(most_bytes)) is None:
            await self._moved.wait()
        return data

    def detach(self) -> StreamEnd:
        """Return the connection itself, for a serving loop that takes it over."""
        return self._end

    async def aclose(self) -> None:
        self._end.close()
        await trio.lowlevel.checkpoint()
