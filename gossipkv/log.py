"""Log events with fields, as records of the standard library's `logging`.

`processes.logs` writes them in our own processes. In other processes, unless configured, `logging` shows only warnings
and errors.
"""

from __future__ import annotations

import logging
from collections import Counter
from math import inf
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT: Final = "gossipkv"  # Root name of our loggers.
MAX_SPARED: Final = 1000  # Their number has no bound otherwise; further ones are not logged.

# Limits for lines of one event. The start of a node with hundreds of databases logs each event hundreds of times. A
# stranger who triggers an event constantly causes 20 MB of log a day.
MAX_BURST_LINES: Final = 500
LINES_PER_S: Final = 1.0
LIMITED_PERIOD_S: Final = 60.0


@final
class Log:
    """Logs events; bound fields come first in each."""

    __slots__ = ("_bound", "_logger")

    def __init__(self, name: str, bound: Mapping[str, object] | None = None) -> None:
        self._logger = logging.getLogger(name)
        self._bound = bound or {}

    def bind(self, **fields: object) -> Log:
        """Return a logger with additional bound fields."""
        return Log(self._logger.name, {**self._bound, **fields})

    def debug(self, event: str, **fields: object) -> None:
        self._say(logging.DEBUG, event, fields)

    def info(self, event: str, **fields: object) -> None:
        self._say(logging.INFO, event, fields)

    def warning(self, event: str, **fields: object) -> None:
        self._say(logging.WARNING, event, fields)

    def error(self, event: str, *, exc_info: BaseException | None = None, **fields: object) -> None:
        """Log an event, with the traceback of an exception."""
        self._say(logging.ERROR, event, fields, exc_info)

    def _say(self, level: int, event: str, fields: dict[str, object], error: BaseException | None = None) -> None:
        self._logger.log(level, event, exc_info=error, extra={"fields": {**self._bound, **fields}})


@final
class Sparing:
    """Suppresses repetitions: the same message is allowed again after `pause_s` at the earliest."""

    __slots__ = ("_logged", "_pause_s")

    def __init__(self, pause_s: float = 60.0) -> None:
        self._pause_s = pause_s
        self._logged: dict[tuple[object, ...], float] = {}  # Times of messages, oldest first.

    def lets(self, now: float, *message: object) -> bool:
        """Return True if that may be logged at `now`, in seconds of one clock; it then counts as logged."""
        while self._logged and now - self._logged[oldest := next(iter(self._logged))] >= self._pause_s:
            del self._logged[oldest]
        if message in self._logged or len(self._logged) >= MAX_SPARED:
            return False
        self._logged[message] = now
        return True


@final
class LineLimits:
    """Limits lines of each event: MAX_BURST_LINES at once and LINES_PER_S on average; suppressed lines are counted.

    Times are seconds of one clock.
    """

    __slots__ = ("_left_out", "_reported_at", "_room", "_tracebacks")

    def __init__(self) -> None:
        self._room: dict[str, tuple[float, float]] = {}  # Number of allowed lines, and the time of that number.
        self._left_out: Counter[str] = Counter()
        self._reported_at = -inf
        self._tracebacks = Sparing()

    def lets(self, event: str, now: float) -> bool:
        """Count a line of that event; returns False if it must be suppressed."""
        room, then = self._room.get(event, (MAX_BURST_LINES, now))
        room = min(MAX_BURST_LINES, room + (now - then) * LINES_PER_S)
        is_let = room >= 1
        self._room[event] = room - is_let, now
        if not is_let:
            self._left_out[event] += 1
        return is_let

    def lets_traceback(self, place: str, now: float) -> bool:
        """Return True if no traceback of that place in the code was logged within a minute."""
        return self._tracebacks.lets(now, place)

    def left_out(self, now: float) -> Counter[str]:
        """Return how many lines of each event were suppressed since the last report; empty within a minute of that."""
        if not self._left_out or now - self._reported_at < LIMITED_PERIOD_S:
            return Counter()
        self._reported_at = now
        left_out, self._left_out = self._left_out, Counter()
        return left_out


# Enough different lines of one source; a million odd names would fill the log, and this set.
MAX_WARNINGS = 1_000


class RepeatedWarnings:
    """Warnings about a source, logged once each: the source is scanned every minute, and stays the same for months."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._seen: set[str] = set()

    def say(self, event: str, line: str) -> None:
        """Log the line, the first time."""
        if line not in self._seen and len(self._seen) < MAX_WARNINGS:
            self._seen.add(line)
            self._log.warning(event, reason=line)


def fields_of(record: logging.LogRecord) -> Mapping[str, object]:
    """Return the fields of an event; records of other loggers have none."""
    fields: Mapping[str, object] = getattr(record, "fields", {})
    return fields
