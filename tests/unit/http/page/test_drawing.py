"""The states of cells, drawn as SVG shapes."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from gossipkv.http.page.drawing import FEW_CELLS, HEIGHT, STEP, shapes
from gossipkv.http.page.placement_map import NAMES


def columns(path: str) -> list[tuple[int, int]]:
    """Return start and end of each subpath; each begins at its left end and extends by its width."""
    found = []
    for part in filter(None, path.split("M")):
        x = int(part.split(" ")[0])
        width = max((int(number) for number in re.findall(r"h(\d+)", part)), default=0)
        found.append((x, x + width))
    return found


@given(st.text(alphabet=[*NAMES, "."], min_size=1, max_size=256))
def test_each_letter_is_drawn_where_its_cells_are_and_nowhere_else(row):
    """Few cells have gaps between them, many have none; empty cells are not drawn."""
    drawn = {shape.letter: shape.path for shape in shapes(row)}
    assert drawn.keys() == set(row) - {"."}
    for letter, path in drawn.items():
        covered = {x // STEP for first, end in columns(path) for x in range(first, end)}
        assert covered == {cell for cell, found in enumerate(row) if found == letter}


def test_no_two_letters_have_the_same_shape():
    """Shapes differ without colour, and stay within the row's height."""
    paths = [shapes(letter)[0].path for letter in NAMES]
    assert len(set(paths)) == len(NAMES)
    for path in paths:
        assert max(int(number) for number in re.findall(r"v(\d+)", path)) <= HEIGHT if "v" in path else "8h" in path


def test_many_neighbours_are_one_shape():
    """The page of a hundred nodes stays small."""
    assert len(shapes("r" * (FEW_CELLS + 1))[0].path) < 30
    assert shapes("r" * FEW_CELLS)[0].path.count("M") == FEW_CELLS
