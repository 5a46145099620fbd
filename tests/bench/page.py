"""Write `docs/development/figures.md` from the figures in the folder of the same name (`make reference`)."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.bench import figures
from tests.bench.report import figure

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tests.bench.figures import FigureRow, Figures

DOCS: Final = Path(__file__).parents[2] / "docs" / "development"
FOLDER: Final = DOCS / "figures"
PAGE: Final = DOCS / "figures.md"
NOTE: Final = "<!-- Written by `make reference` from the files that `python -m tests.bench --figures` wrote. -->"
GROUPS: Final = {
    "Sorted files": ("small", "large", "larger-library", "larger-node"),
    "Builds": ("build-memory", "sequence", "lanes", "parquet", "spark", "switching"),
    "One node": (
        "network-hot", "network-cold", "network-connections", "network-round-trip", "network-lone", "network-pings",
        "network-forwarded", "resp", "http", "tls-gets", "tls-handshakes", "pumps",
    ),
    "Clients and the load test": ("clients", "columns", "feast", "load-generator", "load-lateness"),
    "Datasets on several nodes": ("cluster-scan", "cluster-built", "cluster-idle"),
    "The store": ("store-puts", "store-gets", "store-scans", "store-amplification"),
    "Tables": (
        "metadata", "tables", "tables-by-map", "tables-expiry", "tables-import", "tables-backups", "tables-copies",
        "tables-catch-up", "tables-feed", "tables-moves", "ranges-split", "ranges-fourth", "ranges-memory",
        "ranges-route",
    ),
}  # fmt: skip
HEAD: Final = ("part", "measure", "ours", "peer", "ours / theirs (least to greatest)", "goal, at most")


def page(measured: Mapping[str, Figures]) -> str:
    """Return the page of the figures of all parts."""
    machines = [machine for machine, _ in Counter(each["machine"] for each in measured.values()).most_common()]
    sections = []
    for title, parts in GROUPS.items():
        lines = [line for part in parts if part in measured for line in _lines(measured[part], machines)]
        sections.append(f"## {title}\n\n{_table(lines)}\n")
    missing = [f"`{part}`" for parts in GROUPS.values() for part in parts if part not in measured]
    unmeasured = f"\n\nNot measured yet: {', '.join(missing)}." if missing else ""
    return f"""{NOTE}

# Figures

These are the figures of all parts of the benchmark. [Performance](performance.md) tells how they are taken, and the
causes of the main ones. Less is better. A ratio is the median over the rounds, with the least and the greatest. Without
a peer, the goal is for GossipKV's own figure. The name of a part links its file, which also has the peers' figures, and
notes on the work and on the peers' settings.

{_machines(machines)} Versions: {_versions(measured)}.{unmeasured}

{chr(10).join(sections)}"""


def _machines(machines: list[str]) -> str:
    others = (f"; of parts with {_mark(number)}: {machine}" for number, machine in enumerate(machines) if number)
    return f"Machine: {machines[0]}{''.join(others)}."


def _mark(number: int) -> str:
    return "" if number == 0 else "¹²³⁴⁵⁶⁷⁸⁹"[number]


def _versions(measured: Mapping[str, Figures]) -> str:
    found: dict[str, dict[str, None]] = {}
    for each in measured.values():
        for package, version in each["versions"].items():
            found.setdefault(package, {})[version] = None
    return ", ".join(f"{package} {' or '.join(versions)}" for package, versions in found.items())


def _lines(part: Figures, machines: list[str]) -> Iterator[tuple[str, ...]]:
    """Yield the cells of each row; a name that the line above has is left out."""
    name = part["part"]
    link = f"[{name}](figures/{name}.json){_mark(machines.index(part['machine']))}"
    above = ""
    for row in part["rows"]:
        is_new = row["what"] != above
        measure = (row["what"], figure(row["ours"], row["unit"])) if is_new else ("", "")
        yield (link if not above else "", *measure, row.get("peer", ""), _ratio(row), _goal(row))
        above = row["what"]


def _ratio(row: FigureRow) -> str:
    return f"{row['ratio']:.3g} ({row['least']:.2f}\N{EN DASH}{row['greatest']:.2f})" if "peer" in row else ""


def _goal(row: FigureRow) -> str:
    unit = "" if "peer" in row else f" {row['unit']}"
    return f"{row['goal']:g}{unit}, {'met' if row['met'] else '**missed**'}"


def _table(lines: list[tuple[str, ...]]) -> str:
    """Return a Markdown table without padding."""
    return "\n".join("|" + "|".join(cells) + "|" for cells in (HEAD, ["---"] * len(HEAD), *lines))


def read() -> dict[str, Figures]:
    """Return the figures of each part that has a file."""
    return {path.stem: figures.read(path) for path in sorted(FOLDER.glob("*.json"))}


if __name__ == "__main__":
    PAGE.write_text(page(read()), encoding="utf-8")
    sys.stdout.write(f"{PAGE}\n")
