"""The serving loop over byte streams that are not the system's sockets: what a simulation serves its nodes with.

It does for the pump what `_serving.Loop` does, with the same connection core, driven by `_driver` instead of epoll.
Each round takes what has arrived, answers it and sends what its peers have room for, until nothing moves.  Time stands
still meanwhile, so the budgets of a round mean nothing here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol, final, runtime_checkable

import msgpack

from gossipkv.environment.seam import Listener
from gossipkv.node._driver import Driver
from gossipkv.node._requests import Pending, Refused
from gossipkv.wire.rpc import RESPONSE

if TYPE_CHECKING:
    from collections.abc import Callable

    from gossipkv.environment.seam import Clock
    from gossipkv.node._requests import Core
    from gossipkv.node.pump import MakeLoop

RECEIVE_BYTES = 65_536
LINGER_MS = 1000  # As in `_connections.pyx`.
_NIL = b"\xc0"


class ServedStream(Protocol):
    """The server's end of a connection; nothing here waits."""

    @property
    def room_bytes(self) -> int:
        """How much `send` takes now."""
        ...

    def receive(self, most_bytes: int) -> bytes | None:
        """What has arrived; nothing at its end; None: not yet.

        Raises:
            OSError: the connection is broken.
        """
        ...

    def send(self, data: bytes) -> None:
        """Requires: not more than there is room for."""
        ...

    def close(self) -> None:
        """Ends it behind what was sent; what still comes is thrown away."""
        ...

    def abort(self) -> None:
        """Ends it at once."""
        ...


@runtime_checkable
class StreamListener(Listener, Protocol):
    """A listener whose connections are streams; its descriptor is readable when one of them has moved as well."""

    def accept(self) -> ServedStream | None:
        """The next connection, if there is one."""
        ...

    def wake(self) -> None:
        """Make the descriptor readable."""
        ...


def driven(clock: Clock) -> MakeLoop:
    """What makes such loops, for `node.run`, whose environment's sockets have to be streams."""

    def make(core: Core, listener: Listener, *, polls: bool) -> DrivenLoop:
        assert isinstance(listener, StreamListener)
        del polls
        return DrivenLoop(core, listener, clock)

    return make


class _Answer(NamedTuple):
    """What is to be sent, when the peer has room for it."""

    handle: int
    msgid: int
    frame: bytes


@final
class DrivenLoop:
    """The streams of a core; `pump.ServingLoop` says what the methods are for."""

    def __init__(self, core: Core, listener: StreamListener, clock: Clock) -> None:
        self._driver = Driver(core)
        self._listener = listener
        self._clock = clock
        self._streams: dict[int, ServedStream] = {}
        self._lingering: list[tuple[ServedStream, int]] = []  # Their end was sent, and when; the peer's is awaited.
        self._asked: list[tuple[int, int, bytes, bytes]] = []
        self._answers: list[_Answer] = []
        self._draining = False

    def fileno(self) -> int:
        return self._listener.fileno()

    @property
    def has_work(self) -> bool:
        waiting = [handle for handle, *_ in self._asked] + [answer.handle for answer in self._answers]
        return self._driver.has_work or any(self._driver.may_reply(handle) for handle in waiting)

    @property
    def connection_count(self) -> int:
        return len(self._streams) + len(self._lingering)

    def round(self, answer: Callable[[bytes, bytes], object], serve_us: int, answer_us: int) -> list[Pending]:
        assert min(serve_us, answer_us) > 0
        pending: list[Pending] = []
        self._accept()
        moved = True
        while moved:
            moved = False
            for handle, stream in list(self._streams.items()):
                moved |= self._receive(handle, stream)
            if self._driver.has_work:
                moved = True
                self._asked += self._driver.run(self._now_ms())
            moved |= self._answer(answer, pending)
            for handle, stream in list(self._streams.items()):
                moved |= self._send(handle, stream)
        self._let_go()
        return pending

    def complete(self, pending: Pending, answer: bytes | Refused) -> None:
        self._answers.append(_Answer(pending.handle, pending.msgid, _frame(pending.msgid, answer)))

    def refuse(self, pending: Pending, error: Refused) -> None:
        self.complete(pending, error)

    def wake(self) -> None:
        self._listener.wake()

    def expire(self) -> None:
        self._driver.expire(self._now_ms())
        for handle, stream in list(self._streams.items()):
            self._send(handle, stream)
        self._let_go()

    def drain(self) -> None:
        self._accept()
        for handle, stream in list(self._streams.items()):
            while self._receive(handle, stream):
                pass
            if handle in self._streams:
                self._driver.end_input(handle)
        self._draining = True
        self._listener.close()

    def close(self) -> None:
        for handle, stream in self._streams.items():
            stream.abort()
            self._driver.close(handle)
        for stream, _ in self._lingering:
            stream.abort()
        self._streams.clear()
        self._lingering.clear()
        self._listener.close()

    def _now_ms(self) -> int:
        return self._clock.monotonic_ns() // 1_000_000

    def _accept(self) -> None:
        while not self._draining and (stream := self._listener.accept()) is not None:
            handle = self._driver.open(self._now_ms())
            if handle is None:
                stream.abort()
            else:
                self._streams[handle] = stream

    def _receive(self, handle: int, stream: ServedStream) -> bool:
        """Take one portion, if the core takes any; whether something came."""
        if not self._driver.wants_input(handle):
            return False
        try:
            data = stream.receive(RECEIVE_BYTES)
        except OSError:
            self._forget(handle)
            return True
        if data is None:
            return False
        if data:
            self._asked += self._driver.feed(handle, data, self._now_ms())
        else:
            self._driver.end_input(handle)
        return True

    def _answer(self, answer: Callable[[bytes, bytes], object], pending: list[Pending]) -> bool:
        """Answer what was handed off, as far as the peers have room; whether anything was answered."""
        asked, self._asked = self._asked, []
        answers, self._answers = self._answers, []
        for done in answers:
            if self._driver.may_reply(done.handle):
                self._driver.reply(*done)
            else:
                self._answers.append(done)
        for handle, msgid, method, params in asked:
            if not self._driver.may_reply(handle):
                self._asked.append((handle, msgid, method, params))
                continue
            reply = answer(method, params)
            if isinstance(reply, bytes | Refused):
                self._driver.reply(handle, msgid, _frame(msgid, reply))
            else:
                pending.append(Pending(handle, msgid, self._clock.monotonic_ns(), method, reply))
        return len(self._asked) < len(asked) or len(self._answers) < len(answers)

    def _send(self, handle: int, stream: ServedStream) -> bool:
        """Send what there is room for, and close it when all is done; whether anything was sent."""
        data = self._driver.take_output(handle, stream.room_bytes, self._now_ms())
        if data:
            stream.send(data)
        if self._driver.should_close(handle):
            stream.close()
            self._forget(handle)
            self._lingering.append((stream, self._now_ms()))
        return bool(data)

    def _let_go(self) -> None:
        """Let go of those whose peers have ended as well, or take too long."""
        least_ms = self._now_ms() - LINGER_MS
        self._lingering = [
            (stream, since_ms)
            for stream, since_ms in self._lingering
            if since_ms >= least_ms and not _has_ended(stream)
        ]

    def _forget(self, handle: int) -> None:
        del self._streams[handle]
        self._driver.close(handle)


def _has_ended(stream: ServedStream) -> bool:
    try:
        return stream.receive(RECEIVE_BYTES) == b""
    except OSError:
        return True


def _frame(msgid: int, answer: bytes | Refused) -> bytes:
    head = b"\x94" + msgpack.packb(RESPONSE) + msgpack.packb(msgid)
    return head + (answer.error + _NIL if isinstance(answer, Refused) else _NIL + answer)
