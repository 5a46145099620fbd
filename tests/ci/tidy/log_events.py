"""Log events: each that the package writes has its row, with its level, on the page for operators, and no other has."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from tests.ci.tidy.source import sources

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PAGE = "docs/operators/running.md"
ROW = re.compile(r"^\| `(\w+)` \| (info|warning|error) \|", re.MULTILINE)
LEVELS = {"debug", "info", "warning", "error", "critical", "exception"}


def written(root: Path) -> set[tuple[str, str]]:
    """Each (event, level): of the calls of a logger's methods, and of `RepeatedWarnings.say`."""
    calls = (node for source in sources(root, "gossipkv") if not source.is_cython for node in ast.walk(source.tree))
    return {event for node in calls if isinstance(node, ast.Call) for event in _event(node)}


def _event(call: ast.Call) -> Iterator[tuple[str, str]]:
    match call.func, call.args:
        case ast.Attribute(ast.Name(name) | ast.Attribute(attr=name), method), [ast.Constant(str(event)), *_]:
            if name.lstrip("_") == "log" and method in LEVELS:
                yield event, method
            elif name == "_warnings" and method == "say":
                yield event, "warning"


def explained(root: Path) -> set[tuple[str, str]]:
    """Each (event, level) that the page has a row for."""
    return set(ROW.findall((root / PAGE).read_text(encoding="utf-8")))
