"""The files of figures have the benchmark's format and exactly its goals, and one page has all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.bench import figures, page, report
from tests.bench.measurement import ITSELF, Measurement, Row
from tests.bench.parts import PARTS

if TYPE_CHECKING:
    from pathlib import Path

FILES = sorted(page.FOLDER.iterdir())
MAX_PAGE_WORDS = 3000


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_file_is_as_the_benchmark_writes_it(path: Path) -> None:
    """The file has its part's command; each row has a goal of the part, with the right verdict."""
    part = figures.read(path)
    assert path.read_text(encoding="utf-8") == figures.text(part)
    assert (path.name, part["command"]) == (f"{part['part']}.json", report.COMMAND.format(part["part"]))
    rows = {str(row): row for row in PARTS[path.stem].rows}
    for row in part["rows"]:
        limit = rows[row["what"]].limits[row.get("peer", ITSELF)]
        assert (row["unit"], row["goal"]) == (rows[row["what"]].unit or row["unit"], float(f"{limit:g}"))
        assert row["met"] == (row.get("ratio", row["ours"]) <= limit)
    assert len({(row["what"], row.get("peer")) for row in part["rows"]}) == len(part["rows"])


def test_every_row_has_a_goal_and_one_part() -> None:
    rows = [row for part in PARTS.values() for row in part.rows]
    assert all(row.limits for row in rows)
    assert len({*rows}) == len(rows)


def test_the_page_is_that_of_the_files() -> None:
    """Each part has its place on the page, which is short enough to be looked through."""
    assert sorted(part for parts in page.GROUPS.values() for part in parts) == sorted(PARTS)
    text = page.PAGE.read_text(encoding="utf-8")
    assert text == page.page(page.read()), "the figures have changed: `make reference` writes the page again"
    assert len(text.split()) <= MAX_PAGE_WORDS


def test_a_measurement_becomes_rows() -> None:
    """A row has a ratio for each peer with a goal, and none beside a goal of its own; notes are not repeated."""
    compared = Measurement(Row("get", "ns", {"LMDB": 0.3}), {"GossipKV": [1.0, 2.0, 3.0], "LMDB": [4.0, 4.0, 4.0]})
    own = Measurement(Row("memory", "MiB", 200), {"GossipKV": [123.4]})
    found = figures.record("small", [compared, own], ["a note", "a note"])
    assert found["rows"] == [
        {"what": "get", "unit": "ns", "ours": 2, "peer": "LMDB", "theirs": 4, "ratio": 0.5, "least": 0.25,
         "greatest": 0.75, "goal": 0.3, "met": False},
        {"what": "memory", "unit": "MiB", "ours": 123, "goal": 200, "met": True},
    ]  # fmt: skip
    assert found["notes"] == ["a note"]


def test_the_page_of_a_row() -> None:
    """A name stands once above its peers, and a part that was measured on another machine has a mark."""
    row: figures.FigureRow = {
        "what": "get", "unit": "ns", "ours": 2, "peer": "LMDB", "theirs": 4, "ratio": 0.5, "least": 0.25,
        "greatest": 0.75, "goal": 0.3, "met": False,
    }  # fmt: skip
    small: figures.Figures = {
        "part": "small", "command": "", "machine": "a", "versions": {"lmdb": "1"}, "notes": [],
        "rows": [row, {**row, "peer": "dict", "met": True}],
    }  # fmt: skip
    large: figures.Figures = {
        "part": "large", "command": "", "machine": "b", "versions": {"lmdb": "2"}, "notes": [],
        "rows": [{"what": "size", "unit": "B", "ours": 1.5, "goal": 2, "met": True}],
    }  # fmt: skip
    text = page.page({"small": small, "large": large})
    lines = [line for line in text.splitlines() if line.startswith("|") and line != "|---|---|---|---|---|---|"]
    assert [line for line in lines if not line.startswith("|part|")] == [
        "|[small](figures/small.json)|get|2.00 ns|LMDB|0.5 (0.25\N{EN DASH}0.75)|0.3, **missed**|",
        "||||dict|0.5 (0.25\N{EN DASH}0.75)|0.3, met|",
        "|[large](figures/large.json)²|size|1.50 B|||2 B, met|",
    ]
    assert "Machine: a; of parts with ²: b. Versions: lmdb 1 or 2." in text
    assert "Not measured yet: `larger-library`" in text
