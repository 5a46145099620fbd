"""The letters of a row as shapes, one SVG path for each letter: different colours have different shapes, too.

A row is `HEIGHT` units high, whatever its width.  Up to `FEW_CELLS` cells have gaps between them; in longer rows
adjacent equal letters form one shape if the shape allows it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from gossipkv.http.page import placement_map as cells

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

HEIGHT: Final = 8
FEW_CELLS: Final = 64
STEP: Final = 10  # A cell begins this many units after the previous one.
GAP: Final = 1


class Shape(NamedTuple):
    """All cells of one letter."""

    letter: str
    path: str


def _full(x: int, width: int) -> str:
    return f"M{x} 0h{width}v8h-{width}z"


def _half(x: int, width: int) -> str:
    return f"M{x} 4h{width}v4h-{width}z"


def _stripes(x: int, width: int) -> str:
    return f"M{x} 0h{width}v2h-{width}zm0 3h{width}v2h-{width}zm0 3h{width}v2h-{width}z"


def _baseline(x: int, width: int) -> str:
    return f"M{x} 6h{width}v2h-{width}z"


def _split(x: int, width: int) -> str:
    """Draw a block with its top cut off: a copy is lacking."""
    return f"M{x} 0h{width}v2h-{width}zm0 3h{width}v5h-{width}z"


def _line(x: int, width: int) -> str:
    return f"M{x} 3h{width}v2h-{width}z"


def _bars(x: int, width: int) -> str:
    return f"M{x} 0h{width}v3h-{width}zm0 5h{width}v3h-{width}z"


def _wedge(x: int, width: int) -> str:
    return f"M{x} 0v8h{width}z"


def _hourglass(x: int, width: int) -> str:
    return f"M{x} 0h{width}l-{width} 8h{width}z"


def _frame(x: int, width: int) -> str:
    """Draw a box with a hole: its inner path runs the other way round."""
    return f"M{x} 0h{width}v8h-{width}zm2 2v4h{width - 4}v-4z"


# Shapes that may span adjacent cells, and shapes that are drawn cell by cell.
_WIDE: Final[dict[str, Callable[[int, int], str]]] = {
    cells.READY: _full,
    cells.PART: _half,
    cells.FEW: _split,
    cells.BUILDING: _stripes,
    cells.PROPOSED: _line,
    cells.LOADING: _bars,
    cells.GONE: _baseline,
}
_SINGLE: Final[dict[str, Callable[[int, int], str]]] = {
    cells.LEAVING: _wedge,
    cells.DISPUTED: _hourglass,
    cells.MISSING: _frame,
}


def shapes(row: str) -> list[Shape]:
    """Return the shapes of a row of cells."""
    found: dict[str, list[str]] = {}
    has_gaps = len(row) <= FEW_CELLS
    for run in re.finditer(r"(.)\1*", row):
        letter, (first, end) = run[1], run.span()
        if letter in _WIDE and not has_gaps:
            found.setdefault(letter, []).append(_WIDE[letter](first * STEP, (end - first) * STEP))
        elif draw := (_WIDE | _SINGLE).get(letter):
            width = STEP - GAP if has_gaps else STEP
            found.setdefault(letter, []).extend(draw(cell * STEP, width) for cell in range(first, end))
    return [Shape(letter, "".join(paths)) for letter, paths in found.items()]


def heights(values: Sequence[float]) -> str:
    """Return a row of cells, each as high as its value relative to the highest."""
    highest = max(values, default=0.0) or 1.0
    width = STEP - GAP if len(values) <= FEW_CELLS else STEP
    tall = [(cell * STEP, round(HEIGHT * value / highest, 2)) for cell, value in enumerate(values)]
    return "".join(f"M{x} {HEIGHT - high:g}h{width}v{high:g}h-{width}z" for x, high in tall if high)
