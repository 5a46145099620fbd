"""Coalesced runs of an action: one run serves all callers who asked before it began.

A look at a source may take seconds, and a peer may ask for one a thousand times at once.  A caller needs a look that
began after its call, and any such look will do.  One look runs at a time, and all callers that wait when it begins
share it.  If a run fails, the next waiting caller starts its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

import trio

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


@final
class Coalesced:
    """An action that is requested more often than it need run."""

    def __init__(self, action: Callable[[], Awaitable[None]]) -> None:
        self._action = action
        self._waiting = trio.lowlevel.ParkingLot()
        self._begun = 0  # The number of runs begun.
        self._done = 0  # The number of the last run that succeeded.
        self.running = False

    async def run(self) -> None:
        """Return once a run that began after this call has succeeded; raise the errors of this caller's own run."""
        needed_run = self._begun + 1
        while self._done < needed_run:
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
