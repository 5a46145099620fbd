"""Log lines have fields in text and JSON, and loggers bind fields and levels."""

from __future__ import annotations

import json
import logging
import pathlib
import re

from gossipkv.log import Log
from gossipkv.processes import logs
from tests.world.logs import capture_logs, heard_by


def record_of(event: str, level: int = logging.INFO, error: Exception | None = None, **fields: object):
    raised = None if error is None else (type(error), error, error.__traceback__)
    record = logging.LogRecord("gossipkv.node", level, "", 0, event, (), raised)
    record.created = 1_700_000_000.25
    record.fields = fields
    return record


def raised() -> ValueError:
    try:
        [].remove(1)
    except ValueError as error:
        return error


def test_a_line_of_text():
    """The line has time, level, event and fields; odd values are quoted, and nothing controls the terminal."""
    line = logs.as_text(record_of("switched", database="geo", why="two words", empty="", odd="\x1b[2J", n=3, of=None))
    assert line == (
        "2023-11-14T22:13:20.250000Z [info    ] switched database=geo why='two words' empty= odd='\\x1b[2J' n=3 of=None"
    )


def test_colours_change_no_word():
    """A coloured line has the same text, and errors differ from warnings."""
    record = record_of("switched", logging.ERROR, database="geo")
    assert re.sub(r"\x1b\[[\d;]*m", "", logs.coloured(record)) == logs.as_text(record)
    colours = {level: logs.coloured(record_of("e", level)).partition("[\x1b[")[2][:5] for level in (30, 40)}
    assert colours[30] != colours[40]


def test_a_line_of_json():
    """The object has the common keys first, then the fields; values unknown to JSON appear in Python's form."""
    line = logs.as_json(record_of("built", logging.WARNING, database="zoë", path=pathlib.PurePosixPath("/x")))
    assert list(json.loads(line).items()) == [
        ("timestamp", "2023-11-14T22:13:20.250000Z"),
        ("level", "warning"),
        ("event", "built"),
        ("database", "zoë"),
        ("path", "PurePosixPath('/x')"),
    ]
    assert "zoë" in line


def test_a_traceback_is_told_whole():
    """A traceback is below the line in text, and a field in JSON."""
    record = record_of("defect", logging.ERROR, raised(), id=1)
    first, *below = logs.as_text(record).splitlines()
    assert first.endswith("] defect id=1")
    assert (below[0], below[-1]) == ("Traceback (most recent call last):", "ValueError: list.remove(x): x not in list")
    assert json.loads(logs.as_json(record))["exception"].splitlines() == below


def test_what_a_logger_says():
    """Bound fields come first, an exception comes with the event, and lower levels are dropped."""
    log, error = Log("gossipkv.test").bind(database="geo"), raised()
    with capture_logs() as told:
        log.debug("a", version="1")
        log.error("b", exc_info=error)
    assert told == [
        {"database": "geo", "version": "1", "event": "a", "log_level": "debug"},
        {"database": "geo", "exc_info": error, "event": "b", "log_level": "error"},
    ]
    assert list(told[0]) == ["database", "version", "event", "log_level"]
    heard = []
    with heard_by(lambda level, *_: heard.append(level), "warning"):
        log.info("c")
        log.warning("d")
    assert heard == ["warning"]
