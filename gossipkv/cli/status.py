"""`status`: what a node holds, builds and serves; and waiting until the newest version serves."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

import click
from rich.progress import BarColumn, Progress, TaskProgressColumn
from rich.text import Text

from gossipkv.cli import FAILED
from gossipkv.cli.options import JSON, NODE, TIMEOUT, connect
from gossipkv.cli.output import note, print_json
from gossipkv.cli.screen import add_row, columns, console, description, draw, progress, times
from gossipkv.status import sentences
from gossipkv.status.reading import count_of, list_of, map_of, maps_of, number_of
from gossipkv.status.tables import datasets, of_partitions, tables
from gossipkv.status.versions import newest, versions
from gossipkv.status.words import duration_text, plain, printable, size_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from rich.table import Table

    from gossipkv.address import Address
    from gossipkv.client.blocking import Client
    from gossipkv.status.versions import VersionStatus
    from gossipkv.wire.rpc import Value

POLL_S: Final = 0.2
PATIENCE_MS: Final = 10_000  # At least, of who waits: a build may keep the machine busy.
WIDE_COLUMNS: Final = 110  # From here on there is room for remarks beside the table; else they come below it.
STYLES: Final = {
    "ACTIVE": "green",
    "AVAILABLE": "cyan",
    "BUILDING": "yellow",
    "ERROR": "bold red",
    "RETIRING": "dim",
    "SEEN": "dim",
}
MEMBERS: Final = {"alive": "green", "suspect": "yellow", "dead": "bold red"}


@click.command()
@click.argument("database", metavar="[DB]", required=False)
@click.option("--wait", is_flag=True, help="Wait until the newest version serves; status 3 if it is in error.")
@NODE
@TIMEOUT
@JSON
def status(database: str | None, nodes: tuple[Address, ...], timeout_ms: int, *, wait: bool, as_json: bool) -> int:
    """Write what the node holds, builds and serves, of DB or of every database, and which nodes have what of it.

    Exit status 3: a partition of a version that is served has no live owner, or one of a table takes no writes.  With
    --json everything that the node tells, per database, version and partition.
    """
    with connect(nodes, max(timeout_ms, PATIENCE_MS) if wait else timeout_ms) as client:
        told = _wait(client, database) if wait else _ask(client, database)
        if as_json:
            print_json(told)
        else:
            _draw(client.info(), str(client.address), told)
    troubled = [version for version in newest(told) if version.state == "ERROR"] if wait else []
    for version in troubled:
        note(f"gossipkv: {version.database} {version.name}: {version.error}")
    return FAILED if troubled or sentences.unowned(told) or any(line.is_trouble for line in of_partitions(told)) else 0


def _ask(client: Client, database: str | None) -> dict[str, Value]:
    told = client.status(database)
    return told if database is None else {name: entry for name, entry in told.items() if name == database}


def _wait(client: Client, database: str | None) -> dict[str, Value]:
    """Ask again and again until the newest complete version of each database serves, or is in error."""
    columns = description(), BarColumn(), TaskProgressColumn(), times()
    with progress(*columns) as bar:
        while True:
            told = _ask(client, database)
            wanted = newest(told)
            if wanted and all(version.serves or version.state == "ERROR" for version in wanted):
                return told
            _advance(bar, wanted)
            time.sleep(POLL_S)


def _advance(bar: Progress, wanted: list[VersionStatus]) -> None:
    tasks = {task.description: task.id for task in bar.tasks}
    for version in wanted:
        words = f"{version.database} {version.name}"
        if words not in tasks:
            tasks[words] = bar.add_task(words, total=1.0, times="")
        completed = 1.0 if version.serves else version.done or 0.0
        bar.update(tasks[words], completed=completed, times=_times(version))


def _times(version: VersionStatus) -> str:
    """How long it waits already, and how long its build will go on."""
    waited = [] if version.waited_s is None else [duration_text(int(version.waited_s))]
    left = [] if version.remaining_s is None else [f"{duration_text(round(version.remaining_s))} left"]
    return ", ".join(waited + left)


def _draw(info: dict[str, Value], address: str, told: dict[str, Value]) -> None:
    node, cluster, up = plain(info.get("node")), plain(info.get("cluster")), number_of(info.get("uptime_s")) or 0
    shard = "" if info.get("shard_id") is None else f", shard {plain(info['shard_id'])}"
    draw(Text.assemble((node, "bold"), f" at {address}, cluster {cluster}{shard}, up {duration_text(int(up))}"))
    for trouble in sentences.of_node(info):
        draw(Text(trouble, "bold red"))
    for line in (sentences.of_memory(info), sentences.of_tables(info)):
        if line is not None:
            draw(Text(printable(line)))
    click.echo()
    if datasets(told):
        _draw_databases(datasets(told))
    if any(tables(told)):
        _draw_tables(told)
    elif not told:
        draw(Text("no databases: nothing is built, and the source shows none", "dim"))


def _draw_databases(told: dict[str, Value]) -> None:
    """Draw the versions, then who has them; lines come below the tables: they are long, and must not be folded."""
    wide = console().width >= WIDE_COLUMNS
    draw(_table(told, wide=wide))
    for remark in () if wide else _remarks(told):
        draw(Text(printable(remark)))
    spread = owners_table(told)
    if spread is not None:
        click.echo()
        draw(spread)
    shared = list(sentences.of_owners(told))
    if shared and spread is not None:
        click.echo()
    lines = [*sentences.of_versions(told), *shared]
    for line in (line for line in lines if not line.is_trouble):
        draw(Text(printable(line.text), "yellow"))
    for line in (line for line in lines if line.is_trouble):
        draw(Text(printable(line.text), "red"))


def _draw_tables(told: dict[str, Value]) -> None:
    """Draw who holds the tables, and below it what is not well."""
    if datasets(told):
        click.echo()
    made = columns("table", "kind", "node", "member", "partitions", "lacks", kept=("member",), right=("partitions",))
    for table in tables(told):
        shown, kind = table.name, table.kind
        for holder in table.holders:
            state = Text(holder.state, MEMBERS.get(holder.state, ""))
            add_row(made, shown, kind, holder.node, state, f"{holder.partitions:,}", holder.lag)
            shown = kind = ""  # Said once.
    draw(made)
    for line in of_partitions(told):
        draw(Text(printable(line.text), "red" if line.is_trouble else "yellow"))


def _table(told: dict[str, Value], *, wide: bool) -> Table:
    numbers = "partitions", "records", "size"
    names = "database", "version", "state", "format", "function", *numbers, *([""] if wide else [])
    table = columns(*names, kept=("state",), right=numbers)
    for database, entry in sorted(told.items()):
        _add_database(table, database, entry, wide=wide)
    return table


def _add_database(table: Table, database: str, entry: Value, *, wide: bool) -> None:
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
            *([_remark(version)] if wide else []),
        )
        database = ""  # Said once.
    if not known:
        add_row(
            table, database, "", Text("EMPTY", "dim"), *[""] * 5, *([Text("no version yet", "dim")] if wide else [])
        )


def owners_table(told: Mapping[str, Value]) -> Table | None:
    """Draw who has what of each version; None: no node is known but the one that was asked."""
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
            database = shown = ""  # Said once.
        if more := version.get("owners_not_named"):
            add_row(made, "", "", f"and {plain(more)} more", *[""] * 4)


def _remarks(told: dict[str, Value]) -> Iterator[str]:
    for version in versions(told):
        if remark := _remark(version):
            yield f"{version.database} {version.name}: {remark}"


def _remark(version: VersionStatus) -> str:
    if version.done is None:
        return sentences.remarks(version)
    filled = round(version.done * 20)
    return sentences.remarks(version, f"{'━' * filled}{'╌' * (20 - filled)} {sentences.progress_text(version)}")
