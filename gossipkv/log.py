"""What the program says of itself: events with fields, as records of the standard library's `logging`.

`processes.logs` says what becomes of them in a process of ours.  Where nobody has said so, `logging` is silent but for
warnings and errors.
"""

from __future__ import annotations

import logging
from collections import Counter
from math import inf
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT: Final = "gossipkv"  # What all loggers of ours are named after.
MOST_SPARED: Final = 1000  # Of strangers there is no end: further ones are not told.

# Lines of one event.  A start of a node with hundreds of databases says each event hundreds of times; a stranger who
# makes a node say something again and again gets 20 MB a day of log.
MAX_BURST_LINES: Final = 500
LINES_PER_S: Final = 1.0
LIMITED_PERIOD_S: Final = 60.0


@final
class Log:
    """Says events; the fields that are bound to it come first in each."""

    __slots__ = ("_bound", "_logger")

    def __init__(self, name: str, bound: Mapping[str, object] | None = None) -> None:
        self._logger = logging.getLogger(name)
        self._bound = bound or {}

    def bind(self, **fields: object) -> Log:
        """Return one that says these as well."""
        return Log(self._logger.name, {**self._bound, **fields})

    def debug(self, event: str, **fields: object) -> None:
        self._say(logging.DEBUG, event, fields)

    def info(self, event: str, **fields: object) -> None:
        self._say(logging.INFO, event, fields)

    def warning(self, event: str, **fields: object) -> None:
        self._say(logging.WARNING, event, fields)

    def error(self, event: str, *, exc_info: BaseException | None = None, **fields: object) -> None:
        """Say an event, with the traceback of what was raised."""
        self._say(logging.ERROR, event, fields, exc_info)

    def _say(self, level: int, event: str, fields: dict[str, object], error: BaseException | None = None) -> None:
        self._logger.log(level, event, exc_info=error, extra={"fields": {**self._bound, **fields}})


@final
class Sparing:
    """What was told lately: the same is told again after `pause_s` at the earliest."""

    __slots__ = ("_pause_s", "_told")

    def __init__(self, pause_s: float = 60.0) -> None:
        self._pause_s = pause_s
        self._told: dict[tuple[object, ...], float] = {}  # When, in the order in which it was.

    def lets(self, now: float, *what: object) -> bool:
        """Whether that may be told now, in seconds of one clock; it counts as told then."""
        while self._told and now - self._told[oldest := next(iter(self._told))] >= self._pause_s:
            del self._told[oldest]
        if what in self._told or len(self._told) >= MOST_SPARED:
            return False
        self._told[what] = now
        return True


@final
class Limits:
    """Lines of each event: MAX_BURST_LINES at once and LINES_PER_S on average; the ones left out are counted.

    Times are seconds of one clock.
    """

    __slots__ = ("_left_out", "_room", "_told_at", "_tracebacks")

    def __init__(self) -> None:
        self._room: dict[str, tuple[float, float]] = {}  # How many lines may follow, and when that was so.
        self._left_out: Counter[str] = Counter()
        self._told_at = -inf
        self._tracebacks = Sparing()

    def lets(self, event: str, now: float) -> bool:
        """Count a line of that event; false if it is to be left out."""
        room, then = self._room.get(event, (MAX_BURST_LINES, now))
        room = min(MAX_BURST_LINES, room + (now - then) * LINES_PER_S)
        is_let = room >= 1
        self._room[event] = room - is_let, now
        if not is_let:
            self._left_out[event] += 1
        return is_let

    def lets_traceback(self, place: str, now: float) -> bool:
        """True if no traceback of that place in the code was told within a minute."""
        return self._tracebacks.lets(now, place)

    def left_out(self, now: float) -> Counter[str]:
        """Return how many lines of each event were left out since the last answer; nothing within a minute of that."""
        if not self._left_out or now - self._told_at < LIMITED_PERIOD_S:
            return Counter()
        self._told_at = now
        left_out, self._left_out = self._left_out, Counter()
        return left_out


# So many different lines are enough of one source; a million odd names would fill the log, and this set.
MOST_WARNINGS = 1_000


class RepeatedWarnings:
    """Warnings about a source, each said once: it is looked at every minute, and stays as it is for months."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._said: set[str] = set()

    def say(self, event: str, line: str) -> None:
        """Logs the line, the first time."""
        if line not in self._said and len(self._said) < MOST_WARNINGS:
            self._said.add(line)
            self._log.warning(event, reason=line)


def fields_of(record: logging.LogRecord) -> Mapping[str, object]:
    """Return the fields of an event; another's record has none."""
    fields: Mapping[str, object] = getattr(record, "fields", {})
    return fields
