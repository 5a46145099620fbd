"""The files of the page, in the package and over HTTP."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from setuptools import Distribution

import gossipkv.http.page
from gossipkv.http.answers import HttpRequest
from gossipkv.http.page.rendering import POLICY, TYPES, asset

PACKAGE = Path(gossipkv.http.page.__file__).parent
ROOT = PACKAGE.parent.parent.parent
TEXT = {
    path.name: path.read_text(encoding="utf-8")
    for path in PACKAGE.rglob("*")
    if path.suffix in {".html", ".css", ".js", ".svg"}
}


def test_archives_carry_every_file_of_the_page(monkeypatch):
    """The wheel and the source archive hold every file of the page that is no module."""
    monkeypatch.chdir(ROOT)
    distribution = Distribution()
    distribution.parse_config_files()
    build = distribution.get_command_obj("build_py")
    build.ensure_finalized()
    carried = {
        Path(source, name).resolve() for package, source, _, names in build.data_files
        if package == "gossipkv.http.page"
        for name in (name.removeprefix(f"{source}/") for name in names)
    }  # fmt: skip
    there = {path for path in PACKAGE.rglob("*") if path.is_file() and path.suffix not in {".py", ".pyc"}}
    assert carried == there
    included = (ROOT / "MANIFEST.in").read_text(encoding="utf-8")
    line = re.search(r"recursive-include gossipkv (.*)", included)
    assert line is not None
    assert {f"*{path.suffix}" for path in there} <= set(line[1].split())


@pytest.mark.parametrize("name", sorted(TYPES))
def test_an_asset_is_served_once_and_then_by_its_tag(name):
    """An asset has its exact type; a client with its tag gets 304."""
    answer = asset(name)
    assert answer is not None
    headers = dict(answer.headers)
    assert (answer.status, answer.body) == (200, TEXT[name].encode())
    assert headers[b"Content-Type"] == TYPES[name]
    assert b"max-age" in headers[b"Cache-Control"]
    tag = headers[b"ETag"]
    for given in (tag, b'"other", W/' + tag, b"*"):
        again = asset(name, HttpRequest(b"GET", b"/", {b"if-none-match": given}))
        assert again is not None
        assert (again.status, again.body, dict(again.headers)[b"ETag"]) == (304, b"", tag)
    fresh = asset(name, HttpRequest(b"GET", b"/", {b"if-none-match": b'"other"'}))
    assert fresh is not None
    assert fresh.status == 200


@pytest.mark.parametrize("name", ["", "page", "../pages.py", "page.html", "..%2fpages.py", "__init__.py", "PAGE.CSS"])
def test_nothing_else_is_an_asset(name):
    """Names are looked up in a table, never as a path."""
    assert asset(name) is None


def test_nothing_is_loaded_from_elsewhere():
    """No file names another host, and no page has inline styles or scripts."""
    for name, text in TEXT.items():
        found = set(re.findall(r"(?:https?:)?//[a-z][a-z0-9.-]+\.[a-z]+[^\s\"']*", text))
        assert found <= {"http://www.w3.org/2000/svg"}, name
    pages = "".join(text for name, text in TEXT.items() if name.endswith(".html"))
    assert not re.search(r"<style|\sstyle=|\son[a-z]+=|<script(?! src=\"/static/)|javascript:|\|safe", pages)


def test_the_policy_allows_what_the_page_has_and_nothing_else():
    rules = dict(rule.strip().split(" ", 1) for rule in POLICY.split(";"))
    assert rules["default-src"] == "'none'"
    assert {value for name, value in rules.items() if name.endswith("-src") and name != "default-src"} == {"'self'"}
    assert rules["form-action"] == "'self'", "the look-up"
    assert "unsafe" not in POLICY
