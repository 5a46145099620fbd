"""Tables of a page: databases with their versions, and members, a row each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gossipkv.http.page.drawing import STEP, Shape, shapes
from gossipkv.http.page.obstacles import builders, obstacles
from gossipkv.http.page.placement_map import FEW, MISSING, NAMES, in_order, placement_map
from gossipkv.status import sentences
from gossipkv.status.reading import list_of, map_of, maps_of, text_of, whole_of
from gossipkv.status.tables import datasets
from gossipkv.status.versions import newest, versions
from gossipkv.status.words import plain, size_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gossipkv.http.page.placement_map import PlacementMap, Row
    from gossipkv.http.page.survey import Survey
    from gossipkv.status.versions import VersionStatus
    from gossipkv.wire.rpc import Value

MOST_ROWS: Final = 256  # Of nodes or members: those that are well come last, and what is beyond is counted.
STATES: Final = ("silent", "dead", "suspect", "alive", "left")


@dataclass(frozen=True, slots=True)
class DrawnRow:
    """One row of a map, drawn."""

    name: str
    state: str
    shapes: tuple[Shape, ...]
    counts: tuple[tuple[str, int], ...]  # What, and how many partitions.
    words: str


@dataclass(frozen=True, slots=True)
class DrawnMap:
    """The placement of one version, drawn."""

    partitions: int
    cells: int
    band: int
    width: int
    legend: tuple[tuple[str, str, tuple[Shape, ...]], ...]  # Letter, name, how it looks.
    together: DrawnRow
    rows: tuple[DrawnRow, ...]
    rows_left_out: int
    ticks: tuple[int, ...]  # Partitions that are named below it.


@dataclass(frozen=True, slots=True)
class VersionRow:
    """One version of a database."""

    name: str
    state: str
    held: bool
    partitions: str  # How many it has, and how many have owners.
    records: str
    size: str
    done: float | None  # Of the slowest that builds it.
    progress: str
    remarks: str
    obstacles: tuple[str, ...]
    format: str
    function: str
    source: str
    placement: DrawnMap | None


@dataclass(frozen=True, slots=True)
class DatabaseRow:
    """One database."""

    name: str
    versions: tuple[VersionRow, ...]

    @property
    def placed(self) -> tuple[VersionRow, ...]:
        """Versions of which a map is drawn."""
        return tuple(version for version in self.versions if version.placement is not None)


@dataclass(frozen=True, slots=True)
class MemberRow:
    """One member."""

    name: str
    state: str
    address: str
    is_asked: bool  # The node that told all this.
    epoch: str
    incarnation: str
    remark: str


def database_rows(survey: Survey, *, most_drawn: int) -> list[DatabaseRow]:
    """Return every database; maps of those that are in trouble first, as long as their rows fit into `most_drawn`."""
    awaited = {(version.database, version.name) for version in newest(survey.status) if not version.serves}
    by_database: dict[str, list[VersionStatus]] = {name: [] for name in sorted(datasets(survey.status), key=in_order)}
    for version in versions(survey.status):
        by_database[version.database].append(version)
    maps: dict[tuple[str, str], DrawnMap] = {}
    found = sorted(_maps(survey, awaited), key=lambda each: -_trouble(each[1]))
    for place, made in found:
        drawn = draw(made)
        if not maps or sum(len(each.rows) for each in maps.values()) + len(drawn.rows) <= most_drawn:
            maps[place] = drawn
    return [
        DatabaseRow(
            name,
            tuple(
                _version_row(survey, each, maps.get((name, each.name)), is_awaited=(name, each.name) in awaited)
                for each in sorted(there, key=lambda each: in_order(each.name), reverse=True)
            ),
        )
        for name, there in by_database.items()
    ]


def _maps(survey: Survey, awaited: set[tuple[str, str]]) -> list[tuple[tuple[str, str], PlacementMap]]:
    """Make the maps of what serves and of what is to serve."""
    found = []
    for database, entry in maps_of(dict(survey.status)).items():
        nodes = [(str(node.get("node")), str(node.get("state"))) for node in map(map_of, list_of(entry.get("nodes")))]
        for name, version in maps_of(entry.get("versions")).items():
            if name == entry.get("active") or (database, name) in awaited:
                made = placement_map(version, nodes)
                if made is not None:
                    found.append(((database, name), made))
    return found


def _trouble(made: PlacementMap) -> int:
    return 2 * (MISSING in made.together.counts) + (FEW in made.together.counts)


def draw(made: PlacementMap) -> DrawnMap:
    """Return a map as shapes; of very many nodes those that are not just ready and alive first."""
    rows = made.rows
    if len(rows) > MOST_ROWS:
        rows = tuple(sorted(rows, key=lambda row: row.state == "alive" and not row.counts.keys() - {"r"})[:MOST_ROWS])
    step = max(1, made.partitions // 4)
    return DrawnMap(
        made.partitions,
        made.cells,
        made.band,
        made.cells * STEP,
        tuple((letter, NAMES[letter], tuple(shapes(letter))) for letter in made.letters),
        _drawn_row(made.together),
        tuple(map(_drawn_row, rows)),
        len(made.rows) - len(rows),
        tuple(dict.fromkeys([*range(0, made.partitions - step // 2, step), made.partitions - 1])),
    )


def _drawn_row(row: Row) -> DrawnRow:
    counts = tuple((NAMES[letter], count) for letter, count in row.counts.items())
    return DrawnRow(row.name, row.state, tuple(shapes(row.cells)), counts, row.words)


def _version_row(survey: Survey, version: VersionStatus, placement: DrawnMap | None, *, is_awaited: bool) -> VersionRow:
    told = map_of(maps_of(map_of(survey.status[version.database]).get("versions")).get(version.name))
    building = builders(survey, version.database, version.name)
    slowest = building[0] if building else None
    others = f"; {len(building)} nodes build" if len(building) > 1 else ""
    return VersionRow(
        version.name,
        version.state,
        version.held,
        _partitions(told),
        "" if version.records is None else f"{version.records:,}",
        "" if version.size_bytes is None else size_text(version.size_bytes),
        None if slowest is None else slowest.done,
        "" if slowest is None else f"{slowest.words}{others}",
        sentences.remarks(version, alike=False),
        tuple(obstacles(survey, version.database, version.name)) if is_awaited else (),
        version.format or "",
        " or ".join(version.functions),
        _source(told),
        placement,
    )


def _partitions(told: Mapping[str, Value]) -> str:
    count = whole_of(told.get("partition_count"))
    if count is None:
        return ""
    missing = whole_of(map_of(told.get("missing")).get("count")) or 0
    return f"{count - missing:,} of {count:,}" if missing else f"{count:,}"


def _source(told: Mapping[str, Value]) -> str:
    files, size = whole_of(told.get("source_files")), whole_of(told.get("source_bytes"))
    if files is None or size is None:
        return ""
    return f"{files:,} {'file' if files == 1 else 'files'}, {size_text(size)}"


def member_rows(survey: Survey) -> tuple[list[MemberRow], int]:
    """Return the members, those that are not well first, and how many more there are."""
    rows = [_member_row(survey, member) for member in survey.members]
    rows.sort(key=lambda row: (_rank(row.state), in_order(row.name)))
    return rows[:MOST_ROWS], len(rows[MOST_ROWS:])


def _rank(state: str) -> int:
    return STATES.index(state) if state in STATES else 0


def _member_row(survey: Survey, member: Mapping[str, Value]) -> MemberRow:
    name, state = str(member.get("node")), str(member.get("state"))
    remarks = ["two nodes go by this name"] if member.get("claimed_twice") is True else []
    if name in survey.silent:
        remarks.append(f"did not answer: {survey.silent[name]}")
    return MemberRow(
        name,
        state,
        text_of(member.get("address")) or "",
        name == survey.node,
        plain(member.get("epoch")),
        plain(member.get("incarnation")),
        "; ".join(remarks),
    )


def counted_states(rows: Sequence[Mapping[str, Value]]) -> str:
    """Return how many members are in which state, as in `4 members, 1 of them dead`."""
    counts: dict[str, int] = {}
    for row in rows:
        counts[str(row.get("state"))] = counts.get(str(row.get("state")), 0) + 1
    others = [f"{counts[state]:,} {state}" for state in sorted(counts, key=_rank) if state != "alive"]
    members = "1 member" if len(rows) == 1 else f"{len(rows):,} members"
    return f"{members}, {', '.join(others)}" if others else f"{members}, {'alive' if len(rows) == 1 else 'all alive'}"
