"""The README's commands are the ones that are tried, and no page of the documentation is lost or points nowhere."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tests.tidy.source import ROOT

if TYPE_CHECKING:
    from pathlib import Path

COMMAND = re.compile(r"^python3 -m venv \.venv && .*$", re.MULTILINE)
LINK = re.compile(r"\]\((?!https?:|#)([^)#\s]+)(?:#[^)]*)?\)")
WORD = re.compile(r"^([a-z]+):.*## ", re.MULTILINE)


def pages(root: Path = ROOT) -> list[Path]:
    """The pages that people read."""
    return [root / "README.md", root / "CHANGELOG.md", *sorted((root / "docs").rglob("*.md"))]


def dead_links(page: Path) -> list[str]:
    """The links of a page to files that do not exist."""
    return [link for link in LINK.findall(page.read_text(encoding="utf-8")) if not (page.parent / link).exists()]


def test_the_readme_has_two_lines() -> None:
    """One line ends in the demo and one in the tests, in that order, and continuous integration runs both."""
    demo, tests = COMMAND.findall((ROOT / "README.md").read_text(encoding="utf-8"))
    assert demo.endswith("&& .venv/bin/gossipkv demo")
    assert tests.endswith("&& .venv/bin/pytest -n 2")
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert "$(readme_line 'gossipkv demo')" in script
    assert "$(readme_line 'pytest -n 2')" in script


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    """Every relative link of a page names a file of the project."""
    assert dead_links(page) == []


def test_a_dead_link_is_seen(tmp_path: Path) -> None:
    """A link to nothing is reported, others are not."""
    page = tmp_path / "page.md"
    page.write_text("[a](page.md#part) [b](https://example.org/x) [c](gone.md) [d](#here)", encoding="utf-8")
    assert dead_links(page) == ["gone.md"]


def test_every_page_is_listed() -> None:
    """The index of the documentation links every page beside it."""
    index = ROOT / "docs" / "README.md"
    listed = set(LINK.findall(index.read_text(encoding="utf-8")))
    assert {path.name for path in index.parent.glob("*.md")} - {"README.md"} <= listed


def test_every_word_of_make_is_explained() -> None:
    """The page for developers names only words that the Makefile has, and continuous integration uses them."""
    words = set(WORD.findall((ROOT / "Makefile").read_text(encoding="utf-8")))
    explained = set(re.findall(r"\bmake ([a-z]+)", (ROOT / "docs" / "development.md").read_text(encoding="utf-8")))
    used = set(re.findall(r"(?m)^step .* tools ([a-z]+)$", (ROOT / ".ci" / "run").read_text(encoding="utf-8")))
    assert explained - {"alone"} <= words
    assert {"lint", "types", "dist"} == used
