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
from gossipkv.status.reading import list_of, map_of, partitions_of, whole_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gossipkv.wire.rpc import Value

MAX_CELLS: Final = 256
MAX_PARTITIONS: Final = 65_536  # A version has no more; larger numbers are not believed.
FEW_RUNS: Final = 8  # The most runs of partitions in the words of a row.

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


class Assigned(NamedTuple):
    """A node that holds a partition of a table, or will."""

    node: str
    slot: int
    state: str


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


def placement_map(version: Mapping[str, Value], nodes: Sequence[tuple[str, str]]) -> PlacementMap | None:
    """Return the map of a version from `status` with `bitmaps`; None: it has no statements.

    `nodes`: name and state of each node that gets a row, even without partitions.
    """
    count = whole_of(version.get("partition_count"))
    if count is None or not 0 < count <= MAX_PARTITIONS:
        return None
    missing, few = (partitions_of(version.get(name), count) for name in ("missing", "under_replicated"))
    owners = [map_of(each) for each in list_of(version.get("owners"))]
    if len({*dict(nodes), *(str(owner.get("node")) for owner in owners)}) == 1:
        few = PartitionSet.empty(count)  # A single node holds as many copies as possible, as in the verdict.
    disputed, disputed_by = _disputes(version, count)
    builds = [partitions_of(owner.get("building"), count) for owner in owners]
    built = PartitionSet.empty(count)
    for owner, building in zip(owners, builds, strict=True):
        if owner.get("state") != "dead":
            built |= building
    few -= built  # A further copy is being built, as the builder's row shows.
    states, layers = dict(nodes), {}
    for owner, building in zip(owners, builds, strict=True):
        name, state = str(owner.get("node")), str(owner.get("state"))
        ready = partitions_of(owner.get("ready"), count)
        states[name] = state
        if state == "dead":
            layers[name] = [Layer(GONE, ready)]
            continue
        mine = disputed_by.get(name, PartitionSet.empty(count)) & ready
        layers[name] = [
            Layer(DISPUTED, mine),
            Layer(BUILDING, building),
            Layer(FEW, ready & few - mine),
            Layer(READY, ready - few - mine),
        ]
    ready = PartitionSet.whole(count) - missing
    together = [  # A partition still being built cannot be read, which is worse than files that differ.
        Layer(MISSING, missing - built),
        Layer(BUILDING, missing & built),
        Layer(DISPUTED, disputed - missing),
        Layer(FEW, few - missing - disputed),
        Layer(READY, ready - few - disputed),
    ]
    bands = bands_of(count)
    rows = (_row(name, states[name], layers.get(name, []), bands) for name in sorted(states, key=in_order))
    return PlacementMap(count, bands[0][1], _row("", "", together, bands), tuple(rows))


def table_map(partitions: Sequence[Sequence[Assigned]], states: Mapping[str, str]) -> PlacementMap | None:
    """Return the map of a table from its assigned partitions; `states`: of members, by name.

    A slot is present with an AVAILABLE live host; a LEAVING host answers until its successor has everything.
    """
    count = len(partitions)
    if not 0 < count <= MAX_PARTITIONS:
        return None
    here: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    together: dict[str, list[int]] = defaultdict(list)
    for number, assigned in enumerate(partitions):
        alive = {one for one in assigned if states.get(one.node, "dead") != "dead"}
        answers = any(one.state in {"AVAILABLE", "LEAVING"} for one in alive)
        full = {one.slot for one in alive if one.state == "AVAILABLE"}
        ready = READY if full == {one.slot for one in assigned} else FEW
        together[ready if answers else MISSING].append(number)
        for one in assigned:
            letter = OF_STATES.get(one.state, NOTHING) if one in alive else GONE
            here[one.node][ready if letter == READY else letter].append(number)
    bands = bands_of(count)
    rows = (
        _row(name, states.get(name, "gone"), _layers(count, here[name]), bands) for name in sorted(here, key=in_order)
    )
    return PlacementMap(count, bands[0][1], _row("", "", _layers(count, together), bands), tuple(rows))


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


def _disputes(version: Mapping[str, Value], count: int) -> tuple[PartitionSet, dict[str, PartitionSet]]:
    """Return the partitions whose owners' files differ, in total and by owner."""
    disputed, by_owner = PartitionSet.empty(count), dict[str, PartitionSet]()
    for dispute in map(map_of, list_of(version.get("disputes"))):
        partitions = partitions_of(dispute.get("partitions"), count)
        disputed |= partitions
        for name in map(str, list_of(dispute.get("nodes"))):
            by_owner[name] = by_owner.get(name, PartitionSet.empty(count)) | partitions
    return disputed, by_owner


def _row(name: str, state: str, layers: Sequence[Layer], bands: Sequence[tuple[int, int]]) -> MapRow:
    """Make a row from its layers, the worst first."""
    there = [layer for layer in layers if layer.partitions]
    drawn = [(layer.letter, _digits(layer.partitions)) for layer in there]
    cells = "".join(_cell(drawn, first, end) for first, end in bands)
    words = (f"{len(some):,} {NAMES[letter]} ({_runs(some)})" for letter, some in there)
    return MapRow(
        name,
        state,
        cells,
        {letter: len(some) for letter, some in there},
        "; ".join(words) or "nothing",
    )


def _cell(drawn: Sequence[tuple[str, str]], first: int, end: int) -> str:
    for letter, digits in drawn:
        if digits.find("1", first, end) >= 0:
            return PART if letter == READY and digits.count("1", first, end) < end - first else letter
    return NOTHING


def _digits(some: PartitionSet) -> str:
    """Return one character for each partition, in order."""
    return f"{some.bits:0{some.partitions}b}"[::-1]


def _runs(some: PartitionSet) -> str:
    return some.in_words(FEW_RUNS).replace(",", ", ")
