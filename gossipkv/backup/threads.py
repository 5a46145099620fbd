"""Worker threads for places that may never answer, such as a dead mount."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final, TypeVar, TypeVarTuple, final

import trio

if TYPE_CHECKING:
    from collections.abc import Callable

    from gossipkv.environment.seam import Threads

MAX_THREADS: Final = 16  # They leave the other threads of the process alone.
PATIENCE_S: Final = 5.0  # Time for a call to end that is cancelled; then its thread is left to itself.
LOOK_S: Final = 0.05

_Arguments = TypeVarTuple("_Arguments")
_Result = TypeVar("_Result")


@final
class PatientThreads:
    """Threads whose callers, once cancelled, wait for a while and not for ever."""

    def __init__(self, threads: Threads) -> None:
        self._threads = threads
        self._limiter = trio.CapacityLimiter(MAX_THREADS)

    async def run(
        self,
        function: Callable[[*_Arguments], _Result],
        *arguments: *_Arguments,
        limiter: trio.CapacityLimiter | None = None,
        abandon_on_cancel: bool = False,
    ) -> _Result:
        """Run a function as `Threads.run` does; a cancelled caller waits `PATIENCE_S` at most."""
        begun, ended = threading.Event(), threading.Event()

        def work() -> _Result:
            begun.set()
            try:
                return function(*arguments)
            finally:
                ended.set()

        try:
            return await self._threads.run(work, limiter=limiter or self._limiter, abandon_on_cancel=True)
        except trio.Cancelled:
            with trio.CancelScope(shield=True), trio.move_on_after(0 if abandon_on_cancel else PATIENCE_S):
                while begun.is_set() and not ended.is_set():  # noqa: ASYNC110  # A thread left alone cannot set Trio's.
                    await trio.sleep(LOOK_S)
            raise
