"""Requests that Python has yet to answer: each connection's in order, the connections in turn.

An answer may take a millisecond (a page of a scan), and a connection may have a thousand requests on their way.  So the
pump answers for a moment at a time, and whoever asked for little waits for one answer of each other connection and not
for all of them.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from collections.abc import Iterable

HandOff = tuple[int, int, bytes, bytes]  # Handle of the connection, message id, method, parameters.


@final
class Backlog:
    """The requests; true while there are any."""

    def __init__(self) -> None:
        self._waiting: dict[int, deque[HandOff]] = {}  # By connection, in the order of their turns.
        self.size_bytes = 0  # of all parameters

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, hand_offs: Iterable[HandOff]) -> None:
        """They came in this order."""
        for hand_off in hand_offs:
            self._waiting.setdefault(hand_off[0], deque()).append(hand_off)
            self.size_bytes += len(hand_off[3])

    def take(self) -> HandOff:
        """The oldest request of the connection whose turn it is.  Requires: there is one."""
        handle, waiting = next(iter(self._waiting.items()))
        hand_off = waiting.popleft()
        self.size_bytes -= len(hand_off[3])
        del self._waiting[handle]
        if waiting:
            self._waiting[handle] = waiting
        return hand_off

    def forget(self, handle: int) -> None:
        """That connection is gone, and nobody awaits its answers."""
        for hand_off in self._waiting.pop(handle, ()):
            self.size_bytes -= len(hand_off[3])
