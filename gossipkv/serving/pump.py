"""The Trio shell of the serving loop: one task waits, and serves a round.

A round: `Loop.round` serves what is ready, answers what was handed off for a moment, the connections in turn, and
sends all answers of a connection at once.  What it has no time for is left to the next.  There is no task for a
connection and none for a request (a task costs six times what a local read does); only a result that has to be waited
for gets one (`DeferredResult`), unless it calls back (`Later`).

Where it can be, the serving loop sleeps in the place of Trio (`environment/trio_loop.py`): it serves then and there
what needs no Python, and the task waits until there is something that does.

The loop of a pump beside the first is served by a thread of its own.  The task has its turn when the bell has rung.

Cancelling `run` closes every connection.  `drain` is the polite end.
"""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Protocol, final

import msgpack
import trio

from gossipkv.errors import Overloaded, to_wire
from gossipkv.log import Log
from gossipkv.serving._serving import Pending, Refused, Welcome
from gossipkv.wire.results import DeferredResult, Later

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable

    from gossipkv.environment.seam import SocketFactory, SocketListener, Threads
    from gossipkv.serving._serving import Caller, Core, Loop, Turn
    from gossipkv.serving._transport import Transport

# How long a round may keep Trio's other tasks waiting; a round of Trio costs about 20 µs.
SERVE_US = 1000

# How long Python answers before local reads have their turn again: that and one answer more is what they wait.
ANSWER_US = 1000

# Answers that take time and are worked on at once, each in a task of some KiB; further ones are refused.
MAX_TASKS = 1000
OVERLOADED = Refused(
    msgpack.packb(to_wire(Overloaded("too many requests that take time; try again later", {"limit": MAX_TASKS})))
)

# Answers given before Trio's other tasks have a turn, when one result answers many: about half a millisecond.
PORTION = 1000

# As `Core.take_peer_events` has it: `(column, "lost" or "wanted" or "not_served", the reason, None or the error)`, or
# `(-1, "damaged", [database, key, version])`.
PeerEvent = tuple[int, str, str | bytes | None]

# `(token, result or None, error or None)`; neither: the peer is gone, or the time over.
PeerReply = tuple[int, bytes | None, bytes | None]

# How often those who served a table that is served no longer are looked at: its files are closed then.
RETIRED_PERIOD_S = 1.0


class Answers(Protocol):
    """Whoever answers what the loop hands off."""

    def answer(
        self, method: bytes | None, params: bytes, caller: Caller
    ) -> bytes | Refused | Welcome | DeferredResult | Later:
        """The result as MessagePack, an error, or what takes time: to `complete`, or to `begin`.  Must not raise.

        Of a read that no other node has answered the method is None, and the report stands for the parameters.
        """
        ...

    async def complete(self, method: bytes, waiting: DeferredResult) -> bytes | Refused | Welcome:
        """The result, or the error, of what took time."""
        ...

    def begin(self, method: bytes, later: Later, on_answer: Callable[[bytes | Refused], None]) -> None:
        """Begin what calls back; `on_answer` is called once with its result or error.  Must not raise."""
        ...


class PumpPeers(Protocol):
    """Whoever dials other nodes, and asks them through the core."""

    def hear(self, events: list[PeerEvent], replies: list[PeerReply]) -> None:
        """What became of them, and what they have answered, since the last time.  Must not raise."""
        ...


class MakeTransport(Protocol):
    """Makes what carries the bytes of a listener's connections, and of those of listeners beside, for RESP and HTTP.

    `polls`: it may look out before it sleeps.  None: another pump accepts.
    """

    def __call__(self, listener: SocketListener | None, *beside: SocketListener | None, polls: bool) -> Transport: ...


class DetachedSink(Protocol):
    """Whoever serves connections of HTTP of which a request is not plain."""

    def take(self, fd: int, begun: bytes, caller: Caller, /) -> None:
        """Serve it from now on, beginning with what has been received.  Must not raise."""
        ...


@final
class Pump:
    """Serves the connections of one loop."""

    def __init__(
        self,
        core: Core,
        loop: Loop,
        sockets: SocketFactory,
        answers: Answers,
        peers: PumpPeers | None = None,
        *,
        threads: Threads | None = None,
        gateway: DetachedSink | None = None,
    ) -> None:
        self._core = core
        self._loop = loop
        self._turn = core.turn or nullcontext()
        self._sockets, self._threads = sockets, threads
        self._answers = answers
        self._peers = peers
        self._gateway = gateway
        self._log = Log("gossipkv.node")
        self._nursery: trio.Nursery | None = None
        self._waiting: dict[Hashable, list[Pending]] = {}  # By what they share, those whose turn has not begun.
        self._draining = False
        self._drained = trio.Event()
        self._rests = False  # Whether the loop sleeps in the place of Trio.
        self._passed: trio.Event | None = None  # Set after the next round, for whoever waits for one.

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until drained or cancelled."""
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                nursery.start_soon(self._serve)
                task_status.started()
                await self._drained.wait()
                nursery.cancel_scope.cancel()
        finally:
            self._nursery = None
            with self._turn:
                self._loop.close()

    async def drain(self, timeout_s: float) -> bool:
        """End politely: refuse newcomers, answer what has been asked; whether that was done within the time."""
        self._draining = True
        with self._turn:
            self._loop.drain()
        self._wake()
        with trio.move_on_after(timeout_s) as limit:
            await self._drained.wait()
        self._drained.set()
        return not limit.cancelled_caught

    async def pass_round(self) -> None:
        """Return after a round that begins from now on; never, if there is none: the pump has ended, or hangs."""
        if self._passed is None:
            self._passed = trio.Event()
        if self._nursery is not None:
            with self._turn:
                self._loop.wake()
        await self._passed.wait()

    def end_those_of(self, users: Iterable[int]) -> None:
        """End the connections of users that are none any more, once what has arrived is answered."""
        with self._turn:
            for user in users:
                self._loop.end_those_of(user)
        self._wake()

    async def _serve(self) -> None:
        if self._core.turn is not None:
            await self._serve_beside(self._core.turn)
            return
        event_loop = await self._sockets.event_loop()
        try:
            if event_loop is not None and self._loop.watch_others(event_loop.fileno()):
                self._rests = True
                event_loop.sleep_by(partial(self._loop.rest, serve_us=SERVE_US))
            await self._serve_rounds()
        finally:
            if event_loop is not None:
                event_loop.close()

    async def _serve_beside(self, turn: Turn) -> None:
        """Have a thread serve, and answer what it hands off."""
        assert self._threads is not None, "a pump that has turns has a thread"
        async with trio.open_nursery() as nursery:
            run = partial(self._threads.run, limiter=trio.CapacityLimiter(1))  # It takes nobody's place for ever.
            nursery.start_soon(run, self._loop.serve_alone, SERVE_US)
            try:
                await self._serve_rounds()
            finally:
                with turn:
                    self._loop.stop()

    async def _serve_rounds(self) -> None:
        assert self._nursery is not None
        loop = self._loop
        while True:  # A round first: who woke the loop before it took the place of Trio did not ring for this task.
            with self._turn:
                for pending in loop.round(self._answers.answer, SERVE_US, ANSWER_US):
                    self._begin(pending)
                self._tell()
                is_drained = self._draining and loop.connection_count == 0
            if self._passed is not None:
                self._passed.set()
                self._passed = None
            if is_drained:
                self._drained.set()
            if loop.has_work and not self._rests:
                await trio.lowlevel.checkpoint()
            elif self._core.has_retired:
                with trio.move_on_after(RETIRED_PERIOD_S):
                    await self._sockets.wait_readable(loop)
            elif (due_s := loop.due_s) is None:
                await self._sockets.wait_readable(loop)
            else:
                with trio.move_on_after(due_s):
                    await self._sockets.wait_readable(loop)

    def _tell(self) -> None:
        """Pass on what became of peers, connections that others serve, and defects that were noticed."""
        events, replies = self._core.take_peer_events(), self._core.take_replies()
        if self._peers is not None and (events or replies):
            self._peers.hear(events, replies)
        for fd, caller, begun in self._loop.take_detached():
            assert self._gateway is not None, "a node that listens for HTTP has a gateway"
            self._gateway.take(fd, begun, caller)
        for invariant in self._core.broken_invariants():
            self._log.error("invariant_broken", invariant=invariant)

    def _begin(self, pending: Pending) -> None:
        """Have a task work on it, or join those who wait for the same; what calls back needs none."""
        if isinstance(pending.waiting, Later):
            self._answers.begin(pending.method, pending.waiting, partial(self._answer_later, pending))
            return
        assert isinstance(pending.waiting, DeferredResult)
        assert self._nursery is not None
        name = pending.waiting.shared_by
        name = pending if name is None else name
        if name in self._waiting:
            self._waiting[name].append(pending)
        elif len(self._waiting) < MAX_TASKS:
            self._waiting[name] = [pending]
            self._nursery.start_soon(self._complete, name)
        else:
            with self._turn:
                self._loop.refuse(pending, OVERLOADED)
            self._wake()

    def _answer_later(self, pending: Pending, answer: bytes | Refused) -> None:
        if self._nursery is not None:  # Else all connections are closed.
            with self._turn:
                self._loop.complete(pending, answer)
            self._wake()

    async def _complete(self, name: Hashable) -> None:
        """Answer all who asked before it began; then, once, all who have asked meanwhile."""
        while self._waiting[name]:
            asked, self._waiting[name] = self._waiting[name], []
            waiting = asked[0].waiting
            assert isinstance(waiting, DeferredResult)
            answer = await self._answers.complete(asked[0].method, waiting)
            for begin in range(0, len(asked), PORTION):
                if begin > 0:
                    await trio.lowlevel.checkpoint()
                with self._turn:
                    for pending in asked[begin : begin + PORTION]:
                        self._loop.complete(pending, answer)
                self._wake()
        del self._waiting[name]

    def _wake(self) -> None:
        """Look, after something outside a round, whether what was held may go on, and a drain is done."""
        if self._loop.has_work or self._draining or self._core.turn is not None:
            with self._turn:
                self._loop.wake()
