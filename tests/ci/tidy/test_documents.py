"""Continuous integration runs the README's commands, every page is listed, and every link resolves."""

from __future__ import annotations

import hashlib
import re
import tomllib
from typing import TYPE_CHECKING

import pytest

from tests.bench import page as page_of_figures
from tests.bench import report
from tests.ci.cluster.pages import FENCE
from tests.ci.tidy.source import ROOT, sources
from tests.world.nodes.scenarios import SCENARIOS

if TYPE_CHECKING:
    from pathlib import Path

COMMAND = re.compile(r"^python3 -m venv \.venv && .*$", re.MULTILINE)
LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]+))?\)")
IMAGE = re.compile(r'<img src="([^"]+)"')
NAMED = re.compile(r"(?<![\w/])docs/[\w/-]+\.md\b")
WORD = re.compile(r"^([a-z]+):.*## ", re.MULTILINE)


def pages(root: Path = ROOT) -> list[Path]:
    return [root / "README.md", root / "CHANGELOG.md", *sorted((root / "docs").rglob("*.md"))]


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page: its headings, as GitHub makes ids of them."""
    headings = re.findall(r"(?m)^#{1,6} (.*)$", FENCE.sub("", page.read_text(encoding="utf-8")))
    texts = (re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).strip().lower() for heading in headings)
    return {re.sub(r"[^\w\- ]", "", text).replace(" ", "-") for text in texts}


def dead_links(page: Path) -> list[str]:
    """Return the links of a page to missing files or headings."""
    dead = []
    text = page.read_text(encoding="utf-8")
    for path, heading in [*LINK.findall(text), *((path, "") for path in IMAGE.findall(text))]:
        file = page.parent / path if path else page
        if not file.exists() or (heading and heading not in anchors(file)):
            dead.append(f"{path}#{heading}" if heading else path)
    return dead


def unlisted(root: Path) -> set[str]:
    """Return the pages that neither the documentation's index nor a page beside them links."""
    docs = root / "docs"
    listed = {"README.md"} | {path for path, _ in LINK.findall((docs / "README.md").read_text(encoding="utf-8"))}
    for page in docs.glob("*/*.md"):
        folders = [path for path, _ in LINK.findall(page.read_text(encoding="utf-8")) if re.match(r"\w+/", path)]
        listed |= {f"{page.parent.name}/{path}" for path in folders}
    return {page.relative_to(docs).as_posix() for page in docs.rglob("*.md")} - listed


def lost_pages(text: str, root: Path = ROOT) -> list[str]:
    """Return the page paths in a text that do not exist."""
    return [name for name in NAMED.findall(text) if not (root / name).exists()]


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
    """Every relative link of a page names a file of the project and an existing heading."""
    assert dead_links(page) == []


def test_a_dead_link_is_seen(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    links = '[a](page.md#a-part-1) [b](https://example.org/x) [c](gone.md) [d](#here) <img src="no.png">'
    page.write_text(f"# A `part`: 1\n{links}\n```\n# here\n```\n", encoding="utf-8")
    assert dead_links(page) == ["gone.md", "#here", "no.png"]


def test_every_page_is_listed() -> None:
    assert unlisted(ROOT) == set()


def groups() -> list[list[str]]:
    """Return the pages of each group of the site's navigation."""
    text = (ROOT / "docs" / "index.rst").read_text(encoding="utf-8")
    return [re.findall(r"(?m)^   ([\w/.-]+)$", group) for group in text.split(".. toctree::")[1:]]


def test_the_navigation_is_short() -> None:
    """A reader of the site chooses among at most seven groups of at most eight pages."""
    assert len(groups()) <= 7
    assert [group for group in groups() if not 0 < len(group) <= 8] == []


def test_every_page_has_its_place_on_the_site() -> None:
    """The navigation has each page once."""
    docs = ROOT / "docs"
    nested = tomllib.loads((docs / "site" / "nested.toml").read_text(encoding="utf-8"))
    placed = [page for group in groups() for page in group] + [page for pages in nested.values() for page in pages]
    found = {page.relative_to(docs).with_suffix("").as_posix() for page in [*docs.rglob("*.md"), *docs.glob("*/*.rst")]}
    assert sorted(placed) == sorted(found - {"README"})


def test_a_page_outside_the_index_is_seen(tmp_path: Path) -> None:
    for name, text in {"README.md": "[a](users/a.md)", "users/a.md": "", "users/b.md": ""}.items():
        page = tmp_path / "docs" / name
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(text, encoding="utf-8")
    assert unlisted(tmp_path) == {"users/b.md"}


def test_pages_that_code_names_are_there() -> None:
    """A docstring or comment that cites a page has the page's current path."""
    lost = {source.where: lost_pages(source.text) for source in sources(ROOT, "gossipkv", "src_ext")}
    assert {where: names for where, names in lost.items() if names} == {}


def test_a_lost_page_is_seen(tmp_path: Path) -> None:
    """A path to a page that has moved is reported, and an existing path is not."""
    page = tmp_path / "docs" / "users" / "wire.md"
    page.parent.mkdir(parents=True)
    page.write_text("", encoding="utf-8")
    assert lost_pages("`docs/wire.md` and docs/users/wire.md.", tmp_path) == ["docs/wire.md"]


def stale_pictures(folder: Path) -> list[str]:
    """Return the texts whose picture is missing, or was drawn by `make diagrams` from another text."""
    stale = []
    for text in sorted(folder.glob("*.d2")):
        picture = text.with_suffix(".svg")
        source = f"<!-- {hashlib.sha256(text.read_bytes()).hexdigest()} -->\n"
        if not picture.exists() or not picture.read_text(encoding="utf-8").endswith(source):
            stale.append(text.name)
    return stale


def test_pictures_show_their_texts() -> None:
    assert stale_pictures(ROOT / "docs" / "diagrams") == []


def test_a_stale_picture_is_seen(tmp_path: Path) -> None:
    (tmp_path / "put.d2").write_text("client -> n1", encoding="utf-8")
    assert stale_pictures(tmp_path) == ["put.d2"]
    (tmp_path / "put.svg").write_text(f"<svg/><!-- {'0' * 64} -->\n", encoding="utf-8")
    assert stale_pictures(tmp_path) == ["put.d2"]


def test_figures_are_those_of_the_measurements() -> None:
    """The comparison page quotes figures only from the files of the benchmark."""
    cells = re.compile(r"^\| *(.+?) *\| *(.+?) *\| *(.+?) *\| *(.+?) *\|", re.MULTILINE)
    page = (ROOT / "docs" / "users" / "when-not.md").read_text(encoding="utf-8").partition("## Figures\n")[2]
    quoted = cells.findall(page)[2:]
    measured = [
        (row["what"], report.figure(row["ours"], row["unit"]), row["peer"], report.figure(row["theirs"], row["unit"]))
        for part in page_of_figures.read().values()
        for row in part["rows"]
        if "peer" in row
    ]
    assert len(quoted) > 5
    assert [row for row in quoted if row not in measured] == []


def test_every_scenario_of_whole_nodes_is_listed() -> None:
    page = (ROOT / "docs" / "development" / "whole-nodes.md").read_text(encoding="utf-8")
    section = page.partition("\n## Scenarios\n")[2].partition("\n## ")[0]
    assert set(re.findall(r"`(\w+)`", section)) == set(SCENARIOS)


def test_the_tests_of_each_package_are_named() -> None:
    """The contributors' page has a line for each package, and the tests that it names exist."""
    page = (ROOT / "docs" / "development" / "contributing.md").read_text(encoding="utf-8")
    section = page.partition("\n## The tests of each package\n")[2].partition("\n## ")[0]
    packages = {path.parent.name for path in (ROOT / "gossipkv").glob("*/__init__.py")}
    assert re.findall(r"(?m)^\| `gossipkv/(\w+)` ", section) == sorted(packages)
    assert [path for path in re.findall(r"`(tests/[a-z_/.]+)`", section) if not (ROOT / path).exists()] == []


def test_every_word_of_make_is_explained() -> None:
    """The page for developers names only words of the Makefile, and continuous integration uses those for checks."""
    words = set(WORD.findall((ROOT / "Makefile").read_text(encoding="utf-8")))
    page = ROOT / "docs" / "development" / "contributing.md"
    explained = set(re.findall(r"\bmake ([a-z]+)", page.read_text(encoding="utf-8")))
    used = set(re.findall(r'\bstep "[^"]*" tools ([a-z]+)', (ROOT / ".ci" / "run").read_text(encoding="utf-8")))
    assert explained - {"alone"} <= words
    assert {"lint", "types", "dist"} == used
