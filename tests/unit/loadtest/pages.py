"""Pages of a scan, right or wrong, for the tests of each dialect."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import strategies as st

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.oracle.load_truth import Table

Page = tuple[list[tuple[bytes, bytes]], bytes | None]

KINDS = st.sampled_from(["drop", "add", "change", "twice", "turn", "end", "go on"])
EDITS = st.lists(st.tuples(KINDS, st.integers(0, 9)), max_size=5)


def page_of(table: Table, start: bytes, limit: int, edits: Sequence[tuple[str, int]], keys: Sequence[bytes]) -> Page:
    """Return the records and cursor of a correct answer, altered by `edits`."""
    page = sorted((key, value) for key, value in table.items() if key >= start)
    cursor = b"more" if len(page) > limit else None
    page = page[:limit]
    for kind, place in edits:
        here = slice(place, place + 1)
        if kind == "drop":
            page[here] = []
        elif kind == "add":
            page = sorted({**dict(page), keys[place % len(keys)]: b"new"}.items())
        elif kind == "change":
            page[here] = [(key, b"other") for key, _ in page[here]]
        elif kind == "twice":
            page[here] = 2 * page[here]
        elif kind == "turn":
            page.reverse()
        else:
            cursor = None if kind == "end" else b"c"
    return page, cursor
