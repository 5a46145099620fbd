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
from typing import TYPE_CHECKING, Self, cast, final

from gossipkv import name_service
from gossipkv.client._client import Session
from gossipkv.client.credentials import REFUSALS
from gossipkv.client.route import reason_of
from gossipkv.client.sockets import RECEIVE_BYTES, UNSHAKEN, tune
from gossipkv.errors import GossipKVError

if TYPE_CHECKING:
    from collections.abc import Callable

    from gossipkv.address import Address
    from gossipkv.client._client import Request
    from gossipkv.client.credentials import Credentials
    from gossipkv.client.tls import ClientTls


@final
class AioLink(asyncio.BufferedProtocol):
    """A connection to the node at `address`; `dial` makes one.

    `on_received` is called after answers came or bytes went out, `on_answered` with requests whose tasks are not simply
    woken, `on_broken` with a reason if the link ends by itself.  `host` is the name for its certificate.
    """

    __slots__ = (
        "_data",
        "_greeting",
        "_is_closed",
        "_is_flushing",
        "_is_paused",
        "_is_quiet",
        "_loop",
        "_on_answered",
        "_on_broken",
        "_on_received",
        "_place",
        "_ready",
        "_tls",
        "_transport",
        "address",
        "session",
    )
    _transport: asyncio.Transport

    def __init__(
        self,
        address: Address,
        host: str,
        credentials: Credentials,
        *,
        on_received: Callable[[AioLink], None],
        on_answered: Callable[[AioLink, list[Request[object]]], None],
        on_broken: Callable[[AioLink, str], None],
    ) -> None:
        self.address = address
        self.session = Session()
        self._loop = asyncio.get_running_loop()
        self._tls: ClientTls | None = credentials.tls(host)
        self._greeting = credentials.greeting()
        self._on_received = on_received
        self._on_answered = on_answered
        self._on_broken = on_broken
        self._ready: asyncio.Future[None] = self._loop.create_future()  # Done when TLS and the token are accepted.
        self._data = self._place = memoryview(bytearray(RECEIVE_BYTES))
        self._is_quiet = True  # The last receive woke at most one task; for several, one write is cheaper.
        self._is_flushing = False  # A write is scheduled.
        self._is_paused = False  # The transport has unsent bytes.
        self._is_closed = True  # Until there is a connection.

    async def dial(self, timeout_s: float) -> Self:
        """Connect.

        Raises:
            OSError: the node cannot be reached in time, or its certificate is wrong.
            Unauthorized, RequestError: it refuses the token.
        """
        late = "no answer in time"
        try:
            async with asyncio.timeout(timeout_s):
                connection = await _connected(self._loop, self.address)
                tune(connection)
                late = "no answer to the token in time" if self._tls is None else UNSHAKEN
                await self._loop.create_connection(lambda: self, sock=connection)
                await self._ready
        except BaseException as error:
            self._ready.cancel()
            self.close()
            if isinstance(error, TimeoutError):
                raise OSError(late) from None
            raise
        if self._is_closed:  # It broke while this task was being woken, and no dispatcher knows it yet.
            raise OSError(self._end())
        try:
            if self._greeting is not None:
                self._greeting.take()
        except GossipKVError as error:
            self.close()
            if isinstance(error, REFUSALS):
                raise
            raise OSError(error.message) from error  # Another node may do better.
        return self

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin with TLS or the token (called by the transport)."""
        if self._ready.done():  # `dial` was cancelled.
            transport.close()
            return
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(0)
        self._is_closed = False
        if self._tls is None:
            self._greet()
        else:
            self._shake(self._tls, None)

    def _greet(self) -> None:
        if self._greeting is None:
            self._ready.set_result(None)
        else:
            self._greeting.owner = self._ready
            self.send(self._greeting)

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
        self._on_received(self)

    def _write(self) -> None:
        if self._is_paused or self._is_closed:
            return
        session = self.session
        output = session.take_output()
        session.sent(len(output))  # Bytes in the transport cannot be attributed to requests, so all count as begun.
        self._transport.write(output if self._tls is None else self._tls.seal(output))

    def pause_writing(self) -> None:
        """Leave further requests in the session (called by the transport)."""
        self._is_paused = True

    def resume_writing(self) -> None:
        """Send what waits in the session (called by the transport)."""
        self._is_paused = False
        self._flush()

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002  # It says nothing of answers.
        """Return the place for received bytes (called by the transport)."""
        room = self.session.room() if self._tls is None else None
        self._place = self._data if room is None else room
        return self._place

    def buffer_updated(self, nbytes: int) -> None:
        """Take received bytes, and wake the tasks whose answers they complete (called by the transport)."""
        session, tls = self.session, self._tls
        data = self._place[:nbytes]
        try:
            done = session.receive(data) if tls is None else self._opened(tls, bytes(data))
        except OSError as error:
            self._break(reason_of(error))
            return
        self._is_quiet = len(done) <= 1
        others = []
        for request in done:
            if request.error is not None or request.is_inner:
                others.append(request)
            elif (owner := request.owner) is not None:
                request.owner = None
                wake(owner)
        if others:
            self._on_answered(self, others)
        if session.failure is not None:
            self._break(session.failure.message)
        elif tls is not None and tls.has_ended:
            self._break(self._end())
        else:
            self._on_received(self)

    def _opened(self, tls: ClientTls, data: bytes) -> list[Request[object]]:
        """Return the requests that received records complete; the handshake comes first.  Raises OSError."""
        if not tls.is_shaken:
            self._shake(tls, data)
            return []
        plain = tls.open(data)
        return self.session.receive(plain) if plain else []

    def _shake(self, tls: ClientTls, data: bytes | None) -> None:
        self._transport.write(tls.shake(data))
        if tls.is_shaken:
            self._greet()

    def eof_received(self) -> None:
        """End the connection, as the node has done (called by the transport)."""
        reason = self._end()
        if self._tls is not None and not self._tls.is_shaken:
            try:
                self._tls.shake(b"")
            except OSError as error:
                reason = reason_of(error)
        self._break(reason)

    def connection_lost(self, exc: Exception | None) -> None:
        """Note the end of the connection (called by the transport)."""
        reason = self._end() if exc is None else reason_of(exc)
        if self._tls is not None and not self._tls.is_shaken:
            reason += " amid the TLS handshake"
        self._break(reason)

    def _end(self) -> str:
        if self._greeting is not None and not self._greeting.is_done:
            return "the node closed the connection instead of an answer to the token"
        return "the node closed the connection" + ("" if self.session.is_clean else " amid an answer")

    def _break(self, reason: str) -> None:
        if self._is_closed:
            return
        if self._ready.done():
            self._on_broken(self, reason)
        else:
            self._ready.set_exception(OSError(reason))
        self.close()

    def close(self) -> None:
        """End the connection."""
        if self._is_closed:
            return
        self._is_closed = True
        transport = self._transport
        # TLS can only end between records.
        if self._tls is not None and self._tls.is_shaken and not self.session.in_flight:
            transport.write(self._tls.farewell())
        if transport.get_write_buffer_size():  # A node that reads nothing must not hold the transport.
            transport.abort()
        else:
            transport.close()


def wake(owner: object) -> None:
    """Wake the task that waits for this future, unless it was cancelled."""
    assert isinstance(owner, asyncio.Future)
    if not owner.done():
        owner.set_result(None)


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
    return connection
