"""One connection under asyncio: a protocol that moves the bytes of a session.

Requesting tasks put their requests into the session and wait for futures of their own; they never wait for the
connection, so their cancellation leaves the stream whole.  A single request on a quiet connection is sent at once.
Otherwise the first request schedules one write for the end of the loop's turn, so what all tasks ask in one turn leaves
in one system call.

The transport takes nothing while it has unsent bytes.  Then requests wait in the session, which bounds them.
"""

from __future__ import annotations

import asyncio
import os
import socket
from typing import TYPE_CHECKING, cast, final

from gossipkv import name_service
from gossipkv.client.link import CLOSED, NodeLink, Opening
from gossipkv.client.route import reason_of
from gossipkv.client.sockets import RECEIVE_BYTES, tune

if TYPE_CHECKING:
    from gossipkv.address import Address
    from gossipkv.client._client import Request
    from gossipkv.client.credentials import Credentials
    from gossipkv.client.dispatcher import Dispatcher


async def dial(
    address: Address, host: str, timeout_s: float, credentials: Credentials, dispatcher: Dispatcher
) -> AioLink:
    """Connect to `address`; `host` is the name for its certificate.

    Raises:
        OSError: it cannot be reached in time, or its certificate is wrong.
        Unauthorized, RequestError: it refuses the token.
    """
    loop, opening = asyncio.get_running_loop(), Opening(credentials.tls(host), credentials.greeting())
    connection = None
    try:
        async with asyncio.timeout(timeout_s):
            connection = await _connected(loop, address)
            output = opening.take(None)
            while output or not opening.is_done:
                await loop.sock_sendall(connection, output)
                output = b"" if opening.is_done else opening.take(await loop.sock_recv(connection, RECEIVE_BYTES))
    except BaseException as error:
        if connection is not None:
            connection.close()
            if isinstance(error, OSError):
                raise opening.failure(error) from error
        raise
    link = AioLink(address, opening, dispatcher)
    await loop.create_connection(lambda: link, sock=connection)
    if link.is_closed:  # It broke while this task was being woken, and no dispatcher knows it yet.
        raise OSError(CLOSED)
    return link


@final
class AioLink(NodeLink, asyncio.BufferedProtocol):
    """A connection over a transport, which calls most methods."""

    __slots__ = ("_data", "_is_flushing", "_is_paused", "_loop", "_place", "_transport")
    _transport: asyncio.Transport

    def __init__(self, address: Address, opening: Opening, dispatcher: Dispatcher) -> None:
        super().__init__(address, opening, dispatcher)
        self._loop = asyncio.get_running_loop()
        self._data = self._place = memoryview(bytearray(RECEIVE_BYTES))
        self._is_flushing = False  # A write is scheduled.
        self._is_paused = False  # The transport has unsent bytes.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(0)

    def send(self, request: Request[object]) -> None:
        """Queue a request; its bytes go out in this turn of the loop, or now if no other is likely to follow."""
        session = self.session
        session.send(request)
        if self._is_flushing:
            return
        if self._is_quiet and session.in_flight == 1:
            self._write()
        else:
            self._is_flushing = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._is_flushing = False
        self._write()
        self._dispatcher.on_received(self)

    def _write(self) -> None:
        if self._is_paused or self.is_closed:
            return
        session = self.session
        output = session.take_output()
        session.sent(len(output))  # Bytes in the transport cannot be attributed to requests, so all count as begun.
        self._transport.write(output if self._tls is None else self._tls.seal(output))

    def pause_writing(self) -> None:
        """Leave further requests in the session."""
        self._is_paused = True

    def resume_writing(self) -> None:
        """Send what waits in the session."""
        self._is_paused = False
        self._flush()

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002  # It says nothing of answers.
        """Return the place for received bytes."""
        room = self.session.room() if self._tls is None else None
        self._place = self._data if room is None else room
        return self._place

    def buffer_updated(self, nbytes: int) -> None:
        """Take received bytes."""
        self.take(self._place[:nbytes])

    def eof_received(self) -> None:
        """End the connection, as the node has done."""
        self.take(b"")

    def connection_lost(self, exc: Exception | None) -> None:
        """Note the end of the connection."""
        if exc is None:
            self.take(b"")
        else:
            self.break_off(reason_of(exc))

    def _end(self, farewell: bytes) -> None:
        transport = self._transport
        if farewell:
            transport.write(farewell)
        if transport.get_write_buffer_size():  # A node that reads nothing must not hold the transport.
            transport.abort()
        else:
            transport.close()


async def _connected(loop: asyncio.AbstractEventLoop, address: Address) -> socket.socket:
    """Return a connection to a numeric address.  Raises OSError."""
    family, kind, protocol, _, where = name_service.addresses(address, 0)[0]
    connection = socket.socket(family, kind, protocol)
    try:
        connection.settimeout(0)
        await loop.sock_connect(connection, where)
    except OSError as error:  # asyncio's own words would repeat the address.
        connection.close()
        raise error if error.errno is None else OSError(error.errno, os.strerror(error.errno)) from None
    except BaseException:
        connection.close()
        raise
    tune(connection)
    return connection
