"""Trio's loop, as one sees it that sleeps in its place.

A serving loop that waits for its own connections saves a request Trio's way to sleep and back, half of its processor
time, if it sleeps itself, beside the descriptor that Trio would sleep at, exactly where and as long as Trio would.  For
that it stands where Trio has its epoll object, of which Trio knows nothing; so this is the one place that knows the
private names.  If they are gone, or of another kind, or Trio does not sleep by them, or is a guest of another loop,
`find_loop` finds none and leaves everything as it was.  What else stands on it is shown by
`tests/unit/environment/test_trio_loop_slow.py` and by the tests of the pump.
"""

from __future__ import annotations

import select
from importlib import import_module
from time import monotonic
from typing import TYPE_CHECKING, Final, Protocol, final

import trio

if TYPE_CHECKING:
    from collections.abc import Callable

_EPOLL: Final = "_epoll"  # Trio's own object, which what manages its descriptors asks by this name.

_Events = list[tuple[int, int]]


class _Epoll(Protocol):
    """What Trio asks, and what it does with the rest of it."""

    def fileno(self) -> int: ...
    def poll(self, timeout: float, most: int, /) -> _Events: ...


@final
class TrioLoop:
    """The loop that this thread runs; it is asked through this one from its making until `close`."""

    def __init__(self, manager: object) -> None:
        self._manager = manager
        self._epoll: _Epoll = getattr(manager, _EPOLL)
        self._rest: Callable[[float], None] | None = None
        self.was_asked = False
        setattr(manager, _EPOLL, self)

    def sleep_by(self, rest: Callable[[float], None]) -> None:
        """Call `rest(seconds)` instead of sleeping so long; it returns earlier when `fileno` is readable."""
        self._rest = rest

    def close(self) -> None:
        """Have Trio sleep itself again."""
        setattr(self._manager, _EPOLL, self._epoll)

    def fileno(self) -> int:
        """The descriptor that Trio sleeps at: it tells of signals and of the ends of threads, too."""
        return self._epoll.fileno()

    def poll(self, timeout: float, most: int, /) -> _Events:
        """What Trio asks for: what has come, after `timeout` seconds at most."""
        self.was_asked = True
        if self._rest is None:
            return self._epoll.poll(timeout, most)
        until_s = monotonic() + timeout
        while True:
            self._rest(timeout)
            events = self._epoll.poll(0, most)
            timeout = until_s - monotonic()
            if events or timeout <= 0:
                return events

    def __getattr__(self, name: str) -> object:
        return getattr(self._epoll, name)


async def find_loop(name: str = "trio._core._run") -> TrioLoop | None:
    """The loop of this thread, by Trio's module of that name; None: it is none that one could sleep for."""
    try:
        runner = import_module(name).GLOBAL_RUN_CONTEXT.runner
        if runner.is_guest or not isinstance(getattr(runner.io_manager, _EPOLL), select.epoll):
            return None
        found = TrioLoop(runner.io_manager)
    except (ImportError, AttributeError):
        return None
    try:
        await trio.lowlevel.checkpoint()  # Trio looks at what has come.
    except BaseException:
        found.close()
        raise
    if found.was_asked:
        return found
    found.close()
    return None
