"""Tables of a page: databases with their versions, and members, one row each."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, NamedTuple

from gossipkv.http.page.chart import rate_text
from gossipkv.http.page.drawing import FEW_CELLS, GAP, STEP, Shape, heights, shapes
from gossipkv.http.page.placement_map import FEW, MISSING, NAMES, bands_of, in_order, placement_map, table_map
from gossipkv.status import sentences
from gossipkv.status.reading import list_of, map_of, maps_of, number_of, text_of, whole_of
from gossipkv.status.tables import datasets
from gossipkv.status.verdict import COMES, Coming
from gossipkv.status.versions import versions
from gossipkv.status.words import plain, size_text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from gossipkv.http.page.placement_map import MapRow, PlacementMap
    from gossipkv.http.page.survey import PageSurvey
    from gossipkv.status.versions import VersionStatus
    from gossipkv.wire.rpc import Value

MAX_ROWS: Final = 256  # The most rows of nodes or members: healthy ones come last, and further ones are counted.
STATES: Final = ("silent", "dead", "suspect", "alive", "left")


@dataclass(frozen=True, slots=True)
class DrawnRow:
    """One row of a map, drawn."""

    name: str
    state: str
    shapes: tuple[Shape, ...]
    counts: tuple[tuple[str, int], ...]  # The names of letters, and the number of their partitions.
    words: str


class ListingProfile(NamedTuple):
    """A property that differs between ranges, drawn below a map."""

    name: str
    path: str
    words: str


@dataclass(frozen=True, slots=True)
class DrawnMap:
    """The placement of one version, drawn."""

    partitions: int
    cells: int
    band: int
    width: int
    legend: tuple[tuple[str, str, tuple[Shape, ...]], ...]  # Letter, name, appearance.
    together: DrawnRow
    rows: tuple[DrawnRow, ...]
    rows_left_out: int
    ticks: tuple[int, ...]  # These partition numbers are shown below the map.
    profiles: tuple[ListingProfile, ...] = ()


@dataclass(frozen=True, slots=True)
class VersionRow:
    """One version of a database."""

    name: str
    state: str
    held: bool
    partitions: str  # The number of partitions, and of those with owners.
    records: str
    size: str
    done: float | None  # The progress of the slowest builder.
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
    level: str  # Its health is well, attention or trouble.
    versions: tuple[VersionRow, ...]
    is_placed_elsewhere: bool  # Its map did not fit, and is on the database's own page.

    @property
    def placed(self) -> tuple[VersionRow, ...]:
        """Return the versions with a map."""
        return tuple(version for version in self.versions if version.placement is not None)


@dataclass(frozen=True, slots=True)
class MemberRow:
    """One member."""

    name: str
    state: str
    address: str
    is_asked: bool  # The node that reported all this.
    epoch: str
    incarnation: str
    remark: str


def database_rows(survey: PageSurvey, *, most_drawn: int) -> list[DatabaseRow]:
    """Return every database; maps of those in trouble come first, as far as their rows fit into `most_drawn`."""
    awaited = {(name, each.version) for name, each in survey.verdict.coming.items()}
    by_database: dict[str, list[VersionStatus]] = {name: [] for name in sorted(datasets(survey.status), key=in_order)}
    for version in versions(survey.status):
        by_database[version.database].append(version)
    maps: dict[tuple[str, str], DrawnMap] = {}
    found = sorted(_maps(survey, awaited), key=lambda each: -_trouble(each[1]))
    for place, made in found:
        drawn = draw(made)
        if not maps or sum(len(each.rows) for each in maps.values()) + len(drawn.rows) <= most_drawn:
            maps[place] = drawn
    left_out = {database for (database, _), _ in found} - {database for database, _ in maps}
    return [
        DatabaseRow(
            name,
            survey.verdict.level_of(name),
            tuple(
                _version_row(survey, each, maps.get((name, each.name)))
                for each in sorted(there, key=lambda each: in_order(each.name), reverse=True)
            ),
            name in left_out,
        )
        for name, there in by_database.items()
    ]


def _maps(survey: PageSurvey, awaited: set[tuple[str, str]]) -> list[tuple[tuple[str, str], PlacementMap]]:
    """Make the maps of active and awaited versions."""
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
    """Return a map as shapes; of very many nodes, those with deviations come first."""
    rows = made.rows
    if len(rows) > MAX_ROWS:
        rows = tuple(sorted(rows, key=lambda row: row.state == "alive" and not row.counts.keys() - {"r"})[:MAX_ROWS])
    step = max(1, made.partitions // 4)
    return DrawnMap(
        made.partitions,
        made.cells,
        made.band,
        made.cells * STEP - (GAP if made.cells <= FEW_CELLS else 0),  # There is no gap behind the last cell.
        tuple((letter, NAMES[letter], tuple(shapes(letter))) for letter in made.letters),
        _drawn_row(made.together),
        tuple(map(_drawn_row, rows)),
        len(made.rows) - len(rows),
        tuple(dict.fromkeys([*range(0, made.partitions - step // 2, step), made.partitions - 1])),
    )


def _drawn_row(row: MapRow) -> DrawnRow:
    counts = tuple((NAMES[letter], count) for letter, count in row.counts.items())
    return DrawnRow(row.name, row.state, tuple(shapes(row.cells)), counts, row.words)


def _version_row(survey: PageSurvey, version: VersionStatus, placement: DrawnMap | None) -> VersionRow:
    told = map_of(maps_of(map_of(survey.status[version.database]).get("versions")).get(version.name))
    coming = survey.verdict.coming.get(version.database)
    if coming is None or coming.version != version.name:  # The version may be built here as a further copy.
        coming = Coming(version.name, COMES, version.done, version.remaining_s, 1)
    return VersionRow(
        version.name,
        version.state,
        version.held,
        _partitions(told),
        "" if version.records is None else f"{version.records:,}",
        "" if version.size_bytes is None else size_text(version.size_bytes),
        coming.done,
        coming.progress,
        sentences.remarks(version, alike=False),
        coming.waits,
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


def member_rows(survey: PageSurvey) -> tuple[list[MemberRow], int]:
    """Return the members, unhealthy ones first, and the number of omitted ones."""
    rows = [_member_row(survey, member) for member in survey.members]
    rows.sort(key=lambda row: (_rank(row.state), in_order(row.name)))
    return rows[:MAX_ROWS], len(rows[MAX_ROWS:])


def _rank(state: str) -> int:
    return STATES.index(state) if state in STATES else 0


def _member_row(survey: PageSurvey, member: Mapping[str, Value]) -> MemberRow:
    name, state = str(member.get("node")), str(member.get("state"))
    remarks = ["two nodes go by this name"] if member.get("claimed_twice") is True else []
    if name in survey.verdict.silent:
        remarks.append(f"did not answer: {survey.verdict.silent[name]}")
    return MemberRow(
        name,
        state,
        text_of(member.get("address")) or "",
        name == survey.node,
        plain(member.get("epoch")),
        plain(member.get("incarnation")),
        "; ".join(remarks),
    )


def drawn_table(survey: PageSurvey) -> DrawnMap | None:
    """Draw the placement of the survey's only table; None: its map is not known."""
    states = {str(member.get("node")): str(member.get("state")) for member in survey.members}
    made = table_map(survey.assigned, states)
    if made is None:
        return None
    told = (
        _profile("size", survey.ranges, "bytes", "largest", lambda size: size_text(round(size))),
        _profile("requests", survey.ranges, "rate", "busiest", lambda rate: f"{rate_text(rate)}/s"),
    )
    return replace(draw(made), profiles=tuple(profile for profile in told if profile is not None))


def _profile(
    name: str, ranges: Sequence[Mapping[str, Value]], key: str, most: str, text: Callable[[float], str]
) -> ListingProfile | None:
    """Draw a profile, if any value is reported; a band shows its highest."""
    said = [number_of(one.get(key)) for one in ranges]
    if all(value is None for value in said):
        return None
    values = [value or 0.0 for value in said]
    highest = max(values)
    words = f"{text(sum(values))}, {most} {text(highest)} ({plain(ranges[values.index(highest)].get('id'))})"
    return ListingProfile(name, heights([max(values[first:end]) for first, end in bands_of(len(values))]), words)
