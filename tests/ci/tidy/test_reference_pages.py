"""The pages below docs/reference are those that `make reference` writes."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

WRITTEN = runpy.run_path(str(Path(__file__).parents[3] / "docs" / "reference.py"))
PAGES: dict[Path, str] = WRITTEN["pages"]()


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_page(path: Path) -> None:
    assert path.exists(), "`make reference` writes this page"
    assert path.read_text(encoding="utf-8") == PAGES[path], (
        "the code has changed: `make reference` writes the page anew"
    )


def test_nothing_else_is_there() -> None:
    """The folder holds generated pages only; Sphinx fills one of them from docstrings."""
    written = {path.name for path in PAGES} | {"python.rst"}
    assert {path.name for path in WRITTEN["DIRECTORY"].iterdir()} == written


def test_any_text_fits_a_cell() -> None:
    """A bar or a line feed does not end a cell, and what looks like HTML or emphasis stays as it is."""
    assert WRITTEN["table"](["t"], [["a|b\nc"]]) == "| t |\n| --- |\n| a\\|b c |"
    assert WRITTEN["markdown"]("<x> `<y>` *") == "\\<x> `<y>` \\*"


def test_log_events_of_any_form_are_seen() -> None:
    calls = 'self._log.error("burnt", reason=why)', 'node.log.info("lit")', 'self._warnings.say("smoke", line)'
    found = [*WRITTEN["log_events"]("\n".join([*calls, 'math.log("no event")']))]
    assert found == [("burnt", "error", ["reason"]), ("lit", "info", []), ("smoke", "warning", ["reason"])]
