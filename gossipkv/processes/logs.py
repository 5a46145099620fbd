"""Logging: lines with fields on standard error, as text for people or JSON for a collector.

A line that cannot be written (the disk is full, the collector has gone) is lost and is no error: what a node does is
worth more than what it says of it.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sys
import time
import traceback
from typing import TYPE_CHECKING, Final, TextIO, final

from gossipkv.log import ROOT, fields_of

if TYPE_CHECKING:
    from collections.abc import Callable

RESET, BOLD, DIM, CYAN, MAGENTA = "\x1b[0m", "\x1b[1m", "\x1b[2m", "\x1b[36m", "\x1b[35m"
LEVEL_COLOURS: Final = {"debug": "\x1b[1;32m", "info": "\x1b[1;32m", "warning": "\x1b[1;33m"}
ERROR_COLOUR: Final = "\x1b[1;31m"
LEVEL_WIDTH: Final = len("critical")
QUOTED: Final = frozenset(" =\"'")  # A value with one of these would not be told from its neighbours.
BELOW: Final = "exception"  # The field whose lines stand below the line.


@final
class _Lines(logging.StreamHandler[TextIO]):
    """A stream, as far as it takes lines."""

    def __init__(self, stream: TextIO, form: Callable[[logging.LogRecord], str]) -> None:
        super().__init__(stream)
        self._form = form

    def emit(self, record: logging.LogRecord) -> None:
        line = self._form(record)
        with contextlib.suppress(OSError):
            self.stream.write(line + "\n")
            self.stream.flush()


def configure(level: str, form: str) -> None:
    """Make every logger of this process write lines of `level` and above, in `form` (`text` or `json`)."""
    colours = sys.stderr.isatty() and "NO_COLOR" not in os.environ
    send_to(_Lines(sys.stderr, as_json if form == "json" else coloured if colours else as_text), level)


def send_to(handler: logging.Handler, level: str = "debug") -> None:
    """Have every logger of this process send what it says, of `level` and above, there and nowhere else."""
    root = logging.getLogger(ROOT)
    root.handlers = [handler]
    root.propagate = False
    root.setLevel(level.upper())


def told(record: logging.LogRecord) -> dict[str, object]:
    """Return the fields of a record, its traceback as text among them."""
    fields = dict(fields_of(record))
    if record.exc_info is not None and record.exc_info[1] is not None:
        fields[BELOW] = "".join(traceback.format_exception(record.exc_info[1])).rstrip("\n")
    return fields


def as_json(record: logging.LogRecord) -> str:
    """Return a line for a collector: an object."""
    line = {"timestamp": _time(record), "level": record.levelname.lower(), "event": record.msg, **told(record)}
    return json.dumps(line, default=repr, ensure_ascii=False)


def as_text(record: logging.LogRecord, paint: Callable[[str, str], str] = lambda _, text: text) -> str:
    """Return a line for people, and below it a traceback if there is one."""
    fields = told(record)
    below = fields.pop(BELOW, None)
    level = record.levelname.lower()
    head = [
        paint(DIM, _time(record)),
        f"[{paint(LEVEL_COLOURS.get(level, ERROR_COLOUR), f'{level:{LEVEL_WIDTH}}')}]",
        paint(BOLD, str(record.msg)),
    ]
    said = [f"{paint(CYAN, name)}={paint(MAGENTA, _plain(value))}" for name, value in fields.items()]
    line = " ".join(head + said)
    return line if below is None else f"{line}\n{below}"


def coloured(record: logging.LogRecord) -> str:
    """Return the same for a terminal that has colours."""
    return as_text(record, lambda colour, text: f"{colour}{text}{RESET}")


def _time(record: logging.LogRecord) -> str:
    seconds, fraction = divmod(record.created, 1)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{int(fraction * 1e6):06d}Z"


def _plain(value: object) -> str:
    """Return a value as it is, if that is one word and nothing in it commands a terminal."""
    return value if isinstance(value, str) and value.isprintable() and not QUOTED & set(value) else repr(value)
