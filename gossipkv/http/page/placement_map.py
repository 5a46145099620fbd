"""The nodes of each partition of a version or a table: a row per node, a cell per partition, a letter in each cell.

Above 256 partitions a cell is a band of adjacent ones, with the letter of the worst.  The first row combines all nodes;
there a partition is missing if no live node has it ready.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from gossipkv.placement.partition_set import PartitionSet
from gossipkv.status.reports import FEW_RUNS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from gossipkv.status.reports import MemberReport, PartitionHost, VersionStatus

MAX_CELLS: Final = 256
MAX_PARTITIONS: Final = 65_536  # A version has no more; larger numbers are not believed.

NOTHING: Final = "."
READY: Final = "r"
PART: Final = "p"  # Some partitions of a band are ready, the others are not here.
FEW: Final = "u"
BUILDING: Final = "b"
PROPOSED: Final = "w"
LOADING: Final = "l"
LEAVING: Final = "x"
DISPUTED: Final = "d"
GONE: Final = "g"
MISSING: Final = "m"

NAMES: Final = {
    READY: "ready",
    PART: "part of the band is ready",
    FEW: "under-replicated",
    BUILDING: "building",
    PROPOSED: "proposed",
    LOADING: "initializing",
    LEAVING: "leaving",
    DISPUTED: "disagreeing",
    MISSING: "missing",
    GONE: "on a node that is dead",
}

OF_STATES: Final = {"AVAILABLE": READY, "LEAVING": LEAVING, "INITIALIZING": LOADING, "PROPOSED": PROPOSED}


class Layer(NamedTuple):
    """Partitions of a row that share a letter."""

    letter: str
    partitions: PartitionSet


@dataclass(frozen=True, slots=True)
class MapRow:
    """One node, or all of them together."""

    name: str
    state: str  # The member's state; empty in the row of all nodes.
    cells: str
    counts: dict[str, int]  # The number of partitions of each letter.
    words: str  # The content of the cells in words, for screen readers.

    @property
    def named_counts(self) -> list[tuple[str, int]]:
        """Return the names of letters, and the number of their partitions."""
        return [(NAMES[letter], count) for letter, count in self.counts.items()]


@dataclass(frozen=True, slots=True)
class PlacementMap:
    """The rows of one version."""

    partitions: int
    band: int  # The most partitions in a cell.
    together: MapRow
    rows: tuple[MapRow, ...]

    @property
    def cells(self) -> int:
        """Return the number of cells in a row."""
        return len(self.together.cells)

    @property
    def letters(self) -> str:
        """Return the letters that occur, in the order of the legend."""
        found = set(self.together.cells).union(*(row.cells for row in self.rows))
        return "".join(letter for letter in NAMES if letter in found)


def placement_map(version: VersionStatus, nodes: Iterable[MemberReport]) -> PlacementMap | None:
    """Return the map of a version from `status` with `bitmaps`; None: it has no statements.

    Each of the `nodes` gets a row, even without partitions.
    """
    count, states = version.total, {node.node: node.state for node in nodes}
    if not 0 < count <= MAX_PARTITIONS:
        return None
    states |= {owner.node: owner.state for owner in version.owners}
    missing, few = version.missing.of(count), version.under_replicated.of(count)
    if len(states) == 1:
        few = PartitionSet.empty(count)  # A single node holds as many copies as possible, as in the verdict.
    disputed, disputed_by = _disputes(version, count)
    builds = [owner.building.of(count) for owner in version.owners]
    built = PartitionSet.empty(count)
    for owner, building in zip(version.owners, builds, strict=True):
        if owner.state != "dead":
            built |= building
    few -= built  # A further copy is being built, as the builder's row shows.
    layers = {}
    for owner, building in zip(version.owners, builds, strict=True):
        ready = owner.ready.of(count)
        differing = disputed_by.get(owner.node, PartitionSet.empty(count)) & ready
        layers[owner.node] = [
            Layer(DISPUTED, differing),
            Layer(BUILDING, building),
            Layer(FEW, ready & few - differing),
            Layer(READY, ready - few - differing),
        ]
        if owner.state == "dead":
            layers[owner.node] = [Layer(GONE, ready)]
    ready = PartitionSet.whole(count) - missing
    together = [  # A partition still being built cannot be read, which is worse than files that differ.
        Layer(MISSING, missing - built),
        Layer(BUILDING, missing & built),
        Layer(DISPUTED, disputed - missing),
        Layer(FEW, few - missing - disputed),
        Layer(READY, ready - few - disputed),
    ]
    return _map_of_rows(count, together, {name: (state, layers.get(name, [])) for name, state in states.items()})


def table_map(partitions: Sequence[Sequence[PartitionHost]], states: Mapping[str, str]) -> PlacementMap | None:
    """Return the map of a table from the hosts of each partition; `states`: of members, by name.

    A slot is present with an AVAILABLE live host; a LEAVING host answers until its successor has everything.
    """
    count = len(partitions)
    if not 0 < count <= MAX_PARTITIONS:
        return None
    here: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    together: dict[str, list[int]] = defaultdict(list)
    alive = {name for name, state in states.items() if state != "dead"}
    for number, hosts in enumerate(partitions):
        present = [host for host in hosts if host.node in alive]
        answers = any(host.state in {"AVAILABLE", "LEAVING"} for host in present)
        full = {host.slot for host in present if host.state == "AVAILABLE"}
        ready = READY if full == {host.slot for host in hosts} else FEW
        together[ready if answers else MISSING].append(number)
        for host in hosts:
            letter = OF_STATES.get(host.state, NOTHING) if host.node in alive else GONE
            here[host.node][ready if letter == READY else letter].append(number)
    rows = {name: (states.get(name, "gone"), _layers(count, letters)) for name, letters in here.items()}
    return _map_of_rows(count, _layers(count, together), rows)


def _map_of_rows(
    count: int, together: Sequence[Layer], rows: Mapping[str, tuple[str, Sequence[Layer]]]
) -> PlacementMap:
    """Return a map of `count` partitions, from the state and the layers of each node."""
    bands = bands_of(count)
    in_turn = (_row(name, *rows[name], bands) for name in sorted(rows, key=in_order))
    return PlacementMap(count, bands[0][1], _row("", "", together, bands), tuple(in_turn))


def _layers(count: int, found: Mapping[str, Sequence[int]]) -> list[Layer]:
    """Return layers of `count` partitions, the worst first."""
    worst_first = (MISSING, GONE, FEW, PROPOSED, LOADING, LEAVING, READY)
    return [Layer(letter, PartitionSet.of(count, found.get(letter, ()))) for letter in worst_first]


def bands_of(partitions: int) -> list[tuple[int, int]]:
    """Return the bounds of each cell; only the last cell may have fewer partitions than the others."""
    band = -(-partitions // MAX_CELLS)
    return [(first, min(first + band, partitions)) for first in range(0, partitions, band)]


def in_order(name: str) -> tuple[tuple[int, int, str], ...]:
    """Return a sort key that puts `n2` before `n10`."""
    return tuple(
        (0, int(word), "") if word.isdecimal() else (1, 0, word)
        for word in re.split(r"([0-9]{1,18})", name.casefold())
        if word
    )


def _disputes(version: VersionStatus, count: int) -> tuple[PartitionSet, dict[str, PartitionSet]]:
    """Return the partitions whose owners' files differ, in total and by owner."""
    disputed, by_owner = PartitionSet.empty(count), dict[str, PartitionSet]()
    for dispute in version.disputes:
        partitions = dispute.partitions.of(count)
        disputed |= partitions
        for name in dispute.nodes:
            by_owner[name] = by_owner.get(name, PartitionSet.empty(count)) | partitions
    return disputed, by_owner


def _row(name: str, state: str, layers: Sequence[Layer], bands: Sequence[tuple[int, int]]) -> MapRow:
    """Make a row from its layers, the worst first."""
    there = [layer for layer in layers if layer.partitions]
    drawn = [(layer.letter, _digits(layer.partitions)) for layer in there]
    cells = "".join(_cell(drawn, first, end) for first, end in bands)
    counts = {layer.letter: len(layer.partitions) for layer in there}
    words = (f"{counts[layer.letter]:,} {NAMES[layer.letter]} ({_runs(layer.partitions)})" for layer in there)
    return MapRow(name, state, cells, counts, "; ".join(words) or "nothing")


def _cell(drawn: Sequence[tuple[str, str]], first: int, end: int) -> str:
    for letter, digits in drawn:
        if digits.find("1", first, end) >= 0:
            return PART if letter == READY and digits.count("1", first, end) < end - first else letter
    return NOTHING


def _digits(partitions: PartitionSet) -> str:
    """Return one character for each partition, in order."""
    return f"{partitions.bits:0{partitions.partitions}b}"[::-1]


def _runs(partitions: PartitionSet) -> str:
    return partitions.in_words(FEW_RUNS).replace(",", ", ")
