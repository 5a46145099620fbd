"""What the templates need for a page: everything decided, nothing escaped."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from gossipkv.http.page.advice import advice
from gossipkv.http.page.chart import Chart, latency_chart, rate_chart
from gossipkv.http.page.listing import DatabaseRow, MemberRow, counted_states, database_rows, member_rows
from gossipkv.status import sentences
from gossipkv.status.reading import maps_of, number_of
from gossipkv.status.tables import TableStatus, datasets, of_partitions, tables
from gossipkv.status.words import duration_text, plain, some_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gossipkv.http.page.history import Interval
    from gossipkv.http.page.survey import Survey

MOST_DRAWN: Final = 128  # Rows of maps on the overview: what is beyond is on the database's own page.


@dataclass(frozen=True, slots=True)
class Verdict:
    """The whole in a line."""

    level: str  # well, attention, trouble
    text: str


@dataclass(frozen=True, slots=True)
class View:
    """One page."""

    title: str
    cluster: str
    node: str
    version: str
    up: str
    taken: str
    database: str | None  # The one that it is about.
    verdict: Verdict
    troubles: tuple[str, ...]
    notes: tuple[str, ...]
    advice: tuple[str, ...]
    databases: tuple[DatabaseRow, ...]
    tables: tuple[TableStatus, ...]
    members: tuple[MemberRow, ...]
    members_left_out: int
    members_counted: str
    charts: tuple[Chart, ...]


def view(survey: Survey, intervals: Sequence[Interval], database: str | None = None) -> View:
    """Return the overview, or the page of one database, which `survey` is about alone."""
    status = survey.status
    lines = [*sentences.of_versions(status), *sentences.of_owners(status), *of_partitions(status)]
    troubles = [*sentences.of_node(survey.info), *(line.text for line in lines if line.is_trouble)]
    notes = [*_away(survey), *(line.text for line in lines if not line.is_trouble)]
    members, left_out = member_rows(survey)
    counted = counted_states(survey.members)
    cluster = plain(survey.info.get("cluster"))
    charts = (rate_chart(intervals), latency_chart(intervals))
    return View(
        cluster if database is None else f"{database} in {cluster}",
        cluster,
        survey.node,
        plain(survey.info.get("version")),
        duration_text(int(number_of(survey.info.get("uptime_s")) or 0)),
        datetime.fromtimestamp(survey.taken_s, UTC).strftime("%H:%M:%S UTC"),
        database,
        verdict(survey, troubles, notes, counted, database),
        tuple(troubles),
        tuple(notes),
        tuple(advice(survey)),
        tuple(database_rows(survey, most_drawn=MOST_DRAWN)),
        tuple(tables(status)),
        tuple(members),
        left_out,
        counted,
        tuple(chart for chart in charts if chart is not None),
    )


def verdict(
    survey: Survey, troubles: Sequence[str], notes: Sequence[str], counted: str, database: str | None = None
) -> Verdict:
    """Return the whole in a line, which is also read aloud when it changes: so nothing in it changes by itself."""
    what = f"{len(survey.status):,} {'database' if len(survey.status) == 1 else 'databases'}"
    about = f"{what if database is None else database}, {counted}"
    if troubles:
        found = "1 thing is wrong" if len(troubles) == 1 else f"{len(troubles):,} things are wrong"
        return Verdict("trouble", f"{found}. {about}.")
    entries = maps_of(datasets(survey.status))
    if unread := sorted(name for name, entry in entries.items() if entry.get("active") is None):
        return Verdict("attention", f"{some_text(unread)} cannot be read here yet. {about}.")
    if notes:
        found = "Everything can be read; something deserves attention"
        return Verdict("attention", f"{found}. {about}.")
    return Verdict("well", f"All is well. {about}.")


def _away(survey: Survey) -> Iterator[str]:
    """Tell which members are not there."""
    for state, words in (("dead", "dead"), ("suspect", "suspected to be dead")):
        names = [member.get("node") for member in survey.members if member.get("state") == state]
        if names:
            yield f"{some_text(names)} {'is' if len(names) == 1 else 'are'} {words}"
