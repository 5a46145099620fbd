"""The table: a row for each peer, in Markdown, so that what is read on a terminal can stand in the documentation."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tests.bench import machine
from tests.bench.measurement import ITSELF

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from tests.bench.measurement import Measurement

HEAD = ("what", "ours", "peer", "theirs", "ours / theirs", "least to greatest", "goal", "")


def _figure(value: float, unit: str) -> str:
    digits = 0 if value >= 100 or value == 0 else 1 if value >= 10 else 2
    return f"{value:.{digits}f} {unit}"


def _verdict(value: float, limit: float | None) -> tuple[str, str]:
    if limit is None:
        return "", ""
    return f"≤ {limit:g}", "met" if value <= limit else "**missed**"


def _lines(measurement: Measurement) -> Iterable[tuple[str, ...]]:
    row, unit = measurement.row, measurement.unit
    ours = measurement.typical(row.ours)
    own_limit = row.limits.get(ITSELF)
    if own_limit is not None or not measurement.peers:
        yield (row, _figure(ours, unit), "", "", "", "", *_verdict(ours, own_limit))
    for peer in measurement.peers:
        ratio = measurement.ratio(peer)
        yield (
            row,
            _figure(ours, unit),
            peer,
            _figure(measurement.typical(peer), unit),
            f"{ratio.median:.3g}",
            f"{ratio.least:.2f} to {ratio.greatest:.2f}",
            *_verdict(ratio.median, row.limits.get(peer)),
        )


def table(measurements: Iterable[Measurement]) -> str:
    """All rows, columns aligned."""
    return aligned([HEAD, *(line for measurement in measurements for line in _lines(measurement))])


def aligned(rows: list[tuple[str, ...]]) -> str:
    """A Markdown table of rows of the same length, the first of which is its head."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |" for row in rows
    ]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)


def text(measurements: Iterable[Measurement], notes: Iterable[str]) -> str:
    """Where the figures come from, the table, and what there is to say beside it."""
    told = "\n".join(f"- {note}." for note in dict.fromkeys(notes))
    return f"{machine.describe()}.\n\n{table(measurements)}\n\n{told}"


def write_into(path: Path, text: str, place: str) -> None:
    """Put `text` between the marks of a Markdown file."""
    first, last = f"<!-- {place} -->", f"<!-- /{place} -->"
    before, begin, rest = path.read_text().partition(first)
    _, end, after = rest.partition(last)
    if not end:
        raise ValueError(f"{path}: expected a line {first} and after it a line {last}")
    path.write_text(f"{before}{begin}\n{text}\n{end}{after}")


def write_json(path: Path, parameters: dict[str, object], measurements: Iterable[Measurement]) -> None:
    """Every figure of every round, for whoever wants to draw or compare."""
    rows = [
        {
            "row": each.row,
            "unit": each.unit,
            "ours": each.row.ours,
            "samples": each.samples,
            "ratios": {peer: each.ratio(peer)._asdict() | {"goal": each.row.limits.get(peer)} for peer in each.peers},
            "goal": each.row.limits.get(ITSELF),
        }
        for each in measurements
    ]
    told = {"machine": machine.describe(), "parameters": parameters, "rows": rows}
    path.write_text(json.dumps(told, indent=2) + "\n")
