"""Logging: lines with fields on standard error, as text for people or JSON for a collector.

A node works regardless of its log. Lines go into a queue (`streams`), and are lost if its reader takes too few
(`log_lost`). Lines per event are limited (`log_limited`), and so are tracebacks per place.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
import time
import traceback
from typing import TYPE_CHECKING, Final, final

from gossipkv.log import ROOT, LineLimits, Log, fields_of
from gossipkv.processes.streams import OutputStream

if TYPE_CHECKING:
    from collections.abc import Callable

RESET, BOLD, DIM, CYAN, MAGENTA = "\x1b[0m", "\x1b[1m", "\x1b[2m", "\x1b[36m", "\x1b[35m"
LEVEL_COLOURS: Final = {"debug": "\x1b[1;32m", "info": "\x1b[1;32m", "warning": "\x1b[1;33m"}
ERROR_COLOUR: Final = "\x1b[1;31m"
LEVEL_WIDTH: Final = len("critical")
QUOTED: Final = frozenset(" =\"'")  # A value with one of these could not be told from its neighbours.
BELOW: Final = "exception"  # The field that is printed below the line.


@final
class _Lines(logging.Handler):
    """Writes lines to a descriptor, within the limits."""

    def __init__(self, descriptor: int, form: Callable[[logging.LogRecord], str]) -> None:
        super().__init__()
        self._form = form
        self._limits = LineLimits()
        self._guard = threading.Lock()  # Guards the limits, since threads log, too.
        self._log = Log(f"{ROOT}.log")
        self.stream = OutputStream(descriptor, self._tell_left_out)
        self.addFilter(self._lets)

    def emit(self, record: logging.LogRecord) -> None:
        self.stream.write(self._form(record) + "\n")

    def _lets(self, record: logging.LogRecord) -> bool:
        now = time.monotonic()
        with self._guard:
            if not self._limits.lets(str(record.msg), now):
                return False
            if record.exc_info is not None and (error := record.exc_info[1]) is not None:
                where = place_of(error)
                if not self._limits.lets_traceback(where, now):
                    record.exc_info = None
                    short = f"{traceback.format_exception_only(error)[-1].rstrip()} (at {where}; logged recently)"
                    record.__dict__["fields"] = {**fields_of(record), BELOW: short}
        return True

    def _tell_left_out(self, lost: int, now: float) -> None:
        if lost:
            self._log.warning("log_lost", lines=lost)
        with self._guard:
            left_out = self._limits.left_out(now)
        for event, lines in left_out.items():
            self._log.warning("log_limited", limited=event, lines=lines)


def configure(level: str, form: str) -> None:
    """Make writes to standard streams never wait for a reader, and send the loggers' lines to standard error.

    Lines of `level` and above are written, in `form` (`text` or `json`).
    """
    colours = sys.stderr.isatty() and "NO_COLOR" not in os.environ
    sys.stdout = OutputStream(1)
    sys.stderr = write_to(2, as_json if form == "json" else coloured if colours else as_text, level)


def write_to(descriptor: int, form: Callable[[logging.LogRecord], str], level: str = "debug") -> OutputStream:
    """Send the lines of all loggers of this process, of `level` and above, to a descriptor only."""
    root = logging.getLogger(ROOT)
    handler = _Lines(descriptor, form)
    root.handlers = [handler]
    root.propagate = False
    root.setLevel(level.upper())
    return handler.stream


def place_of(error: BaseException) -> str:
    """Return file, line and type of an error as one word for the place where it was raised."""
    trace, where = error.__traceback__, "nowhere"
    while trace is not None:
        where, trace = f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}", trace.tb_next
    return f"{where}:{type(error).__name__}"


def all_fields(record: logging.LogRecord) -> dict[str, object]:
    """Return the fields of a record, including its traceback as text."""
    fields = dict(fields_of(record))
    if record.exc_info is not None and record.exc_info[1] is not None:
        fields[BELOW] = "".join(traceback.format_exception(record.exc_info[1])).rstrip("\n")
    return fields


def as_json(record: logging.LogRecord) -> str:
    """Return a line for a collector: a JSON object."""
    line = {"timestamp": _time(record), "level": record.levelname.lower(), "event": record.msg, **all_fields(record)}
    return json.dumps(line, default=repr, ensure_ascii=False)


def as_text(record: logging.LogRecord, paint: Callable[[str, str], str] = lambda _, text: text) -> str:
    """Return a line for people, with the traceback below, if there is one."""
    fields = all_fields(record)
    below = fields.pop(BELOW, None)
    level = record.levelname.lower()
    head = [
        paint(DIM, _time(record)),
        f"[{paint(LEVEL_COLOURS.get(level, ERROR_COLOUR), f'{level:{LEVEL_WIDTH}}')}]",
        paint(BOLD, str(record.msg)),
    ]
    pairs = [f"{paint(CYAN, name)}={paint(MAGENTA, _plain(value))}" for name, value in fields.items()]
    line = " ".join(head + pairs)
    return line if below is None else f"{line}\n{below}"


def coloured(record: logging.LogRecord) -> str:
    """Return the line for people with colours for a terminal."""
    return as_text(record, lambda colour, text: f"{colour}{text}{RESET}")


def _time(record: logging.LogRecord) -> str:
    seconds, fraction = divmod(record.created, 1)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{int(fraction * 1e6):06d}Z"


def _plain(value: object) -> str:
    """Return a value unchanged if it is one word without control characters, else its repr."""
    return value if isinstance(value, str) and value.isprintable() and not QUOTED & set(value) else repr(value)
