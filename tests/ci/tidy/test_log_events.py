from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from tests.ci.tidy.source import ROOT, sources

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


PAGE = "docs/operators/log.md"
ROW = re.compile(r"^\| `(\w+)` \| (info|warning|error) \|", re.MULTILINE)
LEVELS = {"debug", "info", "warning", "error", "critical", "exception"}


def written(root: Path) -> set[tuple[str, str]]:
    """Return each (event, level) in calls of a logger's methods and of `RepeatedWarnings.say`."""
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
    """Return each (event, level) that has a row on the page."""
    return set(ROW.findall((root / PAGE).read_text(encoding="utf-8")))


def test_every_event_is_explained_to_operators() -> None:
    """The table of the log has exactly the events of the package, with their levels."""
    assert written(ROOT) == explained(ROOT)


def test_an_event_without_a_row_is_seen(tmp_path: Path) -> None:
    """An event of any call form is found; a row of another level does not count."""
    package, page = tmp_path / "gossipkv", tmp_path / PAGE
    package.mkdir()
    page.parent.mkdir(parents=True)
    (package / "a.py").write_text(
        'self._log.error("burnt", reason=why)\nnode.log.info("lit")\nlog.info("lit")\n'
        'self._warnings.say("smoke", line)\nprint("no event")\nmath.log("no event")\n',
        encoding="utf-8",
    )
    page.write_text(
        "| event | level | means |\n|---|---|---|\n| `lit` | info | a |\n| `smoke` | error | b |\n", "utf-8"
    )
    assert written(tmp_path) - explained(tmp_path) == {("burnt", "error"), ("smoke", "warning")}
    assert explained(tmp_path) - written(tmp_path) == {("smoke", "error")}
