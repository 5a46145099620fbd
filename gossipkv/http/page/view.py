"""The input of the templates: everything decided, nothing escaped."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, NamedTuple

from gossipkv.http.page.chart import Chart, latency_chart, rate_chart
from gossipkv.http.page.listing import (
    MAX_ROWS,
    DatabaseRow,
    MemberRow,
    database_rows,
    drawn_table,
    member_rows,
    placed_versions,
)
from gossipkv.status.reports import RANGE
from gossipkv.status.words import duration_text
from gossipkv.wire.key_text import shown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gossipkv.http.page.history import Interval
    from gossipkv.http.page.listing import DrawnMap, PlacedVersions
    from gossipkv.http.page.survey import FoundKey, PageSurvey

MAX_SHOWN: Final = 2048  # A page shows this many bytes of a value.
MAX_DRAWN: Final = 128  # Rows of maps on the overview; further maps are on the databases' own pages.


class LookupForm(NamedTuple):
    """A lookup, as entered in the form."""

    database: str
    key: str
    is_hex: bool


NOTHING: Final = LookupForm("", "", is_hex=False)


class LookupAnswer(NamedTuple):
    """The result of a lookup, in words."""

    value: str  # Text, or hexadecimal digits if it is no text.
    size: str
    note: str


@dataclass(frozen=True, slots=True)
class PageView:
    """One page."""

    survey: PageSurvey
    title: str
    up: str
    taken: str
    database: str | None  # The database that the page is about.
    asked: LookupForm
    answer: LookupAnswer | None
    databases: tuple[DatabaseRow, ...]
    maps: tuple[PlacedVersions, ...]
    maps_left_out: int
    table_map: DrawnMap | None
    ranges: tuple[tuple[str, ...], ...]  # Each of the first ranges has a row.
    members: tuple[MemberRow, ...]
    members_left_out: int
    charts: tuple[Chart, ...]


def view(
    survey: PageSurvey,
    intervals: Sequence[Interval],
    database: str | None = None,
    asked: LookupForm = NOTHING,
    found: FoundKey | None = None,
) -> PageView:
    """Return the overview, or the page of the only database of `survey`, with the result of a lookup."""
    members, left_out = member_rows(survey)
    maps, maps_left_out = placed_versions(survey, most_drawn=MAX_DRAWN)
    cluster = survey.info.cluster
    is_range = any(table.kind == RANGE for table in survey.status.tables.values())
    charts = (rate_chart(intervals), latency_chart(intervals))
    return PageView(
        survey,
        cluster if database is None else f"{database} in {cluster}",
        duration_text(int(survey.info.uptime_s)),
        datetime.fromtimestamp(survey.taken_s, UTC).strftime("%H:%M:%S UTC"),
        database,
        asked,
        None if found is None else _answer(found),
        tuple(database_rows(survey)),
        tuple(maps),
        maps_left_out,
        drawn_table(survey),
        tuple(partition.row(RANGE) for partition in survey.partitions[: MAX_ROWS * is_range]),
        tuple(members),
        left_out,
        tuple(chart for chart in charts if chart is not None),
    )


def _answer(found: FoundKey) -> LookupAnswer:
    where = f"{found.database}{f' {found.version}' if found.version else ''}"
    by = f", answered by {found.node}" if found.node else ""
    if found.error:
        return LookupAnswer("", "", f"Not read: {found.error}")
    if found.value is None:
        return LookupAnswer("", "", f"{where} has no key {shown(found.key)}{by}.")
    part = found.value[:MAX_SHOWN]
    try:
        text = part.decode() if len(part) == len(found.value) else part.decode("utf-8", "ignore")
    except UnicodeDecodeError:
        text = part.hex(" ")
    if not text.isprintable() and any(not (char.isprintable() or char in "\n\t") for char in text):
        text = part.hex(" ")
    counted = "1 byte" if len(found.value) == 1 else f"{len(found.value):,} bytes"
    cut = f", of which the first {len(part):,} are shown" if len(part) < len(found.value) else ""
    return LookupAnswer(text, f"{counted}{cut}", f"{shown(found.key)} in {where}{by}:")
