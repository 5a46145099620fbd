"""One connection of HTTP: bytes arrive, requests are answered in turn, and answers are sent together.

    WAITING ── bytes ──> ARRIVING ── request complete ──> ANSWERING ── no request left ──> SENDING ──> WAITING
       │ idle too long      │ too slow: 408                 │ (limited by the node)         │ client takes nothing
       v                    v                               v                               v
                                    the connection is closed

A connection is one task: pipelined requests are answered in order anyway, and a task costs more than a read.  Answers
are gathered until no complete request is left, or `GATHERED_BYTES` are reached; each piece of a streamed body is sent
at once.  Instead of timers, the gateway checks periodically if the state has lasted too long (`due`), or the client has
left while the node was asked.
"""

from __future__ import annotations

import contextlib
import enum
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Final, Protocol, final

import trio

from gossipkv.http.answers import HttpRequest, text
from gossipkv.http.exchange import CLOSED, NEED_DATA, HttpExchange, HttpRefusal

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from gossipkv.http.answers import HttpAnswer

READ_BYTES: Final = 64 << 10
GATHERED_BYTES: Final = 64 << 10  # More answers than this are sent before the next request is processed.
PIECE_BYTES: Final = 64 << 10  # A client that takes no piece of a long answer in time is closed.
SMALL_BYTES: Final = 32 << 10  # Smaller amounts held by a connection are not worth counting.

# A refused client may still be sending: a reset by the kernel would discard the answer.
LINGER_S: Final = 2.0
LINGER_BYTES: Final = 1 << 20
LAST_WORD_S: Final = 1.0  # The answer to a request that came too slowly may take this long.


class ConnectionState(enum.Enum):
    """The activity of a connection."""

    WAITING = "idle"
    ARRIVING = "request_timeout"
    ANSWERING = "answering"
    SENDING = "output_timeout"


@final
@dataclass(frozen=True, slots=True)
class Times:
    """The time limits of a connection in seconds; infinity means no limit."""

    request_s: float
    output_s: float
    idle_s: float


class Surroundings(Protocol):
    """The gateway's interface for a connection."""

    times: Times
    is_draining: bool

    async def answer(self, request: HttpRequest) -> HttpAnswer:
        """Answer a request.  Raises nothing but cancellation."""
        ...

    def set_idle(self, connection: Connection, *, is_idle: bool) -> None:
        """Note that the connection waits for a request, or no longer does."""
        ...

    def hold(self, connection: Connection, size_bytes: int) -> None:
        """Note the bytes of requests and answers that the connection holds now."""
        ...

    def broke(self, error: Exception) -> None:
        """Note that a defect has cut off a partly sent answer."""
        ...


@final
class Connection:
    """A connection, from its first byte to its last."""

    __slots__ = (
        "_exchange", "_gathered", "_gathered_bytes", "_is_late", "_now", "_received_bytes", "_scope", "_surroundings",
        "due", "held_bytes", "state", "stream", "waits_since",
    )  # fmt: skip

    def __init__(self, stream: trio.abc.Stream, exchange: HttpExchange, surroundings: Surroundings) -> None:
        self.stream = stream
        self._exchange = exchange
        self._surroundings = surroundings
        self._gathered: list[bytes] = []
        self._gathered_bytes = 0
        self._received_bytes = 0  # The bytes of an incomplete request.
        self._is_late = False
        self._now = trio.lowlevel.current_clock().current_time
        self._scope = trio.CancelScope()
        self.state = ConnectionState.WAITING
        self.due = inf
        self.waits_since = 0.0  # The time at which the node was asked, while ANSWERING.
        self.held_bytes = 0

    async def run(self) -> None:
        """Serve the connection until one side ends it, or the scope is cancelled."""
        try:
            with self._scope:
                await self._converse()
            if self._is_late and self.state is ConnectionState.ARRIVING:
                await self._say_it_was_too_slow()
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass  # The client is gone.
        finally:
            self._surroundings.set_idle(self, is_idle=False)
            self._surroundings.hold(self, 0)
            await trio.aclose_forcefully(self.stream)

    def close(self, *, is_late: bool = False) -> None:
        """End the connection in any state; `is_late`: its time is over, and a slow request is answered 408."""
        self._is_late = is_late
        self._scope.cancel()

    async def _converse(self) -> None:
        exchange = self._exchange
        self._wait()
        while True:
            data = bytes(await self.stream.receive_some(READ_BYTES))
            exchange.receive(data)
            if self.state is ConnectionState.WAITING:
                self._arrive()
            self._received_bytes += len(data)
            if not await self._answer_all():
                return
            if exchange.has_begun:
                if self.state is not ConnectionState.ARRIVING:
                    self._arrive()
                self._hold(self._received_bytes)
            elif self._surroundings.is_draining:
                return
            else:
                self._wait()

    async def _answer_all(self) -> bool:
        """Answer the complete requests; True if more may come."""
        exchange = self._exchange
        while True:
            found = exchange.next_request()
            if found is NEED_DATA:
                if interim := exchange.interim():
                    self._gather(interim)
                if self._gathered:
                    await self._flush()
                return True
            if found is CLOSED:
                await self._flush()
                return False
            if isinstance(found, HttpRefusal):
                await self._refuse(found.answer)
                return False
            assert isinstance(found, HttpRequest), found
            self._received_bytes = 0
            await self._answer(found)
            if exchange.is_closing:
                await self._flush()
                if exchange.left_unread:
                    await self._linger()
                return False

    async def _answer(self, request: HttpRequest) -> None:
        self._await_answer()
        self._hold(self._gathered_bytes + len(request.body))
        answer = await self._surroundings.answer(request)
        exchange, body = self._exchange, answer.body
        if self._surroundings.is_draining and not exchange.has_begun:
            exchange.finish()
        if not isinstance(body, bytes):
            await self._stream_out(request, answer, body)
        elif len(body) <= PIECE_BYTES:
            self._gather(exchange.whole(request, answer))
        else:  # A large body is not copied.
            self._gather(exchange.head(request, answer))
            self._gather(exchange.body(body))
            self._gather(exchange.end())
        if self._gathered_bytes >= GATHERED_BYTES:
            await self._flush()

    async def _stream_out(self, request: HttpRequest, answer: HttpAnswer, pieces: AsyncIterator[bytes]) -> None:
        """Send a body piece by piece, only as fast as the client takes it."""
        exchange = self._exchange
        self._gather(exchange.head(request, answer))
        async with _closing(pieces):
            while request.method != b"HEAD" and (piece := await self._next(pieces)) is not None:
                self._gather(exchange.body(piece))
                await self._flush()
                self._await_answer()
        self._gather(exchange.end())

    async def _next(self, pieces: AsyncIterator[bytes]) -> bytes | None:
        """Return the next piece; None at the end.  A defect cuts the answer off, but sent pieces stay sent."""
        try:
            return await anext(pieces, None)
        except Exception as error:
            self._surroundings.broke(error)
            raise trio.BrokenResourceError from error

    async def _refuse(self, answer: HttpAnswer) -> None:
        self._gather(self._exchange.whole(None, answer))
        await self._flush()
        await self._linger()

    async def _linger(self) -> None:
        """End so that the answer is read: the kernel would discard it while the client still sends."""
        await self._stream_end()
        with trio.move_on_after(LINGER_S):
            left = LINGER_BYTES
            while left > 0 and (data := await self.stream.receive_some(READ_BYTES)):
                left -= len(data)

    async def _stream_end(self) -> None:
        if isinstance(self.stream, trio.abc.HalfCloseableStream):
            await self.stream.send_eof()

    async def _say_it_was_too_slow(self) -> None:
        """Answer 408 to a client whose request did not arrive in time."""
        line = f"the request did not arrive completely within {self._surroundings.times.request_s:g} s"
        refusal = self._exchange.refuse(text(408, line))
        with trio.move_on_after(LAST_WORD_S):
            await self.stream.send_all(self._exchange.whole(None, refusal.answer))

    def _gather(self, data: bytes) -> None:
        self._gathered.append(data)
        self._gathered_bytes += len(data)

    async def _flush(self) -> None:
        gathered, size_bytes = self._gathered, self._gathered_bytes
        if not size_bytes:
            return
        self._gathered = []
        self._gathered_bytes = 0
        self.state = ConnectionState.SENDING
        self._hold(size_bytes)
        for part in gathered if size_bytes > 2 * GATHERED_BYTES else [b"".join(gathered)]:
            for begin in range(0, len(part), PIECE_BYTES):
                self.due = self._now() + self._surroundings.times.output_s
                piece = part if len(part) <= PIECE_BYTES else memoryview(part)[begin : begin + PIECE_BYTES]
                await self.stream.send_all(piece)
        self._hold(0)

    def _await_answer(self) -> None:
        self.state, self.due, self.waits_since = ConnectionState.ANSWERING, inf, self._now()

    def _wait(self) -> None:
        self.state = ConnectionState.WAITING
        self.due = self._now() + self._surroundings.times.idle_s
        self._received_bytes = 0
        self._surroundings.set_idle(self, is_idle=True)

    def _arrive(self) -> None:
        """Start the time limit of the whole request, however slowly it arrives."""
        self.state = ConnectionState.ARRIVING
        self.due = self._now() + self._surroundings.times.request_s
        self._surroundings.set_idle(self, is_idle=False)

    def _hold(self, size_bytes: int) -> None:
        counted = size_bytes if size_bytes > SMALL_BYTES else 0
        if counted != self.held_bytes:
            self._surroundings.hold(self, counted)


@contextlib.asynccontextmanager
async def _closing(pieces: AsyncIterator[bytes]) -> AsyncIterator[None]:
    """Close a generator with the block, which cancels its waits."""
    try:
        yield
    finally:
        if isinstance(pieces, AsyncGenerator):
            await pieces.aclose()
