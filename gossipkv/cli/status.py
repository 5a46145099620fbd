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
from gossipkv.cli.options import JSON, NODE, connect, timeout
from gossipkv.cli.output import note, print_json
from gossipkv.cli.screen import add_row, columns, console, description, draw, progress, times
from gossipkv.status import sentences
from gossipkv.status.reading import count_of, list_of, map_of, maps_of, number_of
from gossipkv.status.tables import datasets, tables
from gossipkv.status.verdict import ATTENTION, COMES, STUCK, TROUBLE, WELL, verdict_of
from gossipkv.status.versions import versions
from gossipkv.status.words import duration_text, plain, printable, size_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from rich.table import Table

    from gossipkv.address import Address
    from gossipkv.client.blocking import Client
    from gossipkv.status.verdict import ClusterVerdict, Coming
    from gossipkv.status.versions import VersionStatus
    from gossipkv.wire.rpc import Value

POLL_S: Final = 0.2
PATIENCE_MS: Final = 10_000  # The default: the node asks all members, and a build may keep the machine busy.
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


@click.command()
@click.argument("database", metavar="[DB]", required=False)
@click.option("--wait", is_flag=True, help="Wait until what is to serve serves at every node; status 3 if it cannot.")
@click.option("--verdict", "is_short", is_flag=True, help="Write the verdict alone: how it is, why, and what to do.")
@NODE
@timeout("1s", "one request; with --wait, if it is given, for all of it")
@JSON
@click.pass_context
def status(
    context: click.Context,
    database: str | None,
    nodes: tuple[Address, ...],
    timeout_ms: int,
    *,
    wait: bool,
    is_short: bool,
    as_json: bool,
) -> int:
    """Say whether all is well, and write what the node holds, builds and serves, of DB or of every database.

    The node asks all members, so whichever is asked, the verdict is the same.  Exit status 3: something is wrong.  With
    --json everything that the node tells, per database, version and partition.
    """
    is_given = context.get_parameter_source("timeout_ms") is not ParameterSource.DEFAULT
    deadline_s = time.monotonic() + timeout_ms / 1000 if wait and is_given else math.inf
    with connect(nodes, timeout_ms if is_given else PATIENCE_MS) as client:
        lacking = list(_wait(client, database, deadline_s)) if wait else []
        made = verdict_of(client.verdict(database))
        if is_short:
            _write_verdict(made, as_json=as_json)
        elif as_json:
            print_json(_ask(client, database))
        else:
            _draw(client.info(), str(client.address), _ask(client, database), made, is_one=database is not None)
    for line in lacking:
        note(f"gossipkv: {line}")
    return FAILED if lacking or made.level == TROUBLE else 0


def _ask(client: Client, database: str | None) -> dict[str, Value]:
    told = client.status(database)
    return told if database is None else {name: entry for name, entry in told.items() if name == database}


def _wait(client: Client, database: str | None, deadline_s: float) -> Iterator[str]:
    """Ask again and again until everything serves, or cannot; yield a line for each version that does not."""
    columns = description(), BarColumn(), TaskProgressColumn(), times()
    with progress(*columns) as bar:
        while True:
            coming = verdict_of(client.verdict(database)).coming
            if time.monotonic() >= deadline_s or all(each.state == STUCK for each in coming.values()):
                break
            _advance(bar, coming)
            time.sleep(min(POLL_S, max(0.0, deadline_s - time.monotonic())))
    for name, each in coming.items():
        why = "; ".join(each.waits) or "it is not known yet who builds it"
        yield f"{name}: {each.name} {'does not come' if each.state == STUCK else 'does not serve yet'}: {why}"


def _advance(bar: Progress, coming: Mapping[str, Coming]) -> None:
    tasks = {task.description: task.id for task in bar.tasks}
    for name, each in coming.items():
        words = f"{name} {each.version}"
        if words not in tasks:
            tasks[words] = bar.add_task(words, total=1.0, times="")
        bar.update(tasks[words], completed=each.done or 0.0, times=each.progress or next(iter(each.waits), ""))
    for words, task in tasks.items():
        if words not in {f"{name} {each.version}" for name, each in coming.items()}:
            bar.update(task, completed=1.0, times="")


def _write_verdict(made: ClusterVerdict, *, as_json: bool) -> None:
    if as_json:
        print_json(made.to_map())
    else:
        _draw_verdict(made)
        _draw_reasons(made)


def _draw(info: dict[str, Value], address: str, told: dict[str, Value], made: ClusterVerdict, *, is_one: bool) -> None:
    node, cluster, up = plain(info.get("node")), plain(info.get("cluster")), number_of(info.get("uptime_s")) or 0
    shard = "" if info.get("shard_id") is None else f", shard {plain(info['shard_id'])}"
    draw(Text.assemble((node, "bold"), f" at {address}, cluster {cluster}{shard}, up {duration_text(int(up))}"))
    _draw_verdict(made)
    for line in (sentences.of_memory(info), sentences.of_tables(info), sentences.of_certificate(info)):
        if line is not None:
            draw(Text(printable(line)))
    if told:
        click.echo()
    if datasets(told):
        _draw_databases(datasets(told), is_one=is_one)
    if any(tables(told)):
        _draw_tables(told)
    if made.reasons or made.coming:
        click.echo()
        _draw_reasons(made)


def _draw_verdict(made: ClusterVerdict) -> None:
    draw(Text(f"{SIGNS[made.level]} {printable(made.text)}", f"bold {COLOURS[made.level]}"))


def _draw_reasons(made: ClusterVerdict) -> None:
    """Draw the reasons, the most urgent first, then the waits of coming versions, then the advice."""
    for reason in made.reasons:
        draw(Text(printable(reason.text), COLOURS[reason.level] if reason.level != WELL else ""))
    for name, each in made.coming.items():
        for what in each.waits if each.state == COMES else ():
            draw(Text(printable(f"{name}: {each.name}: {what}")))
    for advice in made.advice:
        draw(Text(f"→ {printable(advice)}", "cyan"))


def _draw_databases(told: dict[str, Value], *, is_one: bool) -> None:
    """Draw the versions, then their owners; on a narrow terminal remarks come below the tables."""
    wide = console().width >= WIDE_COLUMNS
    draw(_table(told, wide=wide, is_one=is_one))
    for remark in () if wide else _remarks(told, is_one=is_one):
        draw(Text(printable(remark)))
    spread = owners_table(told)
    if spread is not None:
        click.echo()
        draw(spread)


def _draw_tables(told: dict[str, Value]) -> None:
    if datasets(told):
        click.echo()
    found = [*tables(told)]
    is_moving = any(holder.moves for table in found for holder in table.holders)
    names = "table", "kind", "node", "member", "partitions", *(["moves"] if is_moving else []), "lacks"
    made = columns(*names, kept=("member",), right=("partitions",))
    for table in found:
        shown, kind = table.name, table.kind
        for holder in table.holders:
            state = Text(holder.state, MEMBERS.get(holder.state, ""))
            moves = [holder.moves] if is_moving else []
            add_row(made, shown, kind, holder.node, state, f"{holder.partitions:,}", *moves, holder.lag)
            shown = kind = ""  # Further rows leave these cells empty.
    draw(made)


def _table(told: dict[str, Value], *, wide: bool, is_one: bool) -> Table:
    numbers = "partitions", "records", "size"
    names = "database", "version", "state", "format", "function", *numbers, *([""] if wide else [])
    table = columns(*names, kept=("state",), right=numbers)
    for database, entry in sorted(told.items()):
        _add_database(table, database, entry, wide=wide, is_one=is_one)
    return table


def _add_database(table: Table, database: str, entry: Value, *, wide: bool, is_one: bool) -> None:
    known = list(versions({database: entry}))
    for version in known:
        add_row(
            table,
            database,
            version.name,
            Text(version.state, STYLES.get(version.state, "")),
            version.format or "",
            version.functions[0] if version.functions else "",
            version.partitions or "",
            "" if version.records is None else f"{version.records:,}",
            "" if version.size_bytes is None else size_text(version.size_bytes),
            *([_remark(version, is_one=is_one)] if wide else []),
        )
        database = ""  # Further rows leave these cells empty.
    if not known:
        add_row(
            table, database, "", Text("EMPTY", "dim"), *[""] * 5, *([Text("no version yet", "dim")] if wide else [])
        )


def owners_table(told: Mapping[str, Value]) -> Table | None:
    """Return a table of the owners of each version; None if only the asked node is known."""
    numbers = "ready", "building"
    made = columns("database", "version", "node", "member", *numbers, "partitions", kept=("member",), right=numbers)
    for database, entry in sorted(told.items()):
        if len(list_of(map_of(entry).get("nodes"))) > 1:
            _add_owners(made, database, maps_of(map_of(entry).get("versions")))
    return made if made.row_count else None


def _add_owners(made: Table, database: str, versions: Mapping[str, Mapping[str, Value]]) -> None:
    for name, version in sorted(versions.items()):
        shown = name
        for owner in map(map_of, list_of(version.get("owners"))):
            state = plain(owner.get("state"))
            ready, building = map_of(owner.get("ready")), map_of(owner.get("building"))
            add_row(
                made,
                database,
                shown,
                plain(owner.get("node")),
                Text(state, MEMBERS.get(state, "")),
                f"{count_of(ready):,}",
                f"{count_of(building):,}" if count_of(building) else "",
                sentences.runs_of(ready, version) or sentences.runs_of(building, version),
            )
            database = shown = ""  # Further rows leave these cells empty.
        if more := version.get("owners_not_named"):
            add_row(made, "", "", f"and {plain(more)} more", *[""] * 4)


def _remarks(told: dict[str, Value], *, is_one: bool) -> Iterator[str]:
    for version in versions(told):
        if remark := _remark(version, is_one=is_one):
            yield f"{version.database} {version.name}: {remark}"


def _remark(version: VersionStatus, *, is_one: bool) -> str:
    """Return the remark beside a version; for a single database it also names other functions that fit."""
    if version.done is None:
        return sentences.remarks(version, alike=is_one)
    filled = round(version.done * 20)
    bar = f"{'━' * filled}{'╌' * (20 - filled)} {sentences.progress_text(version)}"
    return sentences.remarks(version, bar, alike=is_one)
