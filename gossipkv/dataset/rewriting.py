"""A document that is rewritten after its content changes: at once, then once a second; failures are retried.

Rewriting delays no caller, and each write takes the content that holds at that moment.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

import trio

from gossipkv.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from gossipkv.log import Log

PERIOD_S: Final = 1.0
# Pauses between attempts that the system refused; the first is shorter than the pause before a build, which costs more.
FIRST_PAUSE_S = 0.5
LAST_PAUSE_S = 60.0


def pauses() -> Iterator[float]:
    """Yield the pauses in seconds before each new attempt that the system refused."""
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
        """Run another `write` once, while no rewriting runs.  Raises the errors of `write`."""
        async with self._writing:
            await write()

    def note(self) -> None:
        """Rewrite the document, since its content has changed."""
        self._changed.set()

    async def run(self) -> None:
        while True:
            await self._changed.wait()
            self._changed = trio.Event()
            await self._write_until_done()
            await trio.sleep(PERIOD_S)

    async def _write_until_done(self) -> None:
        last_reason: str | None = None
        for pause_s in pauses():
            if self._may_write():
                try:
                    await self.alone(self._write)
                except StorageError as error:
                    if last_reason != error.message:
                        self._log.warning("cannot_note", reason=error.message)
                    last_reason = error.message
                else:
                    return
            await trio.sleep(pause_s)
