"""docs/install.md is the one page that says where the package is, and it names the wheels that the workflow builds."""

from __future__ import annotations

import re
import tomllib

import pytest

from gossipkv import __version__
from tests.ci.cluster.pages import ROOT, blocks_of, pages

PAGE = "docs/install.md"
ADDRESS = "PIP_FIND_LINKS"


def text_of(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def test_one_line_says_where_the_package_is() -> None:
    """One variable on one page holds the address; each other page that installs the package links to this page."""
    assert [page for page in pages() if ADDRESS in text_of(page)] == [PAGE]
    assert text_of(PAGE).count(f"export {ADDRESS}=") == 1
    installing = [page for page in pages() if re.search(r"pip install\s+'?gossipkv", text_of(page))]
    assert [page for page in installing if page != PAGE and "install.md" not in text_of(page)] == []


def test_the_version_is_the_one_of_the_package() -> None:
    blocks = "".join(block.text for block in blocks_of(PAGE))
    assert set(re.findall(r"gossipkv(?:\[\w+\])?(?:==|-)(\d[\d.]*\d)", blocks)) == {__version__}


def test_each_extra_is_named() -> None:
    """The table of extras has those of pyproject.toml that are for users."""
    extras = set(tomllib.loads(text_of("pyproject.toml"))["project"]["optional-dependencies"])
    table = text_of(PAGE).partition("## Extras\n")[2].partition("\n## ")[0]
    named = {name for row in re.findall(r"(?m)^\| (`.*?) \|", table) for name in re.findall(r"`(\w+)`", row)}
    assert named == extras - {"bench", "dev", "docs", "slow", "test"}


def test_the_workflow_builds_the_wheels_of_the_page() -> None:
    """Glibc and musl, two processors, four versions of Python: and each wheel runs the smoke test."""
    yaml = pytest.importorskip("yaml")
    wheels = yaml.safe_load(text_of(".github/workflows/wheels.yml"))["jobs"]["wheels"]
    matrix = wheels["strategy"]["matrix"]
    assert (matrix["arch"], matrix["libc"]) == (["x86_64", "aarch64"], ["manylinux", "musllinux"])
    (build,) = (step["env"]["CIBW_BUILD"] for step in wheels["steps"] if "cibuildwheel" in step.get("uses", ""))
    assert build == " ".join(f"cp{number}-${{{{ matrix.libc }}}}_*" for number in (311, 312, 313, 314))
    assert ".ci/smoke.py" in tomllib.loads(text_of("pyproject.toml"))["tool"]["cibuildwheel"]["test-command"]
    assert "glibc and musl, x86-64 and aarch64, and CPython 3.11 to 3.14" in " ".join(text_of(PAGE).split())
