"""The pages of figures have the benchmark's format, and exactly its goals."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bench import report
from tests.bench.measurement import ITSELF, Measurement, Row
from tests.bench.parts import PARTS

FIGURES = Path(__file__).parents[3] / "docs" / "development" / "figures"
PAGES = sorted(FIGURES.glob("*.md"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_is_as_the_benchmark_writes_it(page: Path) -> None:
    """The page has the part's head and an aligned table; each line is a goal of a row, with the right verdict."""
    text = page.read_text(encoding="utf-8")
    assert text.startswith(f"# {page.stem}\n\n{report.COMMAND.format(page.stem)} on ")
    table = [line for line in text.splitlines() if line.startswith("|")]
    lines = report.lines_of(text)
    assert "\n".join(table) == report.aligned([report.HEAD, *map(tuple, lines)])
    rows = {str(row): row for row in PARTS[page.stem].rows}
    for name, ours, peer, _theirs, ratio, _spread, goal, verdict in lines:
        limit = rows[name].limits[peer or ITSELF]
        found = float(ratio or ours.split()[0].replace(",", ""))
        assert (ours.split()[-1], goal) == (rows[name].unit or ours.split()[-1], f"≤ {limit:g}")
        assert verdict == ("met" if found <= limit else "**missed**")
    assert len({(name, peer) for name, _, peer, *_ in lines}) == len(lines)


def test_every_row_has_a_goal_and_one_part() -> None:
    rows = [row for part in PARTS.values() for row in part.rows]
    assert all(row.limits for row in rows)
    assert len({*rows}) == len(rows)


def test_a_page_keeps_its_form() -> None:
    """A new page has the head, the table and the notes of the existing pages."""
    row = Row("get", "ns", {"LMDB": 0.5})
    text = report.page("small", [Measurement(row, {"GossipKV": [1.0], "LMDB": [4.0]})], ["a note"])
    head, blank, command, _, *table, _, note = text.splitlines()
    assert (head, blank, note) == ("# small", "", "- a note.")
    assert command.startswith("`python -m tests.bench --only small` on ")
    assert report.lines_of("\n".join(table)) == [
        ["get", "1.00 ns", "LMDB", "4.00 ns", "0.25", "0.25 to 0.25", "≤ 0.5", "met"]
    ]
