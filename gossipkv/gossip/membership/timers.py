"""Timers on one heap.

Timers are never cancelled. The caller keeps a token or a deadline that tells an old timer from the current one, and
checks it when the timer runs. So a timer that runs late, twice or after its reason has gone does no harm.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from collections.abc import Callable

NEVER: Final = 1 << 62


@final
class Timers:
    """Calls in the order of their times; calls for one time run in the order in which they were set."""

    __slots__ = ("_heap", "_serial", "next_ms")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Callable[[int], None]]] = []
        self._serial = 0
        self.next_ms = NEVER

    def at(self, at_ms: int, call: Callable[[int], None]) -> None:
        """Call `call(now_ms)` at the given time or as soon as possible after it."""
        self._serial += 1
        heapq.heappush(self._heap, (at_ms, self._serial, call))
        self.next_ms = min(self.next_ms, at_ms)

    def run(self, now_ms: int) -> None:
        """Run all due calls; a call that these set for now or earlier waits for the next run."""
        last = self._serial
        heap = self._heap
        again = []
        try:
            # A wrong `next_ms` would oversleep a timer.
            assert self.next_ms == (heap[0][0] if heap else NEVER), self.next_ms
            while heap and heap[0][0] <= now_ms:
                timer = heapq.heappop(heap)
                if timer[1] > last:
                    again.append(timer)
                else:
                    timer[2](now_ms)
        finally:  # If one call fails, the other timers stay.
            for timer in again:
                heapq.heappush(heap, timer)
            self.next_ms = heap[0][0] if heap else NEVER
