"""Parked requests, each of which waits for an event or its deadline: one heap of deadlines instead of a task for each.

The memory of all parked requests is bounded: beyond the bound, `begin` raises `Overloaded`. They outlive a store that
fails: each of its requests still gets an answer at its deadline.
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heappop, heappush
from math import inf
from typing import TYPE_CHECKING, final

import trio

from gossipkv.errors import Overloaded

if TYPE_CHECKING:
    from collections.abc import Callable

    OnLate = Callable[[], object]
    Waits = dict["ParkedRequest", None]


@final
@dataclass(slots=True, eq=False)
class ParkedRequest:
    """A parked request, until `end` or its deadline."""

    deadline: float
    size_bytes: int
    on_late: OnLate | None  # None: the request no longer waits.
    among: Waits  # All waits of its request.


@final
class ParkedRequests:
    """The parked requests of a node."""

    def __init__(self, most_bytes: int) -> None:
        self.sooner = trio.Event()  # Set if a new request has the next deadline: `run` must wake earlier.
        self._heap: list[tuple[float, int, ParkedRequest]] = []
        self._count = 0
        self.due = inf  # No deadline is before; sooner than the next one if its request has ended since.
        self.most_bytes = most_bytes
        self.bytes = 0
        self.waiting = 0

    async def run(self) -> None:
        """Wake requests at their deadlines until cancelled."""
        while True:
            self.sooner = trio.Event()
            self.wake(trio.current_time())
            with trio.move_on_at(self.due):
                await self.sooner.wait()

    def begin(self, deadline: float, size_bytes: int, on_late: OnLate, among: Waits | None = None) -> ParkedRequest:
        """Park a request; call `on_late` at its deadline unless it has ended before. `among` has it until then.

        Raises:
            Overloaded: parked requests already use too much memory.
        """
        if self.bytes + size_bytes > self.most_bytes:
            raise Overloaded("too many requests wait on this node; try again later", {"limit": self.most_bytes})
        waiter = ParkedRequest(deadline, size_bytes, on_late, {} if among is None else among)
        waiter.among[waiter] = None
        self._count += 1
        if deadline < self.due:
            self.due = deadline
            self.sooner.set()
        heappush(self._heap, (deadline, self._count, waiter))
        self.bytes += size_bytes
        self.waiting += 1
        return waiter

    def end(self, waiter: ParkedRequest) -> None:
        """Release a parked request without a call."""
        if waiter.on_late is not None:
            waiter.on_late = None
            del waiter.among[waiter]
            self.bytes -= waiter.size_bytes
            self.waiting -= 1

    def hurry(self, waiter: ParkedRequest) -> None:
        """Let the deadline of a request be now."""
        if (on_late := waiter.on_late) is not None:
            self.end(waiter)
            on_late()

    def wake(self, now: float) -> None:
        """Call `on_late` of the requests whose deadline has passed."""
        while self._heap and (self._heap[0][0] <= now or self._heap[0][2].on_late is None):
            self.hurry(heappop(self._heap)[2])
        if self._heap:
            self.due = self._heap[0][0]
        elif self.due <= now:
            self.due = inf
