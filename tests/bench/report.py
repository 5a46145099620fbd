"""The printed report: a line for each peer of a row, in Markdown."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tests.bench import machine
from tests.bench.measurement import ITSELF

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from tests.bench.measurement import Measurement

COMMAND = "python -m tests.bench --only {}"
HEAD = ("what", "ours", "peer", "theirs", "ours / theirs", "least to greatest", "goal", "")
GOAL = HEAD.index("goal")


def digits(value: float) -> int:
    """Return the number of digits that a figure has after its point, about three digits in all."""
    return 0 if value >= 100 or value == 0 else 1 if value >= 10 else 2


def figure(value: float, unit: str) -> str:
    """Return a figure with its unit."""
    return f"{value:.{digits(value)}f} {unit}"


def _verdict(value: float, limit: float | None) -> tuple[str, str]:
    if limit is None:
        return "", ""
    return f"≤ {limit:g}", "met" if value <= limit else "**missed**"


def _lines(measurement: Measurement, *, exact: bool) -> Iterable[tuple[str, ...]]:
    row, unit = measurement.row, measurement.row.unit
    ours = measurement.typical(row.ours)
    places = 3 if exact else 2
    own_limit = row.limits.get(ITSELF)
    if own_limit is not None or not measurement.peers:
        yield (row, figure(ours, unit), "", "", "", "", *_verdict(ours, own_limit))
    for peer in measurement.peers:
        ratio = measurement.ratio(peer)
        yield (
            row,
            figure(ours, unit),
            peer,
            figure(measurement.typical(peer), unit),
            f"{ratio.median:.3f}" if exact else f"{ratio.median:.3g}",
            f"{ratio.least:.{places}f} to {ratio.greatest:.{places}f}",
            *_verdict(ratio.median, row.limits.get(peer)),
        )


def table(measurements: Iterable[Measurement], *, exact: bool = False) -> str:
    """Return all rows with aligned columns; `exact` ratios distinguish 1.003 from 1."""
    return aligned([HEAD, *(line for measurement in measurements for line in _lines(measurement, exact=exact))])


def aligned(rows: list[tuple[str, ...]]) -> str:
    """Return a Markdown table of rows of the same length, the first of which is its head."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |" for row in rows
    ]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)


def text(part: str, measurements: Iterable[Measurement], notes: list[str]) -> str:
    """Return the report of a part: its command, the machine, a table of the lines with a goal, and notes."""
    rows = (line for measurement in measurements for line in _lines(measurement, exact=False) if line[GOAL])
    said = "\n" + "".join(f"- {note}.\n" for note in dict.fromkeys(notes)) if notes else ""
    return f"# {part}\n\n`{COMMAND.format(part)}` on {machine.describe()}.\n\n{aligned([HEAD, *rows])}\n{said}"


def lines_of(text: str) -> list[list[str]]:
    """Return the cells of each line of a report's table, without its head."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines[2:]]


def write_json(path: Path, measurements: Iterable[Measurement]) -> None:
    rows = [
        {
            "row": each.row,
            "unit": each.row.unit,
            "ours": each.row.ours,
            "samples": each.samples,
            "ratios": {peer: each.ratio(peer)._asdict() | {"goal": each.row.limits.get(peer)} for peer in each.peers},
            "goal": each.row.limits.get(ITSELF),
        }
        for each in measurements
    ]
    path.write_text(json.dumps({"machine": machine.describe(), "rows": rows}, indent=2) + "\n")
