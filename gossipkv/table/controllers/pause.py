"""The pause between two looks of a task: short after news, and longer and longer while there is none."""

from __future__ import annotations

from typing import Final, final

import trio

SHORTEST_S: Final = 0.1  # Changes that come together are one transaction.
REST_FACTOR: Final = 9  # Rest at least 9 times what the look took: other tasks have most of the time.


@final
class Pause:
    """The pause of one task."""

    def __init__(self, longest_s: float) -> None:
        self._longest_s = longest_s
        self._next_s = SHORTEST_S
        self._news = trio.Event()

    def end(self) -> None:
        """Let the task look soon: something has changed."""
        self._next_s = SHORTEST_S
        self._news.set()

    async def rest(self, began: float) -> None:
        """Wait until the next look is due, or there is news; the last look began at `began`."""
        now = trio.current_time()
        look_at, self._next_s = now + self._next_s, min(2 * self._next_s, self._longest_s)
        await trio.sleep(min(max(SHORTEST_S, REST_FACTOR * (now - began)), self._longest_s))
        with trio.move_on_at(look_at):
            await self._news.wait()
        self._news = trio.Event()
