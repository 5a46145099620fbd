"""A document that is rewritten when what it says has changed: at once, then once a second; a failure is tried again.

Nobody waits for it, so it holds nothing up; what is written is what holds when it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

import trio

from gossipkv.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from gossipkv.log import Log

PERIOD_S: Final = 1.0
# Between attempts at what the system refused; the first is sooner than a build would begin, which is more work.
FIRST_PAUSE_S = 0.5
LAST_PAUSE_S = 60.0


def pauses() -> Iterator[float]:
    """Pauses before each new attempt at what the system refused, in seconds."""
    pause_s = FIRST_PAUSE_S
    while True:
        yield pause_s
        pause_s = min(2 * pause_s, LAST_PAUSE_S)


@final
class Rewriting:
    """Keeps one document up to date; `write` writes it, and may raise StorageError."""

    def __init__(self, write: Callable[[], Awaitable[None]], may_write: Callable[[], bool], log: Log) -> None:
        self._write = write
        self._may_write = may_write
        self._log = log
        self._changed = trio.Event()
        self._writing = trio.Lock()

    async def alone(self, write: Callable[[], Awaitable[None]]) -> None:
        """Have the document written in another way, once, beside no rewriting.  Raises what `write` raises."""
        async with self._writing:
            await write()

    def note(self) -> None:
        """Have it written: what it says has changed."""
        self._changed.set()

    async def run(self) -> None:
        """Write, for ever."""
        while True:
            await self._changed.wait()
            self._changed = trio.Event()
            await self._write_at_last()
            await trio.sleep(PERIOD_S)

    async def _write_at_last(self) -> None:
        said: str | None = None
        for pause_s in pauses():
            if self._may_write():
                try:
                    await self.alone(self._write)
                except StorageError as error:
                    if said != error.message:
                        self._log.warning("cannot_note", reason=error.message)
                    said = error.message
                else:
                    return
            await trio.sleep(pause_s)
