"""The real world behind the seam (`gossipkv.environment.seam`), including Trio's part."""

from __future__ import annotations

import errno
import ipaddress
import random
import socket
import struct
from typing import TYPE_CHECKING, Final, TypeVar, TypeVarTuple

import trio

from gossipkv import name_service
from gossipkv.address import Address
from gossipkv.environment.memory import RealMemory
from gossipkv.environment.real_files import RealClock, RealFiles
from gossipkv.environment.seam import MAX_DATAGRAM_BYTES, UNCONFIRMED_S, Environment, is_link_local
from gossipkv.environment.trio_loop import find_loop

if TYPE_CHECKING:
    import contextlib
    import signal
    from collections.abc import AsyncIterator, Callable

    from gossipkv.environment.seam import HasFileno
    from gossipkv.environment.trio_loop import TrioLoop

_Arguments = TypeVarTuple("_Arguments")
_Result = TypeVar("_Result")


_SO_RCVBUFFORCE: Final = 33  # Linux: exceeds net.core.rmem_max, for processes that may administer the network.
_SO_MEMINFO: Final = 55  # Linux: nine counters of a socket; the last one counts dropped datagrams.
_MEMINFO: Final = struct.Struct("9I")

# All nodes of a cluster of a thousand may send at once; a small packet takes up to 800 bytes of the buffer.
RECEIVE_BUFFER_BYTES: Final = 2 << 20

# Concurrent name lookups. While a name service hangs, each keeps a thread, even without a waiter; so lookups have a few
# threads of their own, separate from those that read files.
MAX_LOOKUPS: Final = 16

_MAPPED: Final = "::ffff:"  # Prefix of an IPv4 address on an IPv6 socket.


class RealDatagrams:
    """The operating system's UDP socket."""

    def __init__(self, host: str, port: int) -> None:
        self._has_ipv6 = ":" in host
        # IPv4, IPv6.
        self._families = (not self._has_ipv6 or ipaddress.ip_address(host).is_unspecified, self._has_ipv6)
        self._socket = socket.socket(socket.AF_INET6 if self._has_ipv6 else socket.AF_INET, socket.SOCK_DGRAM)
        try:
            self._enlarge()
            self._socket.bind((host, port))
            self._socket.settimeout(0)
        except BaseException:
            self._socket.close()
            raise

    def _enlarge(self) -> None:
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, RECEIVE_BUFFER_BYTES)
        except OSError:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)

    def fileno(self) -> int:
        return self._socket.fileno()

    @property
    def lost(self) -> int:
        found: tuple[int, ...] = _MEMINFO.unpack(self._socket.getsockopt(socket.SOL_SOCKET, _SO_MEMINFO, _MEMINFO.size))
        return found[-1]

    def reaches(self, to: Address) -> bool:
        return self._families[":" in to.host]

    def send(self, packet: bytes, to: Address) -> None:
        self._socket.sendto(packet, (_MAPPED + to.host if self._has_ipv6 and ":" not in to.host else to.host, to.port))

    def receive(self) -> tuple[bytes, Address]:
        packet, source = self._socket.recvfrom(MAX_DATAGRAM_BYTES)
        return packet, Address(_unmapped(source[0]) if self._has_ipv6 else source[0], source[1])

    def close(self) -> None:
        self._socket.close()


class RealStream:
    """The operating system's connection."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self._stream = stream

    async def send_all(self, data: bytes) -> None:
        try:
            await self._stream.send_all(data)
        except trio.BrokenResourceError as error:
            raise _cause(error) from error

    async def receive_some(self, most_bytes: int) -> bytes:
        try:
            return bytes(await self._stream.receive_some(most_bytes))
        except trio.BrokenResourceError as error:
            raise _cause(error) from error

    def detach(self) -> int:
        return self._stream.socket.detach()

    async def aclose(self) -> None:
        await trio.aclose_forcefully(self._stream)


def _cause(error: trio.BrokenResourceError) -> OSError:
    return error.__cause__ if isinstance(error.__cause__, OSError) else OSError(str(error))


class RealSockets:
    """The operating system's sockets."""

    def __init__(self) -> None:
        self._lookups = trio.CapacityLimiter(MAX_LOOKUPS)
        self._looked_up: set[Address] = set()  # Lookups running in threads.

    def listen(self, host: str, port: int, backlog: int) -> socket.socket:
        family, kind, protocol, _, address = name_service.local_addresses(Address(host, port))[0]
        plain = _unmapped(str(address[0]))
        if plain != address[0]:
            return self.listen(plain, port, backlog)
        listener = socket.socket(family, kind, protocol)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.listen(backlog)
            listener.settimeout(0)
        except BaseException:
            listener.close()
            raise
        return listener

    def datagrams(self, host: str, port: int) -> RealDatagrams:
        return RealDatagrams(host, port)

    async def wait_readable(self, source: HasFileno) -> None:
        await trio.lowlevel.wait_readable(source.fileno())

    async def event_loop(self) -> TrioLoop | None:
        return await find_loop()

    async def connect(self, to: Address) -> RealStream:
        family = socket.AF_INET6 if ":" in to.host else socket.AF_INET
        connection = trio.socket.socket(family, socket.SOCK_STREAM)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNCONFIRMED_S * 1000)
        try:
            await connection.connect(tuple(to))
        except BaseException:
            connection.close()
            raise
        return RealStream(trio.SocketStream(connection))

    async def resolve(self, name: Address) -> list[Address]:
        if name in self._looked_up:
            raise OSError(errno.EALREADY, "the name service has not answered yet")
        try:
            try:
                found = _addresses(name, socket.AI_NUMERICHOST)  # A numeric host needs no name service.
            except socket.gaierror:
                found = await trio.to_thread.run_sync(
                    self._look_up, name, abandon_on_cancel=True, limiter=self._lookups
                )
        except UnicodeError as error:  # No name service could know this name.
            raise OSError(str(error)) from error
        return list(dict.fromkeys(address for address in found if not is_link_local(address.host)))

    def _look_up(self, name: Address) -> list[Address]:
        """Look a name up in a thread; until the thread ends, no other lookup of the name starts."""
        self._looked_up.add(name)
        try:
            return _addresses(name)
        finally:
            self._looked_up.discard(name)

    def source_towards(self, to: Address) -> str:
        family = socket.AF_INET6 if ":" in to.host else socket.AF_INET
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect(tuple(to))
            return str(probe.getsockname()[0])


def _addresses(name: Address, flags: int = 0) -> list[Address]:
    found = socket.getaddrinfo(name.host, name.port, type=socket.SOCK_DGRAM, flags=flags)
    return [Address(_unmapped(str(address[0])), int(address[1])) for *_, address in found]


def _unmapped(host: str) -> str:
    """Return an IPv4 address in its own form, even if an IPv6 socket shows it: nodes use one form."""
    return host.removeprefix(_MAPPED) if "." in host else host


class RealThreads:
    """Trio's worker threads."""

    async def run(
        self,
        function: Callable[[*_Arguments], _Result],
        *arguments: *_Arguments,
        limiter: trio.CapacityLimiter | None = None,
        abandon_on_cancel: bool = False,
    ) -> _Result:
        return await trio.to_thread.run_sync(function, *arguments, limiter=limiter, abandon_on_cancel=abandon_on_cancel)


class RealSignals:
    """The signals of this process."""

    def receive(self, *numbers: signal.Signals) -> contextlib.AbstractContextManager[AsyncIterator[int]]:
        return trio.open_signal_receiver(*numbers)


def real() -> Environment:
    """Return the real world."""
    return Environment(
        RealClock(), random.SystemRandom(), RealFiles(), RealSockets(), RealThreads(), RealSignals(), RealMemory()
    )
