"""Logging: lines with fields on standard error, as text for people or JSON for a collector.

A line that cannot be written (the disk is full, the collector has gone) is lost and is no error: what a node does is
worth more than what it says of it.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from typing import final

import structlog


@final
class _Lines(structlog.WriteLogger):
    """Standard error, as far as it takes lines."""

    def msg(self, message: str) -> None:
        with contextlib.suppress(OSError):
            super().msg(message)

    log = debug = info = warn = warning = msg
    fatal = failure = err = error = critical = exception = msg


def configure(level: str, form: str) -> None:
    """Make every logger of this process write lines of `level` and above, in `form` (`text` or `json`)."""
    processors: list[structlog.types.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    if form == "json":
        processors += [
            structlog.processors.dict_tracebacks,
            structlog.processors.JSONRenderer(default=repr, ensure_ascii=False),
        ]
    else:
        colors = sys.stderr.isatty() and "NO_COLOR" not in os.environ
        plain = structlog.dev.plain_traceback
        processors += [structlog.dev.ConsoleRenderer(0, colors=colors, sort_keys=False, exception_formatter=plain)]
    structlog.configure(
        processors=processors,
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=lambda *_: _Lines(sys.stderr),
        cache_logger_on_first_use=True,
    )
