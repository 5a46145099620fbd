"""Tables of a page: databases with their versions, and members, one row each."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, NamedTuple

from gossipkv.http.page.chart import rate_text
from gossipkv.http.page.drawing import FEW_CELLS, GAP, STEP, Shape, heights, shapes
from gossipkv.http.page.placement_map import FEW, MISSING, NAMES, bands_of, in_order, placement_map, table_map
from gossipkv.status import sentences
from gossipkv.status.verdict import COMES, Coming
from gossipkv.status.words import size_text, some_text

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gossipkv.http.page.placement_map import MapRow, PlacementMap
    from gossipkv.http.page.survey import PageSurvey
    from gossipkv.status.reports import MemberReport, TableReport, VersionStatus

MAX_ROWS: Final = 256  # The most rows of nodes or members: healthy ones come last, and further ones are counted.
STATES: Final = ("silent", "dead", "suspect", "alive", "left")


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
    together: MapRow
    rows: tuple[MapRow, ...]
    rows_left_out: int
    ticks: tuple[int, ...]  # These partition numbers are shown below the map.
    profiles: tuple[ListingProfile, ...] = ()


class VersionRow(NamedTuple):
    """One version of a database."""

    name: str
    report: VersionStatus
    is_held: bool
    coming: Coming  # Its progress.
    remarks: str


class DatabaseRow(NamedTuple):
    """One database."""

    name: str
    level: str  # Its health is well, attention or trouble.
    versions: tuple[VersionRow, ...]
    table: TableReport | None  # None for a dataset.


class PlacedVersions(NamedTuple):
    """Versions with one map, since their partitions are placed alike."""

    name: str  # The name of the first one, for the identifier of the map.
    title: str
    drawn: DrawnMap


class MemberRow(NamedTuple):
    """One member."""

    report: MemberReport
    remark: str


def database_rows(survey: PageSurvey) -> list[DatabaseRow]:
    """Return every dataset with its versions, and every table."""
    datasets, tables = survey.status.datasets, survey.status.tables
    rows: list[DatabaseRow] = []
    for name in sorted([*datasets, *tables], key=in_order):
        versions = sorted(datasets[name].versions, key=in_order, reverse=True) if name in datasets else []
        made = tuple(_version_row(survey, name, version) for version in versions)
        rows.append(DatabaseRow(name, survey.verdict.level_of(name), made, tables.get(name)))
    return rows


def placed_versions(survey: PageSurvey, *, most_drawn: int) -> tuple[list[PlacedVersions], int]:
    """Draw each different map once, and return the number of omitted ones.

    Maps with trouble come first, as far as their rows fit into `most_drawn`.
    """
    alike: dict[str, tuple[PlacementMap, list[str]]] = {}
    for database, version, made in sorted(
        _maps(survey), key=lambda placed: (-_trouble(placed[2]), in_order(placed[0]))
    ):
        alike.setdefault(repr(made), (made, []))[1].append(f"{database} {version}")
    drawn: list[PlacedVersions] = []
    for made, names in alike.values():
        placed = PlacedVersions(names[0], some_text(names), draw(made))
        if not drawn or sum(len(other.drawn.rows) for other in drawn) + len(placed.drawn.rows) <= most_drawn:
            drawn.append(placed)
    return drawn, len(alike) - len(drawn)


def _maps(survey: PageSurvey) -> list[tuple[str, str, PlacementMap]]:
    """Make the maps of active and awaited versions."""
    found = []
    for database, entry in survey.status.datasets.items():
        coming = survey.verdict.coming.get(database)
        shown = {entry.active, coming.version if coming is not None else None}
        for name, version in entry.versions.items():
            made = placement_map(version, entry.nodes) if name in shown else None
            if made is not None:
                found.append((database, name, made))
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
        made.together,
        rows,
        len(made.rows) - len(rows),
        tuple(dict.fromkeys([*range(0, made.partitions - step // 2, step), made.partitions - 1])),
    )


def _version_row(survey: PageSurvey, database: str, name: str) -> VersionRow:
    entry, coming = survey.status.datasets[database], survey.verdict.coming.get(database)
    version = entry.versions[name]
    if coming is None or coming.version != name:  # The version may be built here as a further copy.
        coming = Coming(name, COMES, version.progress.done, version.progress.remaining_s, 1)
    is_held = entry.hold == name
    remarks = sentences.remarks(version, is_held=is_held, alike=False)
    return VersionRow(name, version, is_held, coming, remarks)


def member_rows(survey: PageSurvey) -> tuple[list[MemberRow], int]:
    """Return the members, unhealthy ones first, and the number of omitted ones."""
    rows = [_member_row(survey, member) for member in survey.members]
    rows.sort(key=lambda row: (_rank(row.report.state), in_order(row.report.node)))
    return rows[:MAX_ROWS], len(rows[MAX_ROWS:])


def _rank(state: str) -> int:
    return STATES.index(state) if state in STATES else 0


def _member_row(survey: PageSurvey, member: MemberReport) -> MemberRow:
    remarks = ["two nodes go by this name"] * member.claimed_twice + ([member.misfit] if member.misfit else [])
    if (why := survey.verdict.silent.get(member.node)) is not None:
        remarks.append(f"did not answer: {why}")
    return MemberRow(member, "; ".join(remarks))


def drawn_table(survey: PageSurvey) -> DrawnMap | None:
    """Draw the placement of the survey's only table; None: its map is not known."""
    states = {member.node: member.state for member in survey.members}
    made = table_map([partition.hosts or partition.assignments for partition in survey.partitions], states)
    if made is None:
        return None
    ids = [partition.id for partition in survey.partitions]
    sizes = [partition.bytes_ for partition in survey.partitions]
    rates = [partition.rate for partition in survey.partitions]
    profiles = (
        _profile("size", ids, sizes, "largest", lambda size: size_text(round(size))),
        _profile("requests", ids, rates, "busiest", lambda rate: f"{rate_text(rate)}/s"),
    )
    return replace(draw(made), profiles=tuple(profile for profile in profiles if profile is not None))


def _profile(
    name: str, ids: Sequence[str], reported: Sequence[float | None], most: str, text: Callable[[float], str]
) -> ListingProfile | None:
    """Draw a profile, if any value is reported; a band shows its highest."""
    if all(value is None for value in reported):
        return None
    values = [value or 0.0 for value in reported]
    highest = max(values)
    words = f"{text(sum(values))}, {most} {text(highest)} ({ids[values.index(highest)]})"
    return ListingProfile(name, heights([max(values[first:end]) for first, end in bands_of(len(values))]), words)
