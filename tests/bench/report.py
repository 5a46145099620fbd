"""The table: a row for each peer, in Markdown, so that what is read on a terminal can stand in the documentation."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tests.bench.goals import ITSELF, goal

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from tests.bench.measurement import Measurement
    from tests.bench.peers.base import Engine

# The marked places of the page.
ENGINES, DATASETS, NETWORK, CLIENTS, GOSSIP = "figures", "datasets", "network", "clients", "gossip"
CLUSTER, HTTP, STORE, REGISTER, LARGER = "cluster", "http", "store", "register", "larger-than-memory"
PLACES = (ENGINES, DATASETS, NETWORK, CLIENTS, GOSSIP, CLUSTER, HTTP, STORE, REGISTER, LARGER)
HEAD = ("what", "ours", "peer", "theirs", "ours / theirs", "least to greatest", "goal", "")


def _figure(value: float, unit: str) -> str:
    digits = 0 if value >= 100 or value == 0 else 1 if value >= 10 else 2
    return f"{value:.{digits}f} {unit}"


def _verdict(value: float, limit: float | None) -> tuple[str, str]:
    if limit is None:
        return "", ""
    return f"≤ {limit:g}", "met" if value <= limit else "**missed**"


def _lines(measurement: Measurement) -> Iterable[tuple[str, ...]]:
    unit = measurement.unit
    ours = measurement.typical(measurement.subject)
    own_limit = goal(measurement.row, ITSELF)
    if own_limit is not None or not measurement.peers:
        yield (measurement.row, _figure(ours, unit), "", "", "", "", *_verdict(ours, own_limit))
    for peer in measurement.peers:
        ratio = measurement.ratio(peer)
        yield (
            measurement.row,
            _figure(ours, unit),
            peer,
            _figure(measurement.typical(peer), unit),
            f"{ratio.median:.3g}",
            f"{ratio.least:.2f} to {ratio.greatest:.2f}",
            *_verdict(ratio.median, goal(measurement.row, peer)),
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


def settings(engines: Iterable[type[Engine]], notes: Iterable[str]) -> str:
    """How each engine was set up, and why so; then who is missing."""
    lines = [f"{engine.name}: {engine.settings}" for engine in engines]
    return "\n".join(f"- {line}." for line in [*lines, *notes])


def marks(place: str) -> tuple[str, str]:
    """The lines around a place of a Markdown file."""
    return f"<!-- {place} -->", f"<!-- /{place} -->"


def write_into(path: Path, text: str, place: str) -> None:
    """Put `text` between the marks of a Markdown file."""
    first, last = marks(place)
    before, begin, rest = path.read_text().partition(first)
    _, end, after = rest.partition(last)
    if not end:
        raise ValueError(f"{path}: expected a line {first} and after it a line {last}")
    path.write_text(f"{before}{begin}\n{text}\n{end}{after}")


def write_json(path: Path, *, machine: str, parameters: dict[str, object], measurements: list[Measurement]) -> None:
    """Every figure of every round, for whoever wants to draw or compare."""
    rows = [
        {
            "row": measurement.row,
            "unit": measurement.unit,
            "ours": measurement.subject,
            "samples": measurement.samples,
            "ratios": {
                peer: {
                    "median": measurement.ratio(peer).median,
                    "least": measurement.ratio(peer).least,
                    "greatest": measurement.ratio(peer).greatest,
                    "goal": goal(measurement.row, peer),
                }
                for peer in measurement.peers
            },
            "goal": goal(measurement.row, ITSELF),
        }
        for measurement in measurements
    ]
    path.write_text(json.dumps({"machine": machine, "parameters": parameters, "rows": rows}, indent=2) + "\n")
