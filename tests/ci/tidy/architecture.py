"""Checks of the developers' pages against the code: floors, packages, definitions in files, tests by name.

A page names code as `file:definition`, in backticks.
"""

from __future__ import annotations

import ast
import re
import tomllib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

FENCE = re.compile(r"^```\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PART = re.compile(r"gossipkv\.(\w+)")
FLOOR_LINE = re.compile(r"^  (\w+)(?:/|\.py) ", re.MULTILINE)
DEFINITION = re.compile(r"`([\w/]+\.\w+):([\w.]+)`")
CITED = re.compile(r"(?<=promise )P\d+|(?<=promises )P\d+|\bseed \d{3}\b")
TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
CYTHON_CLASS = re.compile(r"^(?:cdef )?(?:class|struct|enum) (\w+)")
CYTHON_FUNCTION = re.compile(r"^(\s*)(?:cp?def|def|async def)\b[^=#(]*?(\w+)\s*\(")


def section(text: str, title: str) -> str:
    """Return the part of a page below the heading `## title`."""
    return text.split(f"\n## {title}\n", 1)[1].split("\n## ", 1)[0]


# Floors


def floors(listing: str) -> list[set[str]]:
    """Return the parts on each floor of a listing of the tree, from the top; blank lines separate floors."""
    return [set(FLOOR_LINE.findall(floor)) for floor in listing.split("\n\n")]


def contracts(root: Path) -> list[dict[str, list[str]]]:
    """Return the contracts of import-linter; the first has the floors."""
    stated = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    found: list[dict[str, list[str]]] = stated["tool"]["importlinter"]["contracts"]
    return found


def built(root: Path) -> list[set[str]]:
    """Return the parts on each floor of the first contract, from the top."""
    return [{*PART.findall(floor)} for floor in contracts(root)[0]["layers"]]


# The tree of the code


def listed_tree(listing: str) -> set[str]:
    """Return the paths in an indented listing: a package ends with a slash; the first line is their root."""
    found: set[str] = set()
    above: list[tuple[int, str]] = []
    for line in listing.splitlines():
        if not line.strip():
            continue
        indent = len(line) - len(line.lstrip())
        name = line.split()[0]
        above = [(depth, parent) for depth, parent in above if depth < indent]
        path = "".join(parent for _, parent in above) + name
        found.add(path)
        if name.endswith("/"):
            above.append((indent, name))
    return found


def real_tree(package: Path) -> set[str]:
    """Return the packages at and below a package, and its direct modules, as `listed_tree` names them."""
    root = package.parent
    packages = {f"{path.parent.relative_to(root).as_posix()}/" for path in package.rglob("__init__.py")}
    modules = {path.relative_to(root).as_posix() for path in package.glob("*.py") if path.name != "__init__.py"}
    return packages | modules


# Definitions


def definitions(path: Path) -> set[str]:
    """Return the definitions at the top of a file, and `Class.method` for methods."""
    text = path.read_text(encoding="utf-8")
    return set(_python(ast.parse(text)) if path.suffix == ".py" else _cython(text))


def check_definitions(page: str, root: Path) -> list[str]:
    """Return the `file:definition` of a page that do not exist."""
    wrong = []
    for place, name in DEFINITION.findall(page):
        if not (root / place).is_file():
            wrong.append(f"{place}: there is no such file")
        elif name not in definitions(root / place):
            wrong.append(f"{place}: does not define {name}")
    return wrong


def check_tests(page: str, root: Path) -> list[str]:
    """Return the tests that a page names by `path::name` and that do not exist."""
    return [
        f"{place}::{name}: there is no such test"
        for place, name in TEST.findall(page)
        if not (root / place).is_file() or name not in definitions(root / place)
    ]


def cited(texts: Iterable[str]) -> set[str]:
    """Return the promises and seeds that these texts cite by number: `P2`, `seed 001`."""
    return {name for text in texts for name in CITED.findall(text)}


def _python(tree: ast.Module) -> Iterator[str]:
    for node in tree.body:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                yield node.name
            case ast.ClassDef():
                yield node.name
                for inner in node.body:
                    if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef):
                        yield f"{node.name}.{inner.name}"
            case ast.Assign() | ast.AnnAssign():
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                yield from (target.id for target in targets if isinstance(target, ast.Name))


def _cython(text: str) -> Iterator[str]:
    owner = ""
    for line in text.splitlines():
        if (opened := CYTHON_CLASS.match(line)) is not None:
            owner = opened[1]
            yield owner
        elif (made := CYTHON_FUNCTION.match(line)) is not None:
            indent, name = made[1], made[2]
            if not indent:
                yield name
            elif owner and len(indent) == 4:  # This is one level; deeper definitions are local.
                yield f"{owner}.{name}"
        elif line and not line[0].isspace() and not line.startswith(("#", ")", "@", '"')):
            owner = ""
