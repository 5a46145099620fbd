"""Ticks: the periodic tasks of an idle process wake together.

A wake from sleep costs a quarter of a millisecond, however little the task does: the interpreter's code and data have
left the processor's caches. Tasks that wake at the same moment share this cost, and they also join a wake that the
process has for another reason (`join`). A timeout of Trio's ends by an exception in its task, so one task has the
timeout of all, and wakes the others by events.
"""

from __future__ import annotations

from math import inf
from typing import Final, final

import trio

# A rest lasts from and up to this many periods. Tasks whose rests overlap come together at the first wake.
SHORTEST: Final = 0.75
LONGEST: Final = 1.1  # Above 1, since the members of a cluster probe each other about each half-second or second.


@final
class _Ticks:
    """The resting tasks of one run of Trio."""

    def __init__(self) -> None:
        self._rests: dict[trio.Event, tuple[float, float]] = {}  # The first and the last time of each wake.
        self._alarm = trio.CancelScope()

    async def run(self) -> None:
        while True:
            with trio.CancelScope(deadline=self._due()) as self._alarm:
                await trio.sleep_forever()
            self.wake()

    def _due(self) -> float:
        return min((last for _, last in self._rests.values()), default=inf)

    def wake(self) -> None:
        """Wake the tasks that may wake now."""
        now = trio.current_time()
        for event in [event for event, (first, _) in self._rests.items() if first <= now]:
            del self._rests[event]
            event.set()
        self._alarm.deadline = self._due()

    async def rest(self, period_s: float, news: trio.Event) -> bool:
        now = trio.current_time()
        self._rests[news] = now + SHORTEST * period_s, now + LONGEST * period_s
        self._alarm.deadline = min(self._alarm.deadline, self._rests[news][1])
        try:
            await news.wait()
        finally:
            is_tick = self._rests.pop(news, None) is None
        return not is_tick


_TICKS: Final = trio.lowlevel.RunVar[_Ticks]("_TICKS")


def _ticks() -> _Ticks:
    try:
        return _TICKS.get()
    except LookupError:
        ticks = _Ticks()
        _TICKS.set(ticks)
        trio.lowlevel.spawn_system_task(ticks.run)
        return ticks


async def rest(period_s: float, news: trio.Event | None = None) -> bool:
    """Return after about `period_s` seconds, or once `news` is set; return True in the second case.

    `news` is set in both cases, so each rest needs a new event.
    """
    return await _ticks().rest(period_s, trio.Event() if news is None else news)


def join() -> None:
    """Wake the tasks whose rest may end now: the process is awake for another reason."""
    _ticks().wake()
