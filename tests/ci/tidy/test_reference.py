"""The reference of the Python API can be built, has no dead links, and has the names that the pages use."""

from __future__ import annotations

import re
import subprocess
import sys
from html.parser import HTMLParser
from typing import TYPE_CHECKING
from urllib.parse import unquote

import pytest

from gossipkv import errors
from tests.ci.tidy.source import ROOT

if TYPE_CHECKING:
    from pathlib import Path

ELSEWHERE = {"https://pdoc.dev"}


class Page(HTMLParser):
    """The anchors of a page, and the targets that it links or loads."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.places: set[str] = set()
        self.links: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id" and value:
                self.places.add(value)
            elif name in {"href", "src"} and value and not value.startswith("data:"):
                self.links.append(value)


def dead_links(directory: Path) -> list[str]:
    """Return the links of all pages below a directory that lead to no page or anchor below it."""
    pages = {path: Page(path) for path in directory.rglob("*.html")}
    dead = []
    for path, page in pages.items():
        for link in page.links:
            name, _, place = link.partition("#")
            target = (path.parent / name).resolve() if name else path
            if link not in ELSEWHERE and (
                target not in pages or (place and unquote(place) not in pages[target].places)
            ):
                dead.append(f"{path.name}: {link}")
    return dead


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory of the pages, built as by `make docs`."""
    assert "docs/reference.py build/docs\n" in (ROOT / "Makefile").read_text(encoding="utf-8")
    directory = tmp_path_factory.mktemp("docs").resolve()
    subprocess.run([sys.executable, "-W", "error", ROOT / "docs" / "reference.py", directory], check=True, cwd=ROOT)
    return directory


def test_every_link_of_the_reference_leads_somewhere(built: Path) -> None:
    """All links stay within the pages; the pages load nothing from other machines."""
    assert dead_links(built) == []


def test_a_dead_link_of_the_reference_is_seen(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text(
        '<p id="x"><a href="#x"><a href="b.html#y"><a href="#z"><img src="https://o.org/i">'
    )
    (tmp_path / "b.html").write_text('<p id="y"><a href="c.html">')
    assert sorted(dead_links(tmp_path.resolve())) == ["a.html: #z", "a.html: https://o.org/i", "b.html: c.html"]


def test_the_reference_has_what_the_pages_name(built: Path) -> None:
    """Each method in docs/users/client.md and each error has an anchor; private members have none."""
    trio, blocking = (Page(built / name).places for name in ("gossipkv.html", "gossipkv/blocking.html"))
    page = (ROOT / "docs" / "users" / "client.md").read_text(encoding="utf-8")
    table = page.split("| method | gives |")[1].split("\n\n")[0]
    methods = {name for row in table.splitlines()[2:] for name in re.findall(r"`(\w+)", row.split("|")[1])}
    alone = {row.split("`")[1].partition("(")[0] for row in table.splitlines() if "blocking only" in row}
    assert {f"Client.{name}" for name in methods} - blocking == set()
    assert {f"Client.{name}" for name in methods - alone} - trio == set()
    assert {"connect", "Dataset.iter_get", "Table.put_many"} <= blocking
    assert {"connect", "Dataset.scan", "Scan.aclose", "Session.to_text", "Table.put_many"} <= trio
    assert {"Client.ask", "Client.deadline", "Client.__init__"} & (trio | blocking) == set()
    kinds = {name for name, one in vars(errors).items() if isinstance(one, type) and issubclass(one, Exception)}
    assert kinds - Page(built / "gossipkv" / "errors.html").places == set()
    assert {"Cluster.kill", "NodeStatus.state"} <= Page(built / "gossipkv" / "launcher.html").places
