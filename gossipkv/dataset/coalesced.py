"""One run for all who asked before it began.

A look at a source may take seconds, and a peer may ask for one a thousand times in a breath.  What an asker needs is
a look that began after it asked, and any such look will do: so there is one at a time, and everyone who waits when it
begins shares it.  When it fails, the next of them tries for itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

import trio

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


@final
class Coalesced:
    """An action that is asked for more often than it need be done."""

    def __init__(self, action: Callable[[], Awaitable[None]]) -> None:
        self._action = action
        self._waiting = trio.lowlevel.ParkingLot()
        self._begun = 0  # How many runs have begun,
        self._done = 0  # and which was the last to succeed.
        self.running = False

    async def run(self) -> None:
        """Returns when a run has succeeded that began after this was called; raises what its own run raises."""
        wanted = self._begun + 1
        while self._done < wanted:
            if self.running:
                await self._waiting.park()
                continue
            self.running = True
            self._begun += 1
            run = self._begun
            try:
                await self._action()
                self._done = run
            finally:
                self.running = False
                self._waiting.unpark_all()
