"""News on its way, told to a bounded number of members each.

One rumour a subject: the newer statement takes the place of the older and begins anew.  What was told the fewest times
goes first, of those the newest: in a flood of news everything gets out once before anything gets out twice.  A subject
has one rumour and there are no more subjects than members (or keys), so the queue is bounded by what it speaks of.
"""

from __future__ import annotations

from typing import Final, final

# A part that does not fit is passed by for smaller ones behind it, so far and no further.
_PASSED_BY: Final = 8


@final
class Rumours:
    """Parts of packets, by subject."""

    __slots__ = ("_told", "_waiting", "size")

    def __init__(self) -> None:
        self._waiting: list[dict[bytes, bytes]] = []  # By how often it was told; newest last.
        self._told: dict[bytes, int] = {}
        self.size = 0  # In bytes, of all together.

    def __len__(self) -> int:
        return len(self._told)

    def __contains__(self, subject: bytes) -> bool:
        return subject in self._told

    def add(self, subject: bytes, part: bytes) -> None:
        """Tell this from now on, and no longer what was told about the same subject."""
        self.remove(subject)
        if not self._waiting:
            self._waiting.append({})
        self._waiting[0][subject] = part
        self._told[subject] = 0
        self.size += len(part)

    def remove(self, subject: bytes) -> None:
        """Tell nothing about this any more."""
        told = self._told.pop(subject, None)
        if told is not None:
            self.size -= len(self._waiting[told].pop(subject))

    def take(self, room: int, limit: int) -> list[bytes]:
        """Parts for one packet of at most `room` bytes together; what was now told `limit` times is done with."""
        chosen: list[tuple[bytes, bytes, int]] = []
        passed_by = 0
        for told, rumours in enumerate(self._waiting):
            for subject in reversed(rumours):
                part = rumours[subject]
                if len(part) <= room:
                    room -= len(part)
                    chosen.append((subject, part, told))
                else:
                    passed_by += 1
                    if passed_by > _PASSED_BY:
                        break
            if passed_by > _PASSED_BY:
                break
        for subject, part, told in chosen:
            del self._waiting[told][subject]
            self._keep(subject, part, told + 1, limit)
        return [part for _, part, _ in chosen]

    def _keep(self, subject: bytes, part: bytes, told: int, limit: int) -> None:
        if told >= limit:
            del self._told[subject]
            self.size -= len(part)
            return
        while len(self._waiting) <= told:
            self._waiting.append({})
        self._waiting[told][subject] = part
        self._told[subject] = told
