"""Requirements: whose private interface is used has an upper bound, and what development uses is pinned with hashes."""

from __future__ import annotations

import ast
import re
import tomllib
from typing import TYPE_CHECKING

from packaging.requirements import Requirement

from tests.ci.tidy.source import sources

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# Modules that are not named as their package is.
PACKAGES = {"xdist": "pytest-xdist", "Cython": "cython", "pytest_trio": "pytest-trio"}
PRIVATE = re.compile(r"_(?!_)\w*")
PINNED = re.compile(r"^([\w.-]+)==(\S+) .*\\\n    --hash=sha256:[0-9a-f]{64}", re.MULTILINE)


def required(root: Path) -> list[Requirement]:
    """What pyproject.toml asks for, with the extras but for the benchmarks' peers, and what the build needs."""
    stated = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    project = stated["project"]
    lines = [*stated["build-system"]["requires"], *project["dependencies"]]
    lines += [line for name, extra in project["optional-dependencies"].items() if name != "bench" for line in extra]
    return [found for found in map(Requirement, lines) if found.name != project["name"]]


def unbounded(root: Path) -> set[str]:
    """The packages of which something private is used, and of which any newer version would be installed."""
    bounds: dict[str, bool] = {}
    for one in required(root):
        bounds[one.name] = bounds.get(one.name, False) or any(part.operator == "<" for part in one.specifier)
    python = [source for source in sources(root, "gossipkv", "tests") if not source.is_cython]
    used = {package for source in python for package in private(source.text, set(bounds))}
    return {package for package in used if not bounds[package]}


def private(text: str, packages: set[str]) -> set[str]:
    """The packages of which a module uses what begins with one underscore: imports, attributes, overrides, names."""
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
                yield [*imported[here.id], *names]  # After `import a.b` too, where it is a name too many.
        case ast.ClassDef(bases=bases, body=body):
            methods = [each.name for each in body if isinstance(each, ast.FunctionDef)]
            for base in (each.id for each in bases if isinstance(each, ast.Name) and each.id in imported):
                yield from ([*imported[base], method] for method in methods)
        case ast.Constant(str(name)) if re.fullmatch(r"\w+(\.\w+)+", name):
            yield name.split(".")


def unpinned(root: Path) -> set[str]:
    """What is required and is not pinned, with a hash, at a version that is allowed."""
    pins = dict(PINNED.findall((root / "requirements/dev.txt").read_text(encoding="utf-8")))
    pinned = {one.name: pins.get(one.name.lower().replace(".", "-"), "0") for one in required(root)}
    return {one.name for one in required(root) if pinned[one.name] == "0" or pinned[one.name] not in one.specifier}
