from __future__ import annotations

import ast
import importlib.metadata
import re
import tomllib
from typing import TYPE_CHECKING

import pytest
from packaging.requirements import Requirement

from tests.ci.tidy.source import ROOT, sources

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


# Modules whose package has another name.
PACKAGES = {"xdist": "pytest-xdist", "Cython": "cython", "pytest_trio": "pytest-trio"}
PRIVATE = re.compile(r"_(?!_)\w*")
PINNED = re.compile(r"^([\w.-]+)==(\S+) .*\\\n    --hash=sha256:[0-9a-f]{64}", re.MULTILINE)


def required(root: Path, *, without: str = "") -> list[Requirement]:
    """Return the requirements of the build and of the extras, without those of benchmarks, the site and one more."""
    stated = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    project = stated["project"]
    lines = [*stated["build-system"]["requires"], *project["dependencies"]]
    extras = project["optional-dependencies"]
    lines += [line for name, extra in extras.items() if name not in {"bench", "docs", without} for line in extra]
    return [found for found in map(Requirement, lines) if found.name != project["name"]]


def unbounded(root: Path) -> set[str]:
    """Return the packages whose private names are used and whose versions have no upper bound."""
    bounds: dict[str, bool] = {}
    for one in required(root):
        bounds[one.name] = bounds.get(one.name, False) or any(part.operator == "<" for part in one.specifier)
    python = [source for source in sources(root, "gossipkv", "tests") if not source.is_cython]
    used = {package for source in python for package in private(source.text, set(bounds))}
    return {package for package in used if not bounds[package]}


def private(text: str, packages: set[str]) -> set[str]:
    """Return the packages of whose private names a module makes use: imports, attributes, overrides, names."""
    tree = ast.parse(text)
    imported = {name: path for node in ast.walk(tree) for name, path in _imported(node)}
    used = [path for node in ast.walk(tree) for path in _paths(node, imported)]
    tops = {path[0] for path in used if any(PRIVATE.fullmatch(part) for part in path[1:])}
    return {PACKAGES.get(top, top) for top in tops} & packages


def _imported(node: ast.AST) -> Iterator[tuple[str, list[str]]]:
    match node:
        case ast.Import(names):
            for each in names:
                path = each.name.split(".")
                yield (each.asname, path) if each.asname else (path[0], path)
        case ast.ImportFrom(str(module), names, 0):
            for each in names:
                yield each.asname or each.name, [*module.split("."), each.name]


def _paths(node: ast.AST, imported: dict[str, list[str]]) -> Iterator[list[str]]:
    match node:
        case ast.Import() | ast.ImportFrom():
            yield from (path for _, path in _imported(node))
        case ast.Attribute():
            names: list[str] = []
            here: ast.expr = node
            while isinstance(here, ast.Attribute):
                names.insert(0, here.attr)
                here = here.value
            if isinstance(here, ast.Name) and here.id in imported:
                yield [*imported[here.id], *names]  # After `import a.b` the path has a name too many.
        case ast.ClassDef(bases=bases, body=body):
            methods = [each.name for each in body if isinstance(each, ast.FunctionDef)]
            for base in (each.id for each in bases if isinstance(each, ast.Name) and each.id in imported):
                yield from ([*imported[base], method] for method in methods)
        case ast.Constant(str(name)) if re.fullmatch(r"\w+(\.\w+)+", name):
            yield name.split(".")


def pins_of(root: Path, name: str) -> dict[str, str]:
    """Return the versions that a file pins with a hash, by package."""
    return dict(PINNED.findall((root / f"requirements/{name}.txt").read_text(encoding="utf-8")))


def unpinned(root: Path) -> set[str]:
    """Return the requirements without a hashed pin at an allowed version.

    Feast needs another pandas than the rest; its tests install it for themselves.
    """
    pins, wanted = pins_of(root, "dev"), required(root, without="feast")
    pinned = {one.name: pins.get(one.name.lower().replace(".", "-"), "0") for one in wanted}
    return {one.name for one in wanted if pinned[one.name] == "0" or pinned[one.name] not in one.specifier}


HASH = f"--hash=sha256:{64 * 'a'}"
PROJECT = """
[build-system]
requires = ["wheel"]
[project]
name = "house"
dependencies = ["trio>=1", "lz4<5"]
[project.optional-dependencies]
test = ["house[more]", "backports.zstd>=2"]
"""


def test_what_is_used_privately_is_bounded() -> None:
    """A new version of such a package is installed only after a review."""
    assert unbounded(ROOT) == set()


@pytest.mark.parametrize(
    "text",
    [
        "import trio._core",
        "from trio._core import run",
        "import trio as t\nt.lowlevel._run",
        "from trio.testing import Clock\nclass Mine(Clock):\n    def _tick(self): ...",
        "import_module('trio._core._run')",
    ],
)
def test_private_use_is_seen(text: str) -> None:
    """Every way of access is found; public names and names of the project are not."""
    assert private(text, {"trio", "lz4"}) == {"trio"}
    assert (
        private("import trio\ntrio.run(main)\nself._trio\ntrio.__version__\nfrom house import _trio", {"trio"}) == set()
    )


def test_an_unbounded_requirement_is_seen(tmp_path: Path) -> None:
    """A package that is used privately without an upper bound is reported, whatever the bounds of others."""
    (tmp_path / "gossipkv").mkdir()
    (tmp_path / "tests").mkdir()
    (tmp_path / "pyproject.toml").write_text(PROJECT, encoding="utf-8")
    (tmp_path / "gossipkv" / "a.py").write_text("import lz4._v, trio._core", encoding="utf-8")
    assert unbounded(tmp_path) == {"trio"}


def test_all_that_development_uses_is_pinned() -> None:
    """Every requirement has a hashed pin at an allowed version, and the file names no index."""
    assert unpinned(ROOT) == set()
    assert "://" not in (ROOT / "requirements/dev.txt").read_text(encoding="utf-8")


def test_a_lost_pin_is_seen(tmp_path: Path) -> None:
    """Pins without a hash, with an old version, or missing are reported."""
    (tmp_path / "pyproject.toml").write_text(PROJECT, encoding="utf-8")
    pins = f"trio==1.0 ; python_version < '4' \\\n    {HASH}\nlz4==4.0\nbackports-zstd==1.0 \\\n    {HASH}\n"
    (tmp_path / "requirements").mkdir(exist_ok=True)
    (tmp_path / "requirements/dev.txt").write_text(pins, encoding="utf-8")
    assert unpinned(tmp_path) == {"lz4", "backports.zstd", "wheel"}


def test_the_image_has_what_development_has() -> None:
    """Its two files pin the package's and the build's requirements, transitively, at the tested versions."""
    stated = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    project, pins = stated["project"], pins_of(ROOT, "dev")
    for name, lines in (
        ("build", stated["build-system"]["requires"]),
        ("image", [*project["dependencies"], *project["optional-dependencies"]["secure"]]),
    ):
        found = pins_of(ROOT, name)
        assert found.items() <= pins.items()
        needed, seen = [Requirement(line) for line in lines], set()
        while needed:
            one = needed.pop()
            if one.name not in seen and (one.marker is None or one.marker.evaluate({"extra": ""})):
                seen.add(one.name)
                assert one.name.lower().replace(".", "-").replace("_", "-") in found, f"{name}: {one}"
                needed += map(Requirement, importlib.metadata.requires(one.name) or ())
