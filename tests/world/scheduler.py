"""Virtual time: a heap of events.

An event is a tuple (microsecond, number, callable, two arguments); the number keeps events of one microsecond in the
order in which they were set, so the order depends on the inputs alone.  Events are never removed from the heap: the
callable decides whether the event still matters.
"""

from __future__ import annotations

from heapq import heappop, heappush
from itertools import count
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from collections.abc import Callable

MS = 1_000
SECOND = 1_000_000
HOUR = 3_600 * SECOND
NEVER = 1 << 62

Event = tuple[int, int, "Callable[[bytes, int], None]", bytes, int]


@final
class Scheduler:
    """The clock of a world, and its future events."""

    __slots__ = ("events", "happened", "next_number", "now_us")

    def __init__(self) -> None:
        self.now_us = 0
        self.happened = 0
        # Both are public for the network, which sets two thirds of all events and cannot afford a call.
        self.events: list[Event] = []
        self.next_number = count().__next__

    def at(self, at_us: int, do: Callable[[], None]) -> None:
        """Call `do` at that time; never before the present event."""
        heappush(self.events, (max(at_us, self.now_us), self.next_number(), lambda _data, _number: do(), b"", 0))

    def after(self, delay_us: int, do: Callable[[], None]) -> None:
        self.at(self.now_us + delay_us, do)

    def every(self, period_us: int, do: Callable[[], bool | None]) -> None:
        """Call `do` periodically, until it returns False."""

        def again() -> None:
            if do() is not False:
                self.after(period_us, again)

        self.after(period_us, again)

    def run(self, until_us: int) -> None:
        """Run all events up to and including `until_us`."""
        events, pop, happened = self.events, heappop, 0
        heappush(events, (until_us, NEVER, _nothing, b"", 0))
        while True:
            at_us, number, do, data, argument = pop(events)
            self.now_us = at_us
            if number == NEVER:
                break
            happened += 1
            do(data, argument)
        self.happened += happened


def _nothing(_data: bytes, _number: int) -> None:
    pass
