"""Threads that look at sources: at most one for a database, and a limited number for all databases of a node.

A look may be abandoned, and its thread may hang as long as the store does.  The thread keeps its places until it ends.
A thousand databases with a hanging store therefore do not occupy a thousand threads, however often they are looked at.
The database's own place is taken first: a database that waits for its own hanging look takes no common place.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final, TypeVar, final

import trio

if TYPE_CHECKING:
    from collections.abc import Callable

    from gossipkv.environment.seam import Threads

_Found = TypeVar("_Found")

# Threads waiting for a store cost little; this many databases may hang before they delay others.
MAX_LOOKS: Final = 32


@final
class LookThreads:
    """The places that all databases of a node share."""

    def __init__(self, threads: Threads, max_looks: int = MAX_LOOKS) -> None:
        self._threads = threads
        self._places = trio.CapacityLimiter(max_looks)

    async def run(self, own: trio.CapacityLimiter, look: Callable[[], _Found]) -> _Found:
        """Run `look` in a thread and return its result; `own` has the caller's single place."""
        holder = object()
        begun = False
        thread = trio.CapacityLimiter(1)  # Taken while the thread exists; a thread may be abandoned before it begins.
        token = trio.lowlevel.current_trio_token()

        def give_back() -> None:
            for limiter in (own, self._places):
                if holder in limiter.statistics().borrowers:
                    limiter.release_on_behalf_of(holder)

        def in_thread() -> _Found:
            nonlocal begun
            begun = True
            try:
                return look()
            finally:
                with contextlib.suppress(trio.RunFinishedError):
                    token.run_sync_soon(give_back)

        await own.acquire_on_behalf_of(holder)
        try:
            await self._places.acquire_on_behalf_of(holder)
            return await self._threads.run(in_thread, limiter=thread, abandon_on_cancel=True)
        finally:
            if not (begun or thread.borrowed_tokens):  # The caller was cancelled before the thread existed.
                give_back()
