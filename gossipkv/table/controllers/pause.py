"""The pause between two rounds of a controller: short after news, then doubled each round up to a limit.

A controller that has had nothing to do for many rounds makes longer pauses: news will end them.
"""

from __future__ import annotations

from typing import Final, final

import trio

from gossipkv.environment.ticks import QUIET_S, rest

SHORTEST_S: Final = 0.1  # Changes at about the same time share a transaction.
QUIET_ROUNDS: Final = 10  # The consequences of news are over after so many rounds with nothing to do.
REST_FACTOR: Final = 9  # Rest at least 9 times as long as the round took, to leave the time to other tasks.


@final
class Pause:
    """The pause of one controller."""

    def __init__(self, longest_s: float) -> None:
        self._longest_s = longest_s
        self._next_s = SHORTEST_S
        self._quiet = 0  # Rounds in a row with nothing to do.
        self._news = trio.Event()

    def end(self) -> None:
        """Start the next round soon, since something has changed."""
        self._next_s, self._quiet = SHORTEST_S, 0
        self._news.set()

    async def rest(self, began: float, *, is_quiet: bool = False) -> None:
        """Wait until the next round is due, or there is news; the last round began at `began`.

        `is_quiet`: there is nothing to do until there is news.
        """
        now = trio.current_time()
        rests_until = now + min(max(SHORTEST_S, REST_FACTOR * (now - began)), self._longest_s)
        self._quiet = self._quiet + 1 if is_quiet else 0
        period_s = min(self._next_s, QUIET_S if self._quiet > QUIET_ROUNDS else self._longest_s)
        self._next_s = 2 * period_s
        await rest(period_s, self._news)
        if trio.current_time() < rests_until:
            await trio.sleep_until(rests_until)
        self._news = trio.Event()
