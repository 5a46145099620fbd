"""What is to be done later, on one heap.

A timer is never cancelled: it is outlived.  Whoever sets one keeps what tells an old one from the current (a token, a
deadline) and checks it when the timer runs.  So a timer that runs late, twice or after its reason went does no harm.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from collections.abc import Callable

NEVER: Final = 1 << 62


@final
class Timers:
    """Calls in the order of their times; at one time in the order in which they were set."""

    __slots__ = ("_heap", "_serial", "next_ms")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Callable[[int], None]]] = []
        self._serial = 0
        self.next_ms = NEVER

    def at(self, at_ms: int, call: Callable[[int], None]) -> None:
        """Call `call(now_ms)` at the time given or as soon as possible after it."""
        self._serial += 1
        heapq.heappush(self._heap, (at_ms, self._serial, call))
        self.next_ms = min(self.next_ms, at_ms)

    def run(self, now_ms: int) -> None:
        """Call all that is due; what a call sets for now or earlier waits for the next run."""
        last = self._serial
        heap = self._heap
        again = []
        try:
            assert self.next_ms == (heap[0][0] if heap else NEVER), self.next_ms  # Else a timer was overslept.
            while heap and heap[0][0] <= now_ms:
                timer = heapq.heappop(heap)
                if timer[1] > last:
                    again.append(timer)
                else:
                    timer[2](now_ms)
        finally:  # One that fails takes no other with it.
            for timer in again:
                heapq.heappush(heap, timer)
            self.next_ms = heap[0][0] if heap else NEVER
