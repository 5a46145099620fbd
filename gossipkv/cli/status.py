"""`status`: the verdict, the versions and tables that a node knows, and the wait until all versions serve."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Final

import click
from click.core import ParameterSource
from rich.progress import BarColumn, Progress, TaskProgressColumn
from rich.text import Text

from gossipkv.cli import FAILED
from gossipkv.cli.help import Command
from gossipkv.cli.options import JSON, AskedNodes, ask_within
from gossipkv.cli.output import note, print_json
from gossipkv.cli.screen import add_row, columns, console, description, draw, progress, times
from gossipkv.status import sentences
from gossipkv.status.codec import decode, decode_list
from gossipkv.status.reports import InfoReport, MemberReport, status_report
from gossipkv.status.verdict import ATTENTION, STUCK, TROUBLE, WELL, verdict_of
from gossipkv.status.words import duration_text, some_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from rich.table import Table

    from gossipkv.client.blocking import Client
    from gossipkv.status.reports import DatasetReport, StatusReport, TableReport, VersionStatus
    from gossipkv.status.verdict import ClusterVerdict, Coming
    from gossipkv.wire.rpc import Value

WITHHELD: Final = 1  # Exit status: the newest version is too small, and someone has to accept or replace it.
POLL_S: Final = 0.2
WIDE_COLUMNS: Final = 110  # Terminals of this width have room for remarks beside the table, others below it.
STYLES: Final = {
    "ACTIVE": "green",
    "AVAILABLE": "cyan",
    "BUILDING": "yellow",
    "ERROR": "bold red",
    "RETIRING": "dim",
    "SEEN": "dim",
}
SIGNS: Final = {WELL: "●", ATTENTION: "▲", TROUBLE: "✕"}
COLOURS: Final = {WELL: "green", ATTENTION: "yellow", TROUBLE: "red"}
MEMBERS: Final = {"alive": "green", "suspect": "yellow", "dead": "bold red"}


@click.command(cls=Command)
@click.argument("database", metavar="[DB]", required=False)
@click.option(
    "--wait",
    is_flag=True,
    help=("Wait until the newest versions serve at every node; the exit status is 3 if one cannot."),
)
@click.option(
    "--verdict", "is_short", is_flag=True, help=("Write only the verdict, its reasons and the advised actions.")
)
@click.option(
    "--verbose",
    "is_verbose",
    is_flag=True,
    help="Also write the node's memory, the counters of its table store, and when its certificate expires.",
)
@ask_within("10s", "one request; with --wait, if given, for the whole wait")
@JSON
@click.pass_context
def status(
    context: click.Context,
    database: str | None,
    nodes: AskedNodes,
    *,
    wait: bool,
    is_short: bool,
    is_verbose: bool,
    as_json: bool,
) -> int:
    """Show the health of the cluster, what to do, its databases or only DB, and its members.

    The node asks all members, so the verdict is the same at each node. The exit status is 3 if something is wrong, and
    1 if all can be read, but a newest version does not become active. With --json, the output has all details of each
    database, version and partition.
    """
    is_given = context.get_parameter_source("timeout_ms") is not ParameterSource.DEFAULT
    deadline_s = time.monotonic() + nodes.timeout_ms / 1000 if wait and is_given else math.inf
    with nodes.connect() as client:
        lacking = list(wait_until_served(client, database, deadline_s)) if wait else []
        answer = client.verdict(database)
        verdict = verdict_of(answer)
        if as_json:
            print_json(answer if is_short else _ask(client, database))
        elif is_short:
            _draw_verdict(verdict)
            _draw_reasons(verdict)
        else:
            info, report = decode(InfoReport, client.info()), status_report(_ask(client, database))
            members = decode_list(MemberReport, client.members())
            _draw(info, str(client.address), report, verdict, is_one=database is not None)
            if members:
                click.echo()
                draw(members_table(members))
            if is_verbose:
                click.echo()
                _draw_counters(info)
    for line in lacking:
        note(f"gossipkv: {line}")
    if lacking or verdict.level == TROUBLE:
        return FAILED
    # A version that is stuck without trouble is withheld.
    return WITHHELD if any(version.state == STUCK for version in verdict.coming.values()) else 0


def _ask(client: Client, database: str | None) -> dict[str, Value]:
    return {name: entry for name, entry in client.status(database).items() if database in {None, name}}


def wait_until_served(client: Client, database: str | None, deadline_s: float) -> Iterator[str]:
    """Ask again and again until everything serves, or cannot; yield a line for each version that does not."""
    columns = description(), BarColumn(), TaskProgressColumn(), times()
    with progress(*columns) as bar:
        while True:
            coming = verdict_of(client.verdict(database)).coming
            if time.monotonic() >= deadline_s or all(version.state == STUCK for version in coming.values()):
                break
            _advance(bar, coming)
            time.sleep(min(POLL_S, max(0.0, deadline_s - time.monotonic())))
    for name, version in coming.items():
        why = "; ".join(version.waits) or "its builders are not known yet"
        yield f"{name}: {version.name} {'does not come' if version.state == STUCK else 'does not serve yet'}: {why}"


def _advance(bar: Progress, coming: Mapping[str, Coming]) -> None:
    tasks = {task.description: task.id for task in bar.tasks}
    versions = {f"{name} {version.version}": version for name, version in coming.items()}
    for words, version in versions.items():
        if words not in tasks:
            tasks[words] = bar.add_task(words, total=1.0, times="")
        times = version.progress or next(iter(version.waits), "")
        bar.update(tasks[words], completed=version.done or 0.0, times=times)
    for words in tasks.keys() - versions.keys():
        bar.update(tasks[words], completed=1.0, times="")


def _draw(info: InfoReport, address: str, report: StatusReport, verdict: ClusterVerdict, *, is_one: bool) -> None:
    shard = "" if info.shard_id is None else f", shard {info.shard_id}"
    up = duration_text(int(info.uptime_s))
    draw(Text.assemble((info.node, "bold"), f" at {address}, cluster {info.cluster}{shard}, up {up}"))
    _draw_verdict(verdict)
    if verdict.reasons or verdict.waits:
        click.echo()
        _draw_reasons(verdict)
    if report.datasets:
        click.echo()
        _draw_datasets(report.datasets, is_one=is_one)
    if report.tables:
        click.echo()
        draw(_tables_table(report.tables))


def _draw_counters(info: InfoReport) -> None:
    for line in (sentences.of_memory(info), sentences.of_tables(info), sentences.of_certificate(info)):
        if line is not None:
            draw(Text(line))


def _draw_verdict(verdict: ClusterVerdict) -> None:
    draw(Text(f"{SIGNS[verdict.level]} {verdict.text}", f"bold {COLOURS[verdict.level]}"))


def _draw_reasons(verdict: ClusterVerdict) -> None:
    """Draw the reasons, the most urgent first, then the waits of coming versions, then the advice."""
    for level, text in (*verdict.findings, *verdict.waits):
        draw(Text(text, COLOURS[level] if level != WELL else ""))
    for advice in verdict.advice:
        draw(Text(f"→ {advice}", "cyan"))


def _draw_datasets(datasets: Mapping[str, DatasetReport], *, is_one: bool) -> None:
    """Draw the versions, then their owners; on a narrow terminal remarks come below the tables."""
    remarks = {
        (database, name): _remark(version, is_held=entry.hold == name, is_one=is_one)
        for database, entry in datasets.items()
        for name, version in sorted(entry.versions.items())
    }
    is_wide = console().width >= WIDE_COLUMNS
    draw(_versions_table(datasets, remarks, is_wide=is_wide))
    for (database, name), remark in {} if is_wide else remarks.items():
        if remark:
            draw(Text(f"{database} {name}: {remark}"))
    owners = owners_table(datasets)
    if owners is not None:
        click.echo()
        draw(owners)


def _tables_table(tables: Mapping[str, TableReport]) -> Table:
    is_moving = any(holder.moves for table in tables.values() for holder in table.nodes)
    names = "table", "kind", "node", "member", "partitions", *(["moves"] if is_moving else []), "lacks"
    made = columns(*names, kept=("member",), right=("partitions",))
    for name, table in tables.items():
        shown, kind = name, table.kind
        for nodes, holder in table.holders:
            state = Text(holder.state, MEMBERS.get(holder.state, ""))
            moves = [holder.moves] if is_moving else []
            add_row(made, shown, kind, nodes, state, f"{holder.here:,}", *moves, holder.lag)
            shown = kind = ""  # Further rows leave these cells empty.
    return made


def members_table(members: Iterable[MemberReport]) -> Table:
    """Return a table of members with their states and addresses."""
    made = columns("member", "state", "address", kept=("state",))
    for member in members:
        add_row(made, member.node, Text(member.state, MEMBERS.get(member.state, "")), member.address)
    return made


def _versions_table(
    datasets: Mapping[str, DatasetReport], remarks: Mapping[tuple[str, str], str], *, is_wide: bool
) -> Table:
    numbers = "partitions", "records", "size"
    names = "database", "version", "state", "format", "function", *numbers, *([""] if is_wide else [])
    table = columns(*names, kept=("state",), right=numbers)
    for database, entry in datasets.items():
        shown = database
        for name, version in sorted(entry.versions.items()):
            add_row(
                table,
                shown,
                name,
                Text(version.state, STYLES.get(version.state, "")),
                version.format or "",
                next(iter(version.functions), ""),
                version.partitions_here or "",
                version.records_text,
                version.size_text,
                *([remarks[database, name]] if is_wide else []),
            )
            shown = ""  # Further rows leave these cells empty.
        if not entry.versions:
            remark = [Text("no version yet", "dim")] if is_wide else []
            add_row(table, database, "", Text("EMPTY", "dim"), *[""] * 5, *remark)
    return table


def owners_table(datasets: Mapping[str, DatasetReport]) -> Table | None:
    """Return a table of the owners of each version, equal ones once; None if only the asked node is known."""
    numbers = "ready", "building"
    made = columns("database", "version", "node", "member", *numbers, "partitions", kept=("member",), right=numbers)
    alike: dict[tuple[str, tuple[tuple[str, ...], ...]], list[str]] = {}
    for database, entry in datasets.items():
        for name, version in sorted(entry.versions.items()) if len(entry.nodes) > 1 else ():
            alike.setdefault((name, tuple(_owner_rows(version))), []).append(database)
    shown_before = ""
    for (name, rows), databases in alike.items():
        shown = some_text(databases)
        for place, (node, state, *cells) in enumerate(rows):
            first = ("" if shown == shown_before else shown, name) if place == 0 else ("", "")
            add_row(made, *first, node, Text(state, MEMBERS.get(state, "")), *cells)
            shown_before = shown  # Further rows leave these cells empty.
    return made if made.row_count else None


def _owner_rows(version: VersionStatus) -> Iterator[tuple[str, ...]]:
    for owner in version.owners:
        ready, building = owner.ready, owner.building
        yield (
            owner.node,
            owner.state,
            "0" if owner.state == "dead" else f"{ready.count:,}",
            f"{building.count:,}" if building.count else "",
            ready.first_runs(version.total) or building.first_runs(version.total),
        )
    if version.owners_not_named:
        yield f"and {version.owners_not_named} more", "", "", "", ""


def _remark(version: VersionStatus, *, is_held: bool, is_one: bool) -> str:
    """Return the remark beside a version; for a single database it also names other functions that fit."""
    bar, done = "", version.progress.done
    if done is not None:
        filled = round(done * 20)
        bar = f"{'━' * filled}{'╌' * (20 - filled)} {sentences.progress_text(version)}"
    return sentences.remarks(version, bar, is_held=is_held, alike=is_one)
