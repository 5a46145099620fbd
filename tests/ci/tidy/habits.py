"""House rules about the text itself: sizes, names, reasons for exceptions, foreign places."""

from __future__ import annotations

import re
from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from tests.ci.tidy.source import Source

MODULE_LINES = 600  # More holds two ideas, unless it is listed with its one.
MEDIAN_LINES = 200
FUNCTION_LINES = 70  # One screen.

VAGUE_NAMES = {"utils", "util", "helpers", "helper", "manager", "common", "misc"}


# Modules over the cap that hold one idea, and which; the cap counts ideas, and a cut would be worse than the length.
LONG_MODULES: dict[str, str] = {
    "src_ext/gossipkv/serving/_serving.pyx": "the one order of a round, also where it sleeps in the place of others",
}


def check_sizes(tree: list[Source], long_modules: dict[str, str] | None = None) -> list[str]:
    """Modules and functions over their size, and modules that are listed as long and are not."""
    listed = long_modules or {}
    sizes = {source.where: len(source.lines) for source in tree}
    wrong = [
        f"{where}: listed as long, but it has {sizes.get(where, 0)} lines"
        for where in sorted(listed)
        if sizes.get(where, 0) <= MODULE_LINES
    ]
    for source in tree:
        if len(source.lines) > MODULE_LINES and source.where not in listed:
            wrong.append(f"{source.where}: {len(source.lines)} lines, at most {MODULE_LINES}")
        wrong += [
            f"{source.where}:{function.line}: {function.name} has {function.lines} lines, at most {FUNCTION_LINES}"
            for function in source.functions
            if function.lines > FUNCTION_LINES
        ]
    return wrong


def check_median(tree: list[Source]) -> list[str]:
    """The middle module of the package is small, empty ones not counted."""
    sizes = [len(source.lines) for source in tree if source.path.name != "__init__.py" and source.lines]
    middle = median(sizes) if sizes else 0
    return [f"the median module has {middle} lines, at most {MEDIAN_LINES}"] if middle > MEDIAN_LINES else []


def check_names(tree: list[Source]) -> list[str]:
    """Files and folders whose name says nothing."""
    return [
        f"{source.where}: `{word}` says nothing about what is inside"
        for source in tree
        for part in source.path.relative_to(source.root).with_suffix("").parts
        for word in part.split("_")
        if word in VAGUE_NAMES
    ]


# An exception is a marker on a line; the reason is what stands after it, or in a comment of its own on that line.
MARKERS = {
    "Any": None,
    "type: ignore": re.compile(r"type:\s*ignore(\[[\w, -]+\])?"),
    "noqa": re.compile(r"noqa(:\s*[A-Z]+\d+(\s*,\s*[A-Z]+\d+)*)?"),
    "pragma": re.compile(r"pragma:\s*[\w ]+?(?=\s+[-#:(]|$)"),
    "no-cython-lint": re.compile(r"no-cython-lint"),
}
REASON = re.compile(r"\w+\W+\w+")  # Two words at least.


def exceptions(source: Source) -> list[tuple[int, str, bool]]:
    """Each exception of a file: its line, its marker, and whether a reason stands beside it."""
    found = []
    for number, code, comment in source.code_and_comments:
        if re.search(r"\bAny\b", code):
            found.append((number, "Any", bool(REASON.search(_unmarked(comment)))))
        for marker, pattern in MARKERS.items():
            if pattern is not None and pattern.search(comment):
                found.append((number, marker, bool(REASON.search(_unmarked(comment)))))
    return found


def _unmarked(comment: str) -> str:
    """What a comment says beside its markers."""
    rest = comment
    for pattern in MARKERS.values():
        rest = pattern.sub(" ", rest) if pattern is not None else rest
    return rest


def check_reasons(tree: list[Source]) -> list[str]:
    """Exceptions without a reason on their line."""
    return [
        f"{source.where}:{line}: `{marker}` without its reason on the line"
        for source in tree
        for line, marker, reasoned in exceptions(source)
        if not reasoned
    ]


DIRECTIVE = re.compile(r"^\s*#\s*(cython|distutils)\s*:")
UNCHECKED = re.compile(r"""boundscheck["']?\s*[:=]\s*False""")


def check_directives(tree: list[Source]) -> list[str]:
    """Directives of a whole module outside setup.py, and bounds checks that are off for a module."""
    wrong = []
    for source in tree:
        for number, line in enumerate(source.lines, start=1):
            if source.is_cython and DIRECTIVE.match(line):
                wrong.append(f"{source.where}:{number}: directives of a module stand in setup.py alone")
            if source.where == "setup.py" and UNCHECKED.search(line):
                wrong.append(f"{source.where}:{number}: bounds checks are never off for a whole module")
    return wrong


# Written with a class of one letter in each, so that this file does not name what it looks for.
FOREIGN = re.compile(r"(?<![\w.])/[w]ork/|\.[l]ibrary/|\b[f]arm-(bench|studio)|/[r]oot/\.pyenv|/[t]mp/(wt|gkv|venv)\b")


def check_places(paths: list[Path], root: Path) -> list[str]:
    """Lines that name a path of the machine the project was made on, or a tool of its workplace."""
    return [
        f"{path.relative_to(root)}:{number}: names `{match[0]}`; the project speaks of itself alone"
        for path in paths
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), start=1)
        if (match := FOREIGN.search(line))
    ]
