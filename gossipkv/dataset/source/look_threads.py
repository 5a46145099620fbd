"""Threads that look at the source: one a database at most, and so many for all databases of a node together.

A look is abandoned by whoever no longer waits for it, and its thread may then hang on as long as the store does.  Its
places are taken until the thread ends, waited for or not, so that a thousand databases whose store hangs do not come
to a thousand threads, however often they are looked at.  The own place is taken first: a database that waits for its
own hanging look takes none of the common ones.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final, TypeVar, final

import trio

if TYPE_CHECKING:
    from collections.abc import Callable

    from gossipkv.environment.seam import Threads

_Found = TypeVar("_Found")

# Threads that wait for a store cost little; so many databases may hang before they are in the way of the others.
MOST_LOOKS: Final = 32


@final
class LookThreads:
    """The places that all databases of a node share."""

    def __init__(self, threads: Threads, most: int = MOST_LOOKS) -> None:
        self._threads = threads
        self._places = trio.CapacityLimiter(most)

    async def run(self, own: trio.CapacityLimiter, look: Callable[[], _Found]) -> _Found:
        """What `look` finds in a thread; `own` has the one place of whoever looks."""
        holder = object()
        begun = False
        thread = trio.CapacityLimiter(1)  # Taken as long as there is one, which may be abandoned before it begins.
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
            if not (begun or thread.borrowed_tokens):  # Cancelled before there was a thread.
                give_back()
