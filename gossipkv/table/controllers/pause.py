"""The pause between two rounds of a controller: short after news, then doubled each round up to a limit."""

from __future__ import annotations

from typing import Final, final

import trio

from gossipkv.environment.ticks import rest

SHORTEST_S: Final = 0.1  # Changes at about the same time share a transaction.
REST_FACTOR: Final = 9  # Rest at least 9 times as long as the round took, to leave the time to other tasks.


@final
class Pause:
    """The pause of one controller."""

    def __init__(self, longest_s: float) -> None:
        self._longest_s = longest_s
        self._next_s = SHORTEST_S
        self._news = trio.Event()

    def end(self) -> None:
        """Start the next round soon, since something has changed."""
        self._next_s = SHORTEST_S
        self._news.set()

    async def rest(self, began: float) -> None:
        """Wait until the next round is due, or there is news; the last round began at `began`."""
        now = trio.current_time()
        rests_until = now + min(max(SHORTEST_S, REST_FACTOR * (now - began)), self._longest_s)
        period_s, self._next_s = self._next_s, min(2 * self._next_s, self._longest_s)
        await rest(period_s, self._news)
        if trio.current_time() < rests_until:
            await trio.sleep_until(rests_until)
        self._news = trio.Event()
