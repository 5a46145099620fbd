"""The measured figures as data: a JSON file for each part, below `docs/development/figures`.

`page.py` renders them.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Required, TypedDict

from tests.bench import machine
from tests.bench.measurement import ITSELF
from tests.bench.report import COMMAND, digits

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from tests.bench.measurement import Measurement


class FigureRow(TypedDict, total=False):
    """A comparison with a peer that has a goal; without a peer the goal is for GossipKV's own figure."""

    what: Required[str]
    unit: Required[str]
    ours: Required[float]
    peer: str
    theirs: float
    ratio: float  # The median over the rounds.
    least: float
    greatest: float
    goal: Required[float]  # The greatest ratio, or figure, that meets it.
    met: Required[bool]


class Figures(TypedDict):
    """The figures of one part, from one run."""

    part: str
    command: str
    machine: str
    versions: dict[str, str]
    rows: list[FigureRow]
    notes: list[str]


def record(part: str, measurements: Iterable[Measurement], notes: Iterable[str]) -> Figures:
    """Return the figures of a part: the lines with a goal, rounded as the printed report has them."""
    return {
        "part": part,
        "command": COMMAND.format(part),
        "machine": machine.system(),
        "versions": machine.versions(),
        "rows": [row for measurement in measurements for row in _rows(measurement)],
        "notes": [*dict.fromkeys(notes)],
    }


def _rows(measurement: Measurement) -> Iterator[FigureRow]:
    row = measurement.row
    ours = measurement.typical(row.ours)
    own = {"what": str(row), "unit": row.unit, "ours": _rounded(ours)}
    if ITSELF in row.limits:
        yield own | _verdict(ours, row.limits[ITSELF])
    for peer in filter(row.limits.__contains__, measurement.peers):
        ratio = measurement.ratio(peer)
        compared = {
            "peer": peer,
            "theirs": _rounded(measurement.typical(peer)),
            "ratio": _shortest(float(f"{ratio.median:.3g}")),
            "least": _shortest(round(ratio.least, 2)),
            "greatest": _shortest(round(ratio.greatest, 2)),
        }
        yield own | compared | _verdict(ratio.median, row.limits[peer])


def _verdict(value: float, limit: float) -> dict[str, float | bool]:
    return {"goal": _shortest(float(f"{limit:g}")), "met": value <= limit}


def _rounded(value: float) -> float:
    return _shortest(round(float(value), digits(value)))


def _shortest(value: float) -> float:
    return int(value) if value.is_integer() else value  # JSON has `18875` rather than `18875.0`.


def write(path: Path, figures: Figures) -> None:
    """Write figures, with a line for each row and note, so that a change of a figure is a change of a line."""
    path.write_text(text(figures), encoding="utf-8")


def text(figures: Figures) -> str:
    """Return figures as JSON, with a line for each row and note."""
    fields = []
    for name, value in figures.items():
        if isinstance(value, list) and value:
            lines = ",\n".join(f"    {_json(each)}" for each in value)
            fields.append(f"  {_json(name)}: [\n{lines}\n  ]")
        else:
            fields.append(f"  {_json(name)}: {_json(value)}")
    return "{\n" + ",\n".join(fields) + "\n}\n"


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def read(path: Path) -> Figures:
    """Return the figures in a file."""
    return json.loads(path.read_text(encoding="utf-8"))
