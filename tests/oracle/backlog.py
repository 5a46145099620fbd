"""The order in which requests are answered, in plain Python: each connection's in order, the connections in turn."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from collections.abc import Iterable

HandOff = tuple[int, int, bytes, bytes]  # Handle of the connection, message id, method, parameters.


@final
class Backlog:
    """The waiting requests; true while one of them can be taken."""

    def __init__(self) -> None:
        self._waiting: dict[int, deque[HandOff]] = {}  # By connection, in the order of their turns.
        self._parked: dict[int, deque[HandOff]] = {}
        self.size_bytes = 0  # Methods and parameters that can be taken.
        self.parked_bytes = 0

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, hand_offs: Iterable[HandOff]) -> None:
        for hand_off in hand_offs:
            handle, size_bytes = hand_off[0], _size_bytes([hand_off])
            for earlier in {*self._waiting, *self._parked}:
                if earlier % 2**32 == handle % 2**32 and earlier != handle:
                    self.forget(earlier)
            if handle in self._parked:
                self._parked[handle].append(hand_off)
                self.parked_bytes += size_bytes
            else:
                self._waiting.setdefault(handle, deque()).append(hand_off)
                self.size_bytes += size_bytes

    @property
    def turn(self) -> int:
        """Return the connection whose turn it is. Requires: a request can be taken."""
        return next(iter(self._waiting))

    def take(self) -> HandOff:
        """Remove and return the oldest request of that connection. Requires: a request can be taken."""
        handle = self.turn
        waiting = self._waiting.pop(handle)
        hand_off = waiting.popleft()
        self.size_bytes -= _size_bytes([hand_off])
        if waiting:
            self._waiting[handle] = waiting
        return hand_off

    def park(self, handle: int) -> None:
        """Take the requests of a connection out of turn."""
        if handle not in self._waiting:
            return
        parked = self._waiting.pop(handle)
        size_bytes = _size_bytes(parked)
        self._parked[handle] = parked
        self.size_bytes -= size_bytes
        self.parked_bytes += size_bytes

    def resume(self, handles: Iterable[int]) -> None:
        """Put parked requests back, after all others."""
        for handle in handles:
            parked = self._parked.pop(handle, None)
            if parked is not None:
                self.parked_bytes -= _size_bytes(parked)
                self.add(parked)

    def forget(self, handle: int) -> None:
        """Drop the requests of a closed connection."""
        self.size_bytes -= _size_bytes(self._waiting.pop(handle, ()))
        self.parked_bytes -= _size_bytes(self._parked.pop(handle, ()))


def _size_bytes(hand_offs: Iterable[HandOff]) -> int:
    return sum(len(hand_off[2]) + len(hand_off[3]) for hand_off in hand_offs)
