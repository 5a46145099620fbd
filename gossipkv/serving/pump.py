"""The Trio shell of a serving loop: one task waits, and serves rounds.

`Loop.round` serves ready connections, answers handed-off requests for a limited time, the connections in turn, and
sends all answers of a connection at once. The next round continues. There is no task per connection or request (a task
costs six times a local read); only a result that must be awaited gets one (`DeferredResult`), unless it calls back
(`Later`).

A request that waits is answered once: by its result, or before if its client cancels it or is gone. Then all that it
holds is freed, and a write that has begun goes on.

If possible, the serving loop sleeps in place of Trio (`environment/trio_loop.py`): it serves requests that need no
Python at once, and the task waits until Python is needed. A serving loop other than the first has a thread of its own,
and the task takes the core lock when the bell has rung. Cancelling `run` closes every connection; `drain` ends
politely.
"""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol, final

import msgpack
import trio

from gossipkv.errors import Overloaded, Unavailable, Unknown, to_wire
from gossipkv.log import Log
from gossipkv.serving._serving import PendingRequest, ProvenResult, Refusal
from gossipkv.wire.results import DeferredResult, Later

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable

    from gossipkv.environment.seam import SocketFactory, SocketListener, Threads
    from gossipkv.errors import GossipKVError
    from gossipkv.serving._serving import Caller, Core, CoreLock, GatheredWrites, Loop
    from gossipkv.serving._transport import Transport
    from gossipkv.wire.results import Completion
    from gossipkv.wire.rpc import Value

# A round may keep Trio's other tasks waiting this long; a round of Trio costs about 20 µs.
SERVE_US = 1000

# Python answers for this long before local reads have their turn; they wait at most for this and one answer.
ANSWER_US = 1000

# Concurrent answers that take time, each in a task of some KiB; further ones are refused.
MAX_TASKS = 1000


def _refusal(error: GossipKVError) -> Refusal:
    return Refusal(msgpack.packb(to_wire(error)))


OVERLOADED = _refusal(Overloaded("the node runs too many long requests; try again later", {"limit": MAX_TASKS}))
CANCELLED = _refusal(Unknown("the client has cancelled this request; a write may have been done, or be done later"))
ENDED = _refusal(Unavailable("this node ends the connection; go on at another node with the same token"))

# Polls wait for nothing but news. So they end before the node does; those of clients leave room for other requests.
POLL: Final = b"changes"
MAP_POLL: Final = b"map_changes"
POLLS: Final = frozenset((POLL, MAP_POLL))

# Answers given before Trio's other tasks have a turn, if one result answers many requests: about half a millisecond.
PORTION = 1000

# An event of `Core.take_peer_events`: `(column, "lost" or "wanted" or "not_served", the reason, None or the error)`, or
# `(-1, "damaged", [database, key, version])`.
PeerEvent = tuple[int, str, str | bytes | None]

# `(token, result or None, error or None)`; both None if the peer is gone, or the time is over.
PeerReply = tuple[int, bytes | None, bytes | None]

# Interval at which readers of retired tables are checked, so that the tables' files can be closed.
RETIRED_PERIOD_S = 1.0


class Answers(Protocol):
    """The methods that answer hand-offs of the loop."""

    def answer(
        self, method: bytes | None, params: bytes, caller: Caller
    ) -> bytes | Refusal | ProvenResult | DeferredResult | Later:
        """Return the result as MessagePack, an error, or a wait for `complete` or `begin`. Must not raise.

        For a read that no other node has answered, the method is None and `params` is the report.
        """

    async def complete(self, method: bytes, waiting: DeferredResult) -> bytes | Refusal | ProvenResult:
        """Return the result or the error of an answer that takes time."""

    def begin(self, method: bytes, later: Later, on_answer: Callable[[bytes | Refusal], None]) -> object:
        """Start an answer that calls back: `on_answer` is called once with its result or error. Must not raise.

        A function that is returned frees what the request holds; `on_answer` may be called then.
        """

    def may_write(self, user: int, table: str) -> bool:
        """Return True if a user, by number, may write to a table."""

    def begin_writes(self, gathered: list[GatheredWrites], *, may_wait: bool) -> bool:
        """Begin gathered writes; return False if they are to be gathered further. Must not raise.

        Those that are not begun then are answered one by one.
        """


class PumpPeers(Protocol):
    """The part of the node that connects to other nodes, and asks them through the core."""

    def hear(self, events: list[PeerEvent], replies: list[PeerReply]) -> None:
        """Take events of peers and their replies since the last call. Must not raise."""


class MakeTransport(Protocol):
    """Makes the transport for a listener, and for listeners `beside` for RESP and HTTP.

    With `polls` the loop may busy-poll before it sleeps. `listener` is None if another loop accepts.
    """

    def __call__(self, listener: SocketListener | None, *beside: SocketListener | None, polls: bool) -> Transport: ...


class DetachedSink(Protocol):
    """The server of HTTP connections with a request that is not plain."""

    def take(self, fd: int, begun: bytes, caller: Caller, /) -> None:
        """Serve the connection from now on, beginning with the received bytes. Must not raise."""


@final
class Pump:
    """The Trio task that serves the connections of one loop."""

    def __init__(
        self,
        core: Core,
        loop: Loop,
        sockets: SocketFactory,
        answers: Answers,
        peers: PumpPeers | None = None,
        *,
        max_polls: int,
        threads: Threads | None = None,
        gateway: DetachedSink | None = None,
    ) -> None:
        """`max_polls`: the maximum of open polls of change feeds on a connection."""
        self._core = core
        self._loop = loop
        self._lock = core.lock or nullcontext()
        self._sockets, self._threads = sockets, threads
        self._answers = answers
        self._peers = peers
        self._gateway = gateway
        self._log = Log("gossipkv.node")
        self._nursery: trio.Nursery | None = None
        # The requests that wait for a task's start, by the key that they share.
        self._tasks: dict[Hashable, list[PendingRequest]] = {}
        # By connection: the requests that wait for an answer, with functions that free what they hold.
        self._waiting: dict[int, dict[PendingRequest, Callable[[], object]]] = {}
        self._max_polls = max_polls
        words = f"this connection has {max_polls:,} polls of change feeds open, half of `max_in_flight`"
        self._too_many_polls = _refusal(Overloaded(f"{words}; use further connections", {"limit": max_polls}))
        self._draining = False
        self._drained = trio.Event()
        self._rests = False  # True if the loop sleeps in place of Trio.
        loop.gather(answers, self._wake)
        self._passed: trio.Event | None = None  # Set after the next round, if a task waits for a round.

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
            with self._lock:
                self._loop.close()

    async def drain(self, timeout_s: float) -> bool:
        """Refuse new clients and answer all received requests. Return True if that was done within the time."""
        self._draining = True
        with self._lock:
            self._loop.drain()
        self._wake()
        with trio.move_on_after(timeout_s) as limit:
            await self._drained.wait()
        self._drained.set()
        return not limit.cancelled_caught

    async def pass_round(self) -> None:
        """Return after a round that begins from now on; wait forever if none does, as the loop has ended or hangs."""
        if self._passed is None:
            self._passed = trio.Event()
        if self._nursery is not None:
            with self._lock:
                self._loop.wake()
        await self._passed.wait()

    def begin_writes(self) -> None:
        """Begin the writes that were left with the loop."""
        with self._lock:
            for pending in self._loop.begin_writes(self._answers.answer):
                self._begin(pending)
        self._wake()

    @property
    def map_polls(self) -> int:
        """Polls for maps that wait for news: nearly every node holds some of other nodes all the time."""
        return sum(pending.method == MAP_POLL for here in self._waiting.values() for pending in here)

    def end_those_of(self, users: Iterable[int]) -> None:
        """End the connections of removed users, once all received requests are answered."""
        with self._lock:
            for user in users:
                self._loop.end_those_of(user)
        self._wake()

    def cancel(self, handle: int, msgid: int, complete: Completion[Value]) -> None:
        """Answer a request of that connection now, if it waits."""
        complete(None)
        here = self._waiting.get(handle, {})
        for pending in [pending for pending in here if pending.msgid == msgid]:
            self._leave(pending, CANCELLED)
        with self._lock:
            self._loop.end_relay(handle, msgid, CANCELLED)

    async def _serve(self) -> None:
        if self._core.lock is not None:
            await self._serve_beside(self._core.lock)
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

    async def _serve_beside(self, lock: CoreLock) -> None:
        """Run the loop in a thread, and answer its hand-offs."""
        assert self._threads is not None, "a pump that has turns has a thread"
        async with trio.open_nursery() as nursery:
            # The thread has a limiter of its own, and so takes no other call's place.
            run = partial(self._threads.run, limiter=trio.CapacityLimiter(1))
            nursery.start_soon(run, self._loop.serve_alone, SERVE_US)
            try:
                await self._serve_rounds()
            finally:
                with lock:
                    self._loop.stop()

    async def _serve_rounds(self) -> None:
        assert self._nursery is not None
        loop = self._loop
        while True:  # A round comes first: a wake-up before the loop took Trio's place did not ring for this task.
            with self._lock:
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
        """Pass on peer events, detached connections, and broken invariants."""
        events, replies = self._core.take_peer_events(), self._core.take_replies()
        if self._peers is not None and (events or replies):
            self._peers.hear(events, replies)
        for fd, caller, begun in self._loop.take_detached():
            assert self._gateway is not None, "a node that listens for HTTP has a gateway"
            self._gateway.take(fd, begun, caller)
        for handle, is_gone in self._loop.take_left():
            for pending in [*self._waiting.get(handle, ())]:
                if is_gone or pending.method in POLLS:
                    self._leave(pending, ENDED)
        for invariant in self._core.broken_invariants():
            self._log.error("invariant_broken", invariant=invariant)

    def _begin(self, pending: PendingRequest) -> None:
        """Start a task for the request, or join one with the same key; a request that calls back needs no task."""
        waiting, here = pending.waiting, self._waiting.get(pending.handle, {})
        shared = waiting.shared_by if isinstance(waiting, DeferredResult) else None
        name = pending if shared is None else shared
        refusal = None
        if pending.method == POLL and sum(other.method == POLL for other in here) >= self._max_polls:
            refusal = self._too_many_polls
        elif isinstance(waiting, DeferredResult) and name not in self._tasks and len(self._tasks) >= MAX_TASKS:
            refusal = OVERLOADED
        if refusal is not None:
            with self._lock:
                self._loop.refuse(pending, refusal)
            self._wake()
            return
        here = self._waiting.setdefault(pending.handle, here)
        here[pending] = object  # It frees nothing.
        if name in self._tasks:
            self._tasks[name].append(pending)
        elif isinstance(waiting, DeferredResult):
            assert self._nursery is not None
            scope, self._tasks[name] = trio.CancelScope(), [pending]
            here[pending] = scope.cancel if waiting.may_end else object
            self._nursery.start_soon(self._complete, name, scope)
        else:
            later = pending.take()
            assert isinstance(later, Later)
            free = self._answers.begin(pending.method, later, partial(self._answer, pending))
            if callable(free) and pending in here:
                here[pending] = free

    def _claim(self, pending: PendingRequest) -> bool:
        """Return True if a request still waits for its answer, which it gets now."""
        here = self._waiting.get(pending.handle, {})
        is_waiting = here.pop(pending, None) is not None
        if is_waiting and not here:
            del self._waiting[pending.handle]
        return is_waiting

    def _answer(self, pending: PendingRequest, answer: bytes | Refusal) -> None:
        if self._claim(pending) and self._nursery is not None:  # All connections are closed otherwise.
            with self._lock:
                self._loop.complete(pending, answer)
            self._wake()

    def _leave(self, pending: PendingRequest, answer: Refusal) -> None:
        """Answer a request that waits, and free what it holds."""
        free = self._waiting[pending.handle][pending]
        self._answer(pending, answer)
        free()

    async def _complete(self, name: Hashable, scope: trio.CancelScope) -> None:
        """Answer all requests from before the start of the work; then, once more, all that came meanwhile."""
        with scope:
            while self._tasks[name]:
                asked, self._tasks[name] = self._tasks[name], []
                waiting = asked[0].waiting
                assert isinstance(waiting, DeferredResult)
                answer = await self._answers.complete(asked[0].method, waiting)
                for begin in range(0, len(asked), PORTION):
                    if begin > 0:
                        await trio.lowlevel.checkpoint()
                    with self._lock:
                        for pending in filter(self._claim, asked[begin : begin + PORTION]):
                            self._loop.complete(pending, answer)
                    self._wake()
        del self._tasks[name]

    def _wake(self) -> None:
        """Start a round after a change outside of rounds: held input may go on, or a drain may be done."""
        if self._loop.has_work or self._draining or self._core.lock is not None:
            with self._lock:
                self._loop.wake()
