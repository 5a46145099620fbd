"""The page about pitfalls names tests that exist, and the tests name the pitfalls."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

UNIT = Path(__file__).parents[1]
PAGE = UNIT.parents[1] / "docs" / "development" / "gossip-pitfalls.md"
ISSUE = re.compile(r"([A-Za-z][a-z-]*)?(#|CASSANDRA-)(\d+)")


def issues(text: str) -> set[str]:
    """Return the issues in a text; `#2` after `serf#1` is Serf's as well."""
    found, project = set(), ""
    for named, mark, number in ISSUE.findall(text):
        project = mark.rstrip("-").lower() if mark != "#" else named or project
        found.add(f"{project}#{number}")
    return found


def rows() -> list[tuple[set[str], list[str]]]:
    items = [item.partition("\n\n")[0] for item in PAGE.read_text(encoding="utf-8").split("\n- ")[1:]]
    return [(issues(item), re.findall(r"`([^`]+)`", item)) for item in items]


def files() -> Iterator[Path]:
    """Yield the files with tests of gossip and of shard ids, including night tests."""
    yield from UNIT.joinpath("gossip").rglob("test_*.py")
    yield from UNIT.joinpath("placement").glob("test_shard_claim*.py")


def docstrings() -> dict[str, str]:
    """Return the docstrings of these tests by the page's name for each test."""
    return {
        f"{path.relative_to(UNIT).as_posix().removeprefix('gossip/')}::{node.name}": ast.get_docstring(node) or ""
        for path in files()
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
    }


def tells(test: str, text: str, issue: str) -> bool:
    """Return True if a test names an issue in its docstring or its number in the name."""
    number = issue.partition("#")[2]
    return not {issue, f"#{number}"}.isdisjoint(issues(text)) or number in test.rpartition("::")[2].split("_")


def test_every_row_names_a_test_that_exists() -> None:
    """Every row names a test, and no test is named twice."""
    named = [test for _, tests in rows() for test in tests]
    assert all(tests for _, tests in rows())
    assert set(named) <= docstrings().keys()
    assert len(named) == len(set(named)) > 40


def test_every_pitfall_is_named_where_it_is_tested() -> None:
    """One of the row's tests names each issue."""
    texts = docstrings()
    untold = {issue for found, tests in rows() for issue in found if not any(tells(t, texts[t], issue) for t in tests)}
    assert untold == set()


def test_every_pitfall_of_the_tests_is_on_the_page() -> None:
    """No docstring names an issue that the page does not have."""
    named = set().union(*(issues(text) for text in docstrings().values()))
    listed = set().union(*(found for found, _ in rows()))
    assert {issue for issue in named if issue.partition("#")[0]} <= listed
