"""What the program says of itself: events with fields, as records of the standard library's `logging`.

`processes.logs` says what becomes of them in a process of ours.  Where nobody has said so, `logging` is silent but for
warnings and errors.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT: Final = "gossipkv"  # What all loggers of ours are named after.
MOST_SPARED: Final = 1000  # Of strangers there is no end: further ones are not told.


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
