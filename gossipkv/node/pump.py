"""The Trio shell of the serving loop: one task waits, steps, answers, sends.

A round: wait until the loop's epoll descriptor is readable; `step`, which serves what is ready and hands off what
Python must answer; answer of those what a moment allows, the connections in turn, and leave the rest for the next
round; `flush`, which sends all replies of a connection at once.  There is no task for a
connection and none for a request (a task costs six times what a local read does); only a result that has to be
waited for gets one.

A peer that does not read is not answered: its requests are parked until what waits for it is below `max_queued`.

Cancelling `run` closes every connection.  `drain` is the polite end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, final

import structlog
import trio

from gossipkv.node._serving import Loop
from gossipkv.node.backlog import Backlog

if TYPE_CHECKING:
    import socket

    from gossipkv.node._connection import Core
    from gossipkv.node.backlog import HandOff
    from gossipkv.node.handlers import Waiting

# How long a step may keep Trio's other tasks waiting; a round of Trio costs about 20 µs.
STEP_US = 1000

# How long Python answers before local reads have their turn again: that and one answer more is what they wait.
ANSWER_S = 0.001

# Parameters of requests that wait for their turn; beyond, nothing more is taken in.  A step adds at most as much again.
MAX_WAITING_BYTES = 16 * 1024 * 1024

# Parameters of requests that are parked; beyond, a connection is closed rather than parked.
MAX_PARKED_BYTES = 16 * 1024 * 1024

# How exact time-outs are.  A look at 10,000 connections takes about 1 ms.
EXPIRE_PERIOD_S = 0.5

# At most one line a minute for each reason.
REPORT_PERIOD_S = 60.0

# Counters that an operator should hear of.
TROUBLES = (
    "connections_refused",
    "connections_refused_by_address",
    "accept_pauses",
    "replies_dropped",
    "replies_too_large",
    "notifications_ignored",
    "duplicate_ids",
    "bad_requests",
    "closed_reset",
    "paused_for_all_hand_offs",
    "frames_too_large",
    "frames_too_deep",
    "frames_too_many_elements",
    "frames_malformed",
    "closed_bad_message",
    "closed_unasked_response",
    "closed_frame_timeout",
    "closed_output_timeout",
    "closed_memory",
)


class Answers(Protocol):
    """Whoever answers what the loop hands off."""

    def answer(self, msgid: int, method: bytes, params: bytes) -> bytes | Waiting:
        """The frame of the answer, or what to wait for.  Must not raise."""
        ...

    async def complete(self, msgid: int, method: bytes, waiting: Waiting) -> bytes:
        """The frame of an answer that took time."""
        ...


@final
class Pump:
    """Serves the connections of one listening socket, which it closes."""

    def __init__(self, core: Core, listener: socket.socket, answers: Answers) -> None:
        self._core = core
        self._loop = Loop(core, listener)
        self._answers = answers
        self._log = structlog.get_logger("gossipkv.node")
        self._nursery: trio.Nursery | None = None
        self._backlog = Backlog()
        self._draining = False
        self._drained = trio.Event()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until drained or cancelled."""
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                nursery.start_soon(self._serve)
                nursery.start_soon(self._expire)
                nursery.start_soon(self._report)
                task_status.started()
                await self._drained.wait()
                nursery.cancel_scope.cancel()
        finally:
            self._loop.close()

    async def drain(self, timeout_s: float) -> bool:
        """End politely: refuse newcomers, answer what has been asked; whether that was done within the time."""
        self._draining = True
        self._backlog.add(self._loop.drain())
        self._wake()
        with trio.move_on_after(timeout_s) as limit:
            await self._drained.wait()
        self._drained.set()
        return not limit.cancelled_caught

    async def _serve(self) -> None:
        loop = self._loop
        descriptor = loop.fileno()
        while True:
            if loop.has_work or self._backlog:
                await trio.lowlevel.checkpoint()
            else:
                await trio.lowlevel.wait_readable(descriptor)
            if self._backlog.size_bytes < MAX_WAITING_BYTES:
                self._backlog.add(loop.step(STEP_US))
            self._backlog.resume(self._core.reopened())
            if self._backlog:
                self._answer_some()
            if self._draining and loop.connections == 0:
                self._drained.set()

    def _answer_some(self) -> None:
        until = trio.current_time() + ANSWER_S
        while self._backlog:
            if self._core.may_reply(self._backlog.turn):
                self._answer(self._backlog.take())
            else:
                self._park(self._backlog.turn)
            if trio.current_time() > until:
                break
        self._loop.flush()

    def _park(self, handle: int) -> None:
        self._backlog.park(handle)
        if self._backlog.parked_bytes > MAX_PARKED_BYTES:
            self._core.drop(handle)
            self._backlog.forget(handle)

    def _answer(self, hand_off: HandOff) -> None:
        assert self._nursery is not None
        handle, msgid, method, params = hand_off
        frame = self._answers.answer(msgid, method, params)
        if not isinstance(frame, bytes):
            self._nursery.start_soon(self._complete, handle, msgid, method, frame)
        elif not self._core.reply(handle, msgid, frame):
            self._backlog.forget(handle)

    async def _complete(self, handle: int, msgid: int, method: bytes, waiting: Waiting) -> None:
        frame = await self._answers.complete(msgid, method, waiting)
        self._core.reply(handle, msgid, frame)
        self._loop.flush()
        self._wake()

    def _wake(self) -> None:
        """After something outside a round: what was held may go on, and a drain may be done."""
        if self._loop.has_work or self._draining:
            self._loop.wake()

    async def _expire(self) -> None:
        while True:
            await trio.sleep(EXPIRE_PERIOD_S)
            self._loop.expire()
            self._wake()

    async def _report(self) -> None:
        """One line a minute for each reason that has occurred."""
        before = self._core.counters()
        while True:
            await trio.sleep(REPORT_PERIOD_S)
            now = self._core.counters()
            for name in TROUBLES:
                if now[name] > before[name]:
                    self._log.warning("connection_trouble", reason=name, count=now[name] - before[name])
            before = now
