"""Docstrings that begin with a fragment: "Of this start." instead of "Epoch of this start."."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.ci.tidy.source import Source

# What neither a sentence nor a noun phrase begins with; "Whether", "When", "Where", "How" and "What" may stand for one.
FRAGMENTS = frozenset(
    [
        *("about", "above", "after", "again", "also", "among", "and", "around", "as", "at", "away", "back", "because"),
        *(
            "before",
            "behind",
            "below",
            "beside",
            "besides",
            "between",
            "beyond",
            "but",
            "by",
            "during",
            "else",
            "except",
        ),
        *("for", "from", "if", "in", "inside", "into", "like", "nor", "not", "of", "off", "on", "only", "onto", "or"),
        *("out", "outside", "over", "per", "since", "so", "than", "then", "through", "till", "to", "too", "towards"),
        *("under", "unless", "until", "up", "upon", "via", "while", "with", "within", "without"),
    ]
)
AMOUNT = re.compile(r"(?:at (?:most|least)|up to|as (?:many|much)|so (?:many|much))\b", re.IGNORECASE)
PYTHON_DEFINITION = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


class Opening(NamedTuple):
    """First line of a docstring, and where it stands."""

    where: str
    text: str

    @property
    def is_fragment(self) -> bool:
        """Whether it begins as neither a sentence nor a noun phrase does."""
        word = re.match(r"\w+", self.text)
        return word is not None and word[0].lower() in FRAGMENTS and not AMOUNT.match(self.text)


def openings(tree: list[Source]) -> Iterator[Opening]:
    """The first line of every docstring."""
    for source in tree:
        yield from _cython(source) if source.is_cython else _python(source)


def fragments(tree: list[Source]) -> list[str]:
    """Docstrings that begin with a fragment, each with its place."""
    return [f"{opening.where}: {opening.text}" for opening in openings(tree) if opening.is_fragment]


def _python(source: Source) -> Iterator[Opening]:
    for node in ast.walk(source.tree):
        if isinstance(node, PYTHON_DEFINITION) and (text := ast.get_docstring(node)):
            line = node.body[0].lineno
            yield Opening(f"{source.where}:{line}", text.splitlines()[0])


def _cython(source: Source) -> Iterator[Opening]:
    """Those behind a head that ends in a colon, and the one that opens the file."""
    before = ":"
    inside = False
    for number, line in enumerate(source.lines, start=1):
        stripped = line.strip()
        if not inside and before.endswith(":") and (match := re.match(r'r?"""(.+)', stripped)) is not None:
            yield Opening(f"{source.where}:{number}", match[1].removesuffix('"""'))
        inside ^= stripped.count('"""') % 2 == 1
        if stripped and not inside:
            before = stripped
