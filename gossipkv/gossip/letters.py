"""Parts put into as few messages as they fit into."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from collections.abc import Sequence


@final
class Letters:
    """Messages of at most `room` bytes of parts each, at most `most` of them."""

    __slots__ = ("_left", "_most", "_room", "bodies")

    def __init__(self, room: int, most: int) -> None:
        self._room = room
        self._most = most
        self._left = 0
        self.bodies: list[list[bytes]] = []

    def add(self, parts: Sequence[bytes]) -> bool:
        """Put these in, in order, those of one call into as many messages as it takes; false: none of them fits."""
        left, more = self._left, 0
        for part in parts:
            size = len(part)
            if size > self._room:
                return False
            if size > left:
                left, more = self._room, more + 1
            left -= size
        if len(self.bodies) + more > self._most:
            return False
        for part in parts:
            if len(part) > self._left:
                self.bodies.append([])
                self._left = self._room
            self.bodies[-1].append(part)
            self._left -= len(part)
        return True
