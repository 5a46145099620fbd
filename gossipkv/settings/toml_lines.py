"""The line of a name in a TOML file, for messages: the standard library's parser keeps no positions.

A file that parses is read again by line, for headers (`[databases.geo]`) and assignments (`format = ...`). Text inside
a string of several lines may look like either; then a message names a wrong line, which is harmless.
"""

from __future__ import annotations

import re
import tomllib
from functools import lru_cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

_PART: Final = r"""(?:"[^"]*"|'[^']*'|[-\w]+)"""
_KEY: Final = rf"{_PART}(?:\s*\.\s*{_PART})*"
_HEADER: Final = re.compile(rf"\s*\[{{1,2}}\s*({_KEY})\s*\]")
_ASSIGNMENT: Final = re.compile(rf"\s*({_KEY})\s*=")


def line_of(text: str, *path: str) -> int | None:
    """Return the line of `path` (`"databases", "geo", "format"`): its assignment, else the start of its container.

    Raises nothing; returns None if no line is found.
    """
    lines = _lines(text)
    return next((lines[path[:depth]] for depth in range(len(path), 0, -1) if path[:depth] in lines), None)


@lru_cache(maxsize=1)  # Each name of a file is looked up.
def _lines(text: str) -> Mapping[tuple[str, ...], int]:
    """Return the first line of each name, and of each container of a name."""
    lines: dict[tuple[str, ...], int] = {}
    table: tuple[str, ...] = ()
    for number, line in enumerate(text.splitlines(), start=1):
        header, assignment = _HEADER.match(line), _ASSIGNMENT.match(line)
        if header is not None:
            table = found = _parts(header[1])
        elif assignment is not None:
            found = table + _parts(assignment[1])
        else:
            continue
        for depth in range(1, len(found) + 1):
            lines.setdefault(found[:depth], number)
    return lines


def _parts(key: str) -> tuple[str, ...]:
    """Split a dotted key; the parser handles quotes and escapes."""
    table: object
    try:
        table = tomllib.loads(f"{key} = 0")
    except tomllib.TOMLDecodeError:
        return ()
    parts = []
    while isinstance(table, dict):
        ((name, table),) = table.items()
        parts.append(name)
    return tuple(parts)
