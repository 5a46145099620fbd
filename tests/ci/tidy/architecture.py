"""What the pages for developers say of the code: floors, packages, definitions in files, tests by name.

A table of a page names code when a cell of a row is a path and the next one holds definitions, each in backticks.
"""

from __future__ import annotations

import ast
import re
import tomllib
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

FENCE = re.compile(r"^```\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PART = re.compile(r"gossipkv\.(\w+)")
DRAWN = re.compile(r"\b(\w+)(?:/|\.py\b)")
ROW = re.compile(r"^\| .* \|$", re.MULTILINE)
PATH = re.compile(r"^`(\w+/[\w./-]+\.\w+)`$")
NAME = re.compile(r"`([^`]+)`")
CITED = re.compile(r"(?<=promise )P\d+|(?<=promises )P\d+|\bseed \d{3}\b")
TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
CYTHON_CLASS = re.compile(r"^(?:cdef )?(?:class|struct|enum) (\w+)")
CYTHON_FUNCTION = re.compile(r"^(\s*)(?:cp?def|def|async def)\b[^=#(]*?(\w+)\s*\(")


def section(text: str, title: str) -> str:
    """Part of a page below the heading `## title`."""
    return text.split(f"\n## {title}\n", 1)[1].split("\n## ", 1)[0]


# Floors


def floors(drawing: str) -> list[set[str]]:
    """Parts on each floor of a drawing whose floors are parted by lines of `+---`, from the top."""
    found: list[set[str]] = [set()]
    for line in drawing.splitlines():
        if line.strip().startswith("+--"):
            found.append(set())
        else:
            found[-1] |= set(DRAWN.findall(line))
    return [floor for floor in found if floor]


def contracts(root: Path) -> list[dict[str, list[str]]]:
    """The contracts of import-linter; the first has the floors."""
    stated = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    found: list[dict[str, list[str]]] = stated["tool"]["importlinter"]["contracts"]
    return found


def built(root: Path) -> list[set[str]]:
    """Parts on each floor of the first contract, from the top; what starts the command stands on none that is drawn."""
    found = [{*PART.findall(floor)} for floor in contracts(root)[0]["layers"]]
    return [floor for floor in found if floor != {"__main__"}]


# The tree of the code


def listed_tree(listing: str) -> set[str]:
    """Paths that an indented listing names: a package ends with a slash; the first line is their root."""
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
    """Packages at and below a package, and the modules that stand in it directly, as `listed_tree` names them."""
    root = package.parent
    packages = {f"{path.parent.relative_to(root).as_posix()}/" for path in package.rglob("__init__.py")}
    modules = {path.relative_to(root).as_posix() for path in package.glob("*.py") if path.name != "__init__.py"}
    return packages | modules


# Definitions


def definitions(path: Path) -> set[str]:
    """What a file defines at its top, and `Class.method` for what its classes do."""
    text = path.read_text(encoding="utf-8")
    return set(_python(ast.parse(text)) if path.suffix == ".py" else _cython(text))


def rows(page: str) -> Iterator[tuple[str, list[str]]]:
    """Each row of a page's tables that names a file: its path, and the definitions beside it."""
    for row in ROW.findall(page):
        cells = [cell.strip() for cell in row.strip("|").split(" | ")]
        for place, names in pairwise(cells):
            if (found := PATH.match(place)) is not None:
                yield found[1], NAME.findall(names)


def check_definitions(page: str, root: Path) -> list[str]:
    """Rows whose file does not exist, or lacks what it is said to define; or that say nothing."""
    wrong = []
    for place, names in rows(page):
        if not (root / place).is_file():
            wrong.append(f"{place}: there is no such file")
            continue
        defined = definitions(root / place)
        wrong += [f"{place}: does not define `{name}`" for name in names if name not in defined]
        wrong += [] if names else [f"{place}: no definition is named"]
    return wrong


def check_tests(page: str, root: Path) -> list[str]:
    """Tests that a page names by `path::name` and that do not exist."""
    return [
        f"{place}::{name}: there is no such test"
        for place, name in TEST.findall(page)
        if not (root / place).is_file() or name not in definitions(root / place)
    ]


def cited(texts: Iterable[str]) -> set[str]:
    """Promises and seeds that these texts name by their number: `P2`, `seed 001`."""
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
            elif owner and len(indent) == 4:  # One level; what stands deeper is local.
                yield f"{owner}.{name}"
        elif line and not line[0].isspace() and not line.startswith(("#", ")", "@", '"')):
            owner = ""
