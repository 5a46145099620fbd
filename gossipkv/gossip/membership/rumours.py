"""What is still to be told: parts that ride on packets until each was sent often enough.

A rumour has a key, and a newer one replaces it, with all its transmissions ahead.  Those sent least go first, the
newest of them before the others: in a burst nobody's first transmission waits for another's tenth.
"""

from __future__ import annotations

from typing import final

_SMALLEST_PART = 12  # A HEAD with small numbers.


@final
class Rumours:
    """A queue of parts, by how often each was sent."""

    __slots__ = ("_by_count", "_counts")

    def __init__(self) -> None:
        self._counts: dict[bytes, int] = {}  # How often the rumour of a key was sent.
        self._by_count: list[dict[bytes, bytes]] = [{}]  # By that: key and part, the newest last.

    def __len__(self) -> int:
        return len(self._counts)

    def __contains__(self, key: bytes) -> bool:
        return key in self._counts

    def add(self, key: bytes, part: bytes) -> None:
        """Tell this; it replaces what was to be told under the same key."""
        self.remove(key)
        self._counts[key] = 0
        self._by_count[0][key] = part

    def remove(self, key: bytes) -> None:
        """Tell no more under this key."""
        count = self._counts.pop(key, None)
        if count is not None:
            del self._by_count[count][key]

    def take(self, room: int, limit: int) -> list[bytes]:
        """Parts for one packet, together of at most `room` bytes; one that was sent `limit` times is done."""
        if not self._counts:
            return []
        chosen: list[tuple[int, bytes, bytes]] = []
        for count, queued in enumerate(self._by_count):
            for key in reversed(queued):
                part = queued[key]
                if len(part) <= room:
                    chosen.append((count, key, part))
                    room -= len(part)
                    if room < _SMALLEST_PART:
                        break
            if room < _SMALLEST_PART:
                break
        for count, key, part in chosen:
            self._sent(count, key, part, limit)
        return [part for _, _, part in chosen]

    def _sent(self, count: int, key: bytes, part: bytes, limit: int) -> None:
        del self._by_count[count][key]
        count += 1
        if count >= limit:
            del self._counts[key]
            return
        if count == len(self._by_count):
            self._by_count.append({})
        self._by_count[count][key] = part
        self._counts[key] = count
