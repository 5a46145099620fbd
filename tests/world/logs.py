"""The program's log messages, captured by a test."""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING, final

from gossipkv.log import ROOT, fields_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    # The level, the event, its fields, and the exception.
    Hear = Callable[[str, str, Mapping[str, object], BaseException | None], object]


@final
class _Listener(logging.Handler):
    def __init__(self, hear: Hear) -> None:
        super().__init__()
        self._hear = hear

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        self._hear(record.levelname.lower(), str(record.msg), fields_of(record), error)


@contextlib.contextmanager
def heard_by(hear: Hear, level: str = "debug") -> Iterator[None]:
    """Send the messages of all loggers to `hear` alone while the block lasts."""
    root = logging.getLogger(ROOT)
    before = root.handlers, root.level, root.propagate
    root.handlers, root.propagate = [_Listener(hear)], False
    root.setLevel(level.upper())
    try:
        yield
    finally:
        root.handlers, level_before, root.propagate = before
        root.setLevel(level_before)


@contextlib.contextmanager
def capture_logs() -> Iterator[list[dict[str, object]]]:
    """Collect the messages of the block: `event`, `log_level` and the fields of each."""
    said: list[dict[str, object]] = []

    def hear(level: str, event: str, fields: Mapping[str, object], error: BaseException | None) -> None:
        raised = {} if error is None else {"exc_info": error}
        said.append({**fields, **raised, "event": event, "log_level": level})

    with heard_by(hear):
        yield said
