"""The pages of figures have the form in which the benchmark writes them, and no goal but those that it has."""

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
    """It has the head of the part and an aligned table, and each line is a goal of a row of the part, judged right."""
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
    """The benchmark measures nothing that is not judged, and nothing twice."""
    rows = [row for part in PARTS.values() for row in part.rows]
    assert all(row.limits for row in rows)
    assert len({*rows}) == len(rows)


def test_a_page_keeps_its_form() -> None:
    """A page that is written now has the head, the table and the notes that pages have."""
    row = Row("get", "ns", {"LMDB": 0.5})
    text = report.page("small", [Measurement(row, {"GossipKV": [1.0], "LMDB": [4.0]})], ["a note"])
    head, blank, command, _, *table, _, note = text.splitlines()
    assert (head, blank, note) == ("# small", "", "- a note.")
    assert command.startswith("`python -m tests.bench --only small` on ")
    assert report.lines_of("\n".join(table)) == [
        ["get", "1.00 ns", "LMDB", "4.00 ns", "0.25", "0.25 to 0.25", "≤ 0.5", "met"]
    ]
