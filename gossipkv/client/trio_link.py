"""One connection under Trio: a socket, the session on it, a task that reads and a task that sends.

Requesting tasks put their requests into the session and are parked; they never wait on the socket, so their
cancellation leaves the stream whole. A single request on a quiet connection is sent at once. Otherwise the first
request wakes the sender, which Trio runs after all tasks that are ready, so their requests leave in one system call.
Likewise one receive wakes many tasks.

The socket is the system's own, not Trio's: a ready socket is read and written without a checkpoint for each call.
"""

from __future__ import annotations

import selectors
from time import monotonic
from typing import TYPE_CHECKING, Final, final

import outcome
import trio

from gossipkv.client.route import reason_of
from gossipkv.client.sockets import SocketLink, dialling

if TYPE_CHECKING:
    import socket
    from collections.abc import AsyncGenerator, Callable, Generator
    from typing import TypeVar

    from gossipkv.address import Address
    from gossipkv.client._client import Request
    from gossipkv.client.credentials import Credentials
    from gossipkv.client.dispatcher import Dispatcher
    from gossipkv.client.link import Opening

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


async def dial(
    address: Address, host: str, timeout_s: float, credentials: Credentials
) -> tuple[socket.socket, Opening]:
    """Connect to `address`; `host` is the name for its certificate.

    Raises:
        OSError: it cannot be reached in time, or its certificate is wrong.
        Unauthorized, RequestError: it refuses the token.
    """
    steps = dialling(address, host, credentials, monotonic() + timeout_s)
    waits = {selectors.EVENT_READ: trio.lowlevel.wait_readable, selectors.EVENT_WRITE: trio.lowlevel.wait_writable}
    try:
        connection, mask, until = next(steps)
        while True:
            with trio.move_on_after(until - monotonic()) as scope:
                await waits[mask](connection)
            connection, mask, until = steps.throw(TimeoutError()) if scope.cancelled_caught else next(steps)
    except StopIteration as end:
        dialled: tuple[socket.socket, Opening] = end.value
        return dialled
    finally:
        steps.close()


@final
class TrioLink(SocketLink):
    """A connection whose `run` moves its bytes."""

    __slots__ = ("_scope", "_sender")

    def __init__(self, address: Address, connection: socket.socket, opening: Opening, dispatcher: Dispatcher) -> None:
        super().__init__(address, connection, opening, dispatcher)
        connection.settimeout(0)
        self._scope = trio.CancelScope()
        self._sender: trio.lowlevel.Task | None = None  # Set while the sender is parked.

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
        try:
            return self.flush()
        except OSError:  # The sender finds out.
            return False

    async def run(self) -> None:
        """Move bytes until the connection ends or `close` is called."""
        with self._socket, self._scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._send)
                await self._receive()

    def _end(self, farewell: bytes) -> None:
        super()._end(farewell)
        self._scope.cancel()

    async def _receive(self) -> None:
        wait_readable = trio.lowlevel.wait_readable
        while True:
            await wait_readable(self._socket)
            try:
                data = self.received()
            except BlockingIOError:
                continue
            except OSError as error:
                return self.break_off(reason_of(error))
            self.take(data)

    async def _send(self) -> None:
        while True:
            try:
                while not self.flush():
                    await trio.lowlevel.wait_writable(self._socket)
            except OSError as error:
                return self.break_off(reason_of(error))
            self._dispatcher.on_received(self)
            if not self.session.unsent_bytes:
                self._sender = trio.lowlevel.current_task()
                await trio.lowlevel.wait_task_rescheduled(self._forget_sender)

    def _forget_sender(self, _: Callable[[], None]) -> trio.lowlevel.Abort:
        self._sender = None
        return trio.lowlevel.Abort.SUCCEEDED
