"""One connection under Trio: a socket, the session on it, a task that reads and a task that sends.

Requesting tasks put their requests into the session and are parked; they never wait on the socket, so their
cancellation leaves the stream whole. A single request on a quiet connection is sent at once. Otherwise the first
request wakes the sender, which Trio runs after all tasks that are ready, so their requests leave in one system call.
Likewise one receive wakes many tasks.

The socket is the system's own, not Trio's: a ready socket is read and written without a checkpoint for each call.
"""

from __future__ import annotations

import socket
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple, Self, final

import outcome
import trio

from gossipkv.client._client import Session
from gossipkv.client.credentials import REFUSALS
from gossipkv.client.route import reason_of
from gossipkv.client.sockets import RECEIVE_BYTES, UNSHAKEN, end_input, tune
from gossipkv.errors import GossipKVError

if TYPE_CHECKING:
    import socket as sockets
    from collections.abc import AsyncGenerator, Callable, Generator
    from typing import TypeVar

    from gossipkv.address import Address
    from gossipkv.client._client import Request
    from gossipkv.client.credentials import Credentials
    from gossipkv.client.tls import ClientTls
    from gossipkv.wire.rpc import Value

    _Yield = TypeVar("_Yield")
    _Return = TypeVar("_Return")


@final
class _Woken(outcome.Outcome[None]):
    """The outcome for a parked task.  It is empty, so one object serves all; Trio's own is created each time."""

    def unwrap(self) -> None:
        """Return nothing: the request has the answer."""

    def send(self, gen: Generator[_Yield, None, _Return]) -> _Yield:
        """Continue a generator."""
        return gen.send(None)

    async def asend(self, agen: AsyncGenerator[_Yield, None]) -> _Yield:
        """Continue an asynchronous generator."""
        return await agen.asend(None)


WOKEN: Final = _Woken()


class Dialled(NamedTuple):
    """The parts of a link."""

    socket: socket.socket
    tls: ClientTls | None
    session: Session

    @classmethod
    def plainly(cls, connection: sockets.socket) -> Self:
        """Return a plain connection with a new session."""
        return cls(connection, None, Session())


async def dial(address: Address, host: str, timeout_s: float, credentials: Credentials) -> Dialled:
    """Connect to `address`; `host` is the name for its certificate.

    Raises:
        OSError: it cannot be reached in time, or its certificate is wrong.
        Unauthorized, RequestError: it refuses the token.
    """
    late = "no answer in time"
    try:
        with trio.fail_after(timeout_s):
            stream = await _open(address)
            try:
                late = UNSHAKEN
                tune(stream.socket)
                if (tls := credentials.tls(host)) is not None:
                    await _shake(stream, tls)
                late = "no answer to the token in time"
                session = Session()
                if (greeting := credentials.greeting()) is not None:
                    await _greet(stream, tls, session, greeting)
                return Dialled(socket.socket(fileno=stream.socket.detach()), tls, session)
            except BaseException:
                stream.socket.close()
                raise
    except trio.TooSlowError:
        raise OSError(late) from None
    except trio.BrokenResourceError as error:
        raise OSError(_first_reason(error)) from error


async def _open(address: Address) -> trio.SocketStream:
    try:
        return await trio.open_tcp_stream(address.host, address.port)
    except OSError as error:
        raise OSError(_first_reason(error)) from error


async def _shake(stream: trio.SocketStream, tls: ClientTls) -> None:
    data = None
    try:
        while not tls.is_shaken:
            await stream.send_all(tls.shake(data))
            if not tls.is_shaken:
                data = await stream.receive_some(RECEIVE_BYTES)
    except trio.BrokenResourceError as error:
        raise OSError(f"{_first_reason(error)} amid the TLS handshake") from error


async def _greet(stream: trio.SocketStream, tls: ClientTls | None, session: Session, request: Request[Value]) -> None:
    session.send(request)
    output = session.take_output()
    session.sent(len(output))
    await stream.send_all(output if tls is None else tls.seal(output))
    has_ended = False
    while not request.is_done and session.failure is None:
        if has_ended:
            raise OSError("the node closed the connection instead of an answer to the token")
        data = await stream.receive_some(RECEIVE_BYTES)
        session.receive(data if tls is None else tls.open(data))
        has_ended = not data or (tls is not None and tls.has_ended)
    try:
        if session.failure is not None:
            raise session.failure
        request.take()
    except REFUSALS:
        raise
    except GossipKVError as error:  # Another node may do better.
        raise OSError(error.message) from error


def _first_reason(error: Exception) -> str:
    """Return the reason behind one of Trio's errors, which have it as cause, or several in a group."""
    cause: BaseException | None = error.__cause__
    while isinstance(cause, BaseExceptionGroup):
        cause = cause.exceptions[0]
    return reason_of(cause if isinstance(cause, Exception) else error)


@final
class TrioLink:
    """A connection to the node at `address`; `run` moves its bytes.

    `on_received` is called after answers came or bytes went out, `on_answered` with requests that their tasks are not
    simply woken for, `on_broken` with a reason if the link ends by itself.
    """

    __slots__ = (
        "_is_closed",
        "_is_quiet",
        "_on_answered",
        "_on_broken",
        "_on_received",
        "_rest",
        "_scope",
        "_sender",
        "_socket",
        "_tls",
        "address",
        "session",
    )

    def __init__(
        self,
        address: Address,
        dialled: Dialled,
        *,
        on_received: Callable[[TrioLink], None],
        on_answered: Callable[[TrioLink, list[Request[object]]], None],
        on_broken: Callable[[TrioLink, str], None],
    ) -> None:
        self._socket, self._tls, self.session = dialled
        self._socket.settimeout(0)
        self.address = address
        self._on_received = on_received
        self._on_answered = on_answered
        self._on_broken = on_broken
        self._scope = trio.CancelScope()
        self._rest = memoryview(b"")  # Bytes taken from the session that are not sent yet, in the form to send.
        self._sender: trio.lowlevel.Task | None = None  # Set while the sender is parked.
        self._is_quiet = True  # The last receive woke at most one task; for several, one send is cheaper.
        self._is_closed = False

    def send(self, request: Request[object]) -> None:
        """Queue a request; its bytes go out when this task waits, or now if no other request is likely to follow."""
        session = self.session
        session.send(request)
        sender = self._sender
        if sender is not None and not (self._is_quiet and session.in_flight == 1 and self._send_now()):
            self._sender = None
            trio.lowlevel.reschedule(sender, WOKEN)

    def _send_now(self) -> bool:
        """Send the only open request without waking the sender; return True if all of it went out."""
        output = self._next_output()
        try:
            count = self._socket.send(output)
        except OSError:  # The socket is blocked or broken: the sender finds out.
            count = 0
        if self._tls is None:
            self.session.sent(count)
        self._rest = output[count:]
        return not self._rest and not self.session.unsent_bytes

    def _next_output(self) -> memoryview:
        """Return the next bytes to send: the session's output, under TLS in records."""
        output = self.session.take_output()
        if self._tls is None or not output:
            return memoryview(output)
        self.session.sent(len(output))  # A partly sent record cannot be attributed to requests, so all count as begun.
        return memoryview(self._tls.seal(output))

    def close(self) -> None:
        """End both tasks, and with them the connection."""
        # TLS can only end between records.
        if self._tls is not None and not self._is_closed and not self.session.in_flight:
            with suppress(OSError):
                self._socket.send(self._tls.farewell())
        self._is_closed = True
        self._scope.cancel()

    async def run(self) -> None:
        """Move bytes until the connection ends or `close` is called."""
        with self._socket, self._scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._send)
                await self._receive()

    def _break(self, reason: str) -> None:
        if not self._is_closed:
            self._on_broken(self, reason)
            self.close()

    async def _receive(self) -> None:
        session, tls = self.session, self._tls
        wait_readable = trio.lowlevel.wait_readable
        receive, receive_into = self._socket.recv, self._socket.recv_into
        data: bytes | memoryview
        while True:
            await wait_readable(self._socket)
            try:
                if tls is not None:
                    data = self._open(tls, received) if (received := receive(RECEIVE_BYTES)) else received
                elif (room := session.room()) is not None:
                    data = room[: receive_into(room)]
                else:
                    data = receive(RECEIVE_BYTES)
            except BlockingIOError:
                continue
            except OSError as error:
                return self._break(reason_of(error))
            if not data:
                return self._break("the node closed the connection" + ("" if session.is_clean else " amid an answer"))
            done = session.receive(data)
            self._is_quiet = len(done) <= 1
            self._wake(done)
            if session.failure is not None:
                return self._break(session.failure.message)
            self._on_received(self)

    def _wake(self, done: list[Request[object]]) -> None:
        task, reschedule = trio.lowlevel.Task, trio.lowlevel.reschedule
        others = []
        for request in done:
            if request.error is not None or request.is_inner:
                others.append(request)
            elif isinstance(owner := request.owner, task):
                request.owner = None
                reschedule(owner, WOKEN)
        if others:
            self._on_answered(self, others)

    def _open(self, tls: ClientTls, data: bytes) -> bytes:
        """Return the plain text of received records.

        Raises:
            BlockingIOError: no record is complete yet.
            OSError: TLS is broken.
        """
        data = tls.open(data)
        if tls.has_ended:
            end_input(self._socket)
        if not data:
            raise BlockingIOError
        return data

    async def _send(self) -> None:
        session = self.session
        while True:
            output = self._rest or self._next_output()
            self._rest = output[:0]
            while output:
                try:
                    count = self._socket.send(output)
                except BlockingIOError:
                    await trio.lowlevel.wait_writable(self._socket)
                    continue
                except OSError as error:
                    return self._break(reason_of(error))
                if self._tls is None:
                    session.sent(count)
                output = output[count:]
            self._on_received(self)
            if not session.unsent_bytes:
                self._sender = trio.lowlevel.current_task()
                await trio.lowlevel.wait_task_rescheduled(self._forget_sender)

    def _forget_sender(self, _: Callable[[], None]) -> trio.lowlevel.Abort:
        self._sender = None
        return trio.lowlevel.Abort.SUCCEEDED
