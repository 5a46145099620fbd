"""Warnings about a source, each said once: it is looked at every minute, and stays as it is for months."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gossipkv.log import Log

# So many different lines are enough of one source; a million odd names would fill the log, and this set.
MOST_WARNINGS = 1_000


class RepeatedWarnings:
    """The warnings that were said already."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._said: set[str] = set()

    def say(self, event: str, line: str) -> None:
        """Logs the line, the first time."""
        if line not in self._said and len(self._said) < MOST_WARNINGS:
            self._said.add(line)
            self._log.warning(event, reason=line)
