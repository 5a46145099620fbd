"""The letters of a row as shapes, one SVG path for each letter: different colours have different shapes, too.

A row is `HEIGHT` units high, whatever its width.  Up to `FEW_CELLS` cells have gaps between them; in longer rows
adjacent equal letters form one shape if the shape allows it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from gossipkv.http.page import placement_map as cells

if TYPE_CHECKING:
    from collections.abc import Sequence

HEIGHT: Final = 8
FEW_CELLS: Final = 64
STEP: Final = 10  # A cell begins this many units after the previous one.
GAP: Final = 1


class Shape(NamedTuple):
    """All cells of one letter."""

    letter: str
    path: str


# Shapes that may span adjacent cells, and shapes that are drawn cell by cell, at `{x}` with the width `{w}`.
_WIDE: Final = {
    cells.READY: "M{x} 0h{w}v8h-{w}z",
    cells.PART: "M{x} 4h{w}v4h-{w}z",
    cells.FEW: "M{x} 0h{w}v2h-{w}zm0 3h{w}v5h-{w}z",  # A block with its top cut off: a copy is lacking.
    cells.BUILDING: "M{x} 0h{w}v2h-{w}zm0 3h{w}v2h-{w}zm0 3h{w}v2h-{w}z",
    cells.PROPOSED: "M{x} 3h{w}v2h-{w}z",
    cells.LOADING: "M{x} 0h{w}v3h-{w}zm0 5h{w}v3h-{w}z",
    cells.GONE: "M{x} 6h{w}v2h-{w}z",
}
_SINGLE: Final = {
    cells.LEAVING: "M{x} 0v8h{w}z",
    cells.DISPUTED: "M{x} 0h{w}l-{w} 8h{w}z",
    cells.MISSING: "M{x} 0h{w}v8h-{w}zm2 2v4h{inner}v-4z",  # A box with a hole: its inner path runs backwards.
}


def shapes(row: str) -> list[Shape]:
    """Return the shapes of a row of cells."""
    found: dict[str, list[str]] = {}
    has_gaps = len(row) <= FEW_CELLS
    for run in re.finditer(r"(.)\1*", row):
        letter, (first, end) = run[1], run.span()
        if letter in _WIDE and not has_gaps:
            found.setdefault(letter, []).append(_WIDE[letter].format(x=first * STEP, w=(end - first) * STEP))
        elif path := (_WIDE | _SINGLE).get(letter):
            w = STEP - GAP if has_gaps else STEP
            drawn = (path.format(x=cell * STEP, w=w, inner=w - 4) for cell in range(first, end))
            found.setdefault(letter, []).extend(drawn)
    return [Shape(letter, "".join(paths)) for letter, paths in found.items()]


def heights(values: Sequence[float]) -> str:
    """Return a row of cells, each as high as its value relative to the highest."""
    highest = max(values, default=0.0) or 1.0
    width = STEP - GAP if len(values) <= FEW_CELLS else STEP
    tall = [(cell * STEP, round(HEIGHT * value / highest, 2)) for cell, value in enumerate(values)]
    return "".join(f"M{x} {HEIGHT - high:g}h{width}v{high:g}h-{width}z" for x, high in tall if high)
