"""Trio's loop, for a serving loop that sleeps in its place.

A serving loop that sleeps by itself, with Trio's descriptor among its own, spares each request the way through Trio's
sleep, half of its processor time. It sleeps exactly where and as long as Trio would. For that it replaces Trio's epoll
object, without Trio's knowledge; only this module knows the private names. `find_loop` returns None and changes nothing
if they are missing or of another kind, if Trio does not sleep by them, or if Trio is a guest of another loop. The
assumptions are tested in `tests/unit/environment/test_trio_loop_slow.py` and the tests of the pump.
"""

from __future__ import annotations

import select
from importlib import import_module
from time import monotonic
from typing import TYPE_CHECKING, Final, Protocol, final

import trio

if TYPE_CHECKING:
    from collections.abc import Callable

_EPOLL: Final = "_epoll"  # Trio's manager of descriptors finds its epoll object by this name.

_Events = list[tuple[int, int]]


class _Epoll(Protocol):
    """The methods that Trio calls; all other attributes are delegated."""

    register: Callable[[int, int], None]
    modify: Callable[[int, int], None]
    unregister: Callable[[int], None]

    def fileno(self) -> int: ...
    def poll(self, timeout: float, most: int, /) -> _Events: ...


@final
class TrioLoop:
    """The loop of this thread, which calls this object instead of epoll from its creation until `close`."""

    def __init__(self, manager: object) -> None:
        self._manager = manager
        self._epoll: _Epoll = getattr(manager, _EPOLL)
        self._rest: Callable[[float], None] | None = None
        self.was_asked = False
        # Trio calls these each time that it waits for a descriptor; `__getattr__` would take longer.
        self.register, self.modify, self.unregister = self._epoll.register, self._epoll.modify, self._epoll.unregister
        setattr(manager, _EPOLL, self)

    def sleep_by(self, rest: Callable[[float], None]) -> None:
        """Call `rest(seconds)` instead of sleeping; it returns earlier if `fileno` becomes readable."""
        self._rest = rest

    def close(self) -> None:
        """Let Trio sleep by itself again."""
        setattr(self._manager, _EPOLL, self._epoll)

    def fileno(self) -> int:
        """Return the descriptor at which Trio sleeps; it also signals signals and the ends of threads."""
        return self._epoll.fileno()

    def poll(self, timeout: float, most: int, /) -> _Events:
        """Return the events of the descriptors, after `timeout` seconds at most; Trio calls this."""
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
    """Return the loop of this thread, by the name of Trio's module; None if it cannot be replaced."""
    try:
        runner = import_module(name).GLOBAL_RUN_CONTEXT.runner
        if runner.is_guest or not isinstance(getattr(runner.io_manager, _EPOLL), select.epoll):
            return None
        found = TrioLoop(runner.io_manager)
    except (ImportError, AttributeError):
        return None
    try:
        await trio.lowlevel.checkpoint()  # Trio polls here.
    except BaseException:
        found.close()
        raise
    if found.was_asked:
        return found
    found.close()
    return None
