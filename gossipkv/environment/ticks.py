"""Ticks: the periodic tasks of an idle process wake together.

A wake from sleep costs a quarter of a millisecond, however little the task does: the interpreter's code and data have
left the processor's caches. Tasks that wake at the same moment share this cost. A timeout of Trio's ends by an
exception in its task, so one alarm wakes all tasks by events: Trio sleeps until its deadline, and an instrument moves
the deadline before Trio looks at it.
"""

from __future__ import annotations

from math import inf
from typing import Final, final

import trio

# A rest lasts from and up to this many periods. Tasks whose rests overlap come together at the first wake.
SHORTEST: Final = 0.75
LONGEST: Final = 1.1  # Above 1, since the members of a cluster probe each other about each half-second or second.
QUIET_S: Final = 5.0  # Period of looks that news should cause: they guard against news that was not told.


@final
class _Ticks(trio.abc.Instrument):
    """The resting tasks of one run of Trio."""

    def __init__(self) -> None:
        self._rests: dict[trio.Event, tuple[float, float]] = {}  # The first and the last time of each wake.
        self._due = inf  # The least of the last times.
        self._alarm = trio.CancelScope()  # Bounds Trio's sleep; its deadline is `_due`, and is moved before it passes.

    async def run(self) -> None:
        while True:
            with trio.CancelScope(deadline=self._due) as self._alarm:
                await trio.sleep_forever()
            self._wake()

    def after_io_wait(self, timeout: float) -> None:
        """Wake the tasks that are due, before Trio cancels what is due by a costly exception in each task."""
        del timeout
        if self._due <= trio.current_time():
            self._wake()

    def _look(self) -> None:
        self._due = self._alarm.deadline = min((last for _, last in self._rests.values()), default=inf)

    def _wake(self) -> None:
        """Wake the tasks that may wake now."""
        now = trio.current_time()
        for event in [event for event, (first, _) in self._rests.items() if first <= now]:
            del self._rests[event]
            event.set()
        self._look()

    async def rest(self, news: trio.Event, first: float, last: float) -> bool:
        self._rests[news] = first, last
        if last < self._due:
            self._due = self._alarm.deadline = last
        try:
            await news.wait()
        finally:
            is_tick = self._rests.pop(news, None) is None
        return not is_tick

    def move(self, news: trio.Event, at: float) -> None:
        if news in self._rests:
            self._rests[news] = at, at
            self._look()


_TICKS: Final = trio.lowlevel.RunVar[_Ticks]("_TICKS")


def _ticks() -> _Ticks:
    try:
        return _TICKS.get()
    except LookupError:
        ticks = _Ticks()
        _TICKS.set(ticks)
        trio.lowlevel.add_instrument(ticks)
        trio.lowlevel.spawn_system_task(ticks.run)
        return ticks


async def rest(period_s: float, news: trio.Event | None = None) -> bool:
    """Return after about `period_s` seconds, or once `news` is set; return True in the second case.

    `news` is set in both cases, so each rest needs a new event. News that comes while a rest ends by time is not told
    apart: a task that skips work has to note it itself.
    """
    now = trio.current_time()
    news = trio.Event() if news is None else news
    return await _ticks().rest(news, now + SHORTEST * period_s, now + LONGEST * period_s)


async def rest_until(at: float, news: trio.Event) -> bool:
    """Do as `rest` does until a certain time, which `move` changes."""
    return await _ticks().rest(news, at, at)


def move(news: trio.Event, at: float) -> None:
    """Change the time until which a task rests; do nothing if none rests for these news."""
    _ticks().move(news, at)
