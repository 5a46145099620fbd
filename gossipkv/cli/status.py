"""`status`: what a node holds, builds and serves; and waiting until the newest version serves."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

import click
from rich.progress import BarColumn, Progress, TaskProgressColumn
from rich.text import Text

from gossipkv.cli import FAILED, owners
from gossipkv.cli.options import JSON, NODE, TIMEOUT, connect
from gossipkv.cli.output import note, plain, print_json, printable
from gossipkv.cli.screen import add_row, columns, console, description, draw, duration_text, progress, size_text, times

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.table import Table

    from gossipkv.address import Address
    from gossipkv.client.blocking import Client
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


@final
@dataclass(frozen=True, slots=True)
class VersionStatus:
    """One version of a database as the node tells it; what it does not tell is None."""

    database: str
    name: str
    state: str
    partitions: str | None  # How many are here; of how many, if that is not all.
    records: int | None
    size_bytes: int | None
    done: float | None
    remaining_s: float | None
    waited_s: float | None
    waiting_for: str | None
    lacks_space: bool
    source_differs: bool
    held: bool
    active: bool
    error: str | None
    format: str | None
    functions: tuple[str, ...]  # The one that it is grouped by, and those that no key tells from it.
    duplicates: int | None
    stray: str | None
    scrub: str | None

    @property
    def is_complete(self) -> bool:
        """Whether the source has all of it, or clients get it from other nodes, which have it all."""
        return self.active or self.waiting_for is None or self.lacks_space

    @property
    def serves(self) -> bool:
        """Whether clients get it, from wherever it is; what is to be here of it may still be built."""
        return self.active or self.state == "ACTIVE"


@click.command()
@click.argument("database", metavar="[DB]", required=False)
@click.option("--wait", is_flag=True, help="Wait until the newest version serves; status 3 if it is in error.")
@NODE
@TIMEOUT
@JSON
def status(database: str | None, nodes: tuple[Address, ...], timeout_ms: int, *, wait: bool, as_json: bool) -> int:
    """Write what the node holds, builds and serves, of DB or of every database, and which nodes have what of it.

    Exit status 3: a partition of a version that is served has no live owner.  With --json everything that the node
    tells, per database, version and partition.
    """
    with connect(nodes, max(timeout_ms, PATIENCE_MS) if wait else timeout_ms) as client:
        told = _wait(client, database) if wait else _ask(client, database)
        if as_json:
            print_json(told)
        else:
            _draw(client.info(), str(client.address), told)
    troubled = [version for version in _newest(told) if version.state == "ERROR"] if wait else []
    for version in troubled:
        note(f"gossipkv: {version.database} {version.name}: {version.error}")
    return FAILED if troubled or owners.unowned(told) else 0


def _ask(client: Client, database: str | None) -> dict[str, Value]:
    told = client.status(database)
    return told if database is None else {name: entry for name, entry in told.items() if name == database}


def _wait(client: Client, database: str | None) -> dict[str, Value]:
    """Ask again and again until the newest complete version of each database serves, or is in error."""
    columns = description(), BarColumn(), TaskProgressColumn(), times()
    with progress(*columns) as bar:
        while True:
            told = _ask(client, database)
            newest = _newest(told)
            if newest and all(version.serves or version.state == "ERROR" for version in newest):
                return told
            _advance(bar, newest)
            time.sleep(POLL_S)


def _advance(bar: Progress, newest: list[VersionStatus]) -> None:
    tasks = {task.description: task.id for task in bar.tasks}
    for version in newest:
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


def _newest(told: dict[str, Value]) -> list[VersionStatus]:
    """The version of each database that is to serve: the one that is held, else the newest complete one.

    Versions are ordered as strings.  A newer one that retires is one that a hold has led back from.
    """
    complete = [version for version in _versions(told) if version.is_complete and version.state != "RETIRING"]
    newest = {version.database: version for version in complete}
    for database, entry in told.items():
        if isinstance(entry, dict) and (hold := entry.get("hold")) is not None:
            held = [version for version in _versions({database: entry}) if version.held]
            newest[database] = held[0] if held else _missing(database, str(hold), _text(entry.get("error")))
    return list(newest.values())


def _missing(database: str, hold: str, error: str | None) -> VersionStatus:
    """A version that is held and of which the node knows nothing (yet)."""
    told: dict[str, Value] = {"state": "SEEN"} if error is None else {"state": "ERROR", "error": {"message": error}}
    return _version(database, hold, told, {"hold": hold})


def _versions(told: dict[str, Value]) -> Iterator[VersionStatus]:
    """Every version, databases and versions in order."""
    for database, entry in sorted(told.items()):
        versions = entry.get("versions") if isinstance(entry, dict) else None
        for name, version in sorted(versions.items()) if isinstance(versions, dict) else ():
            if isinstance(entry, dict) and isinstance(version, dict):
                yield _version(database, name, version, entry)


def _version(database: str, name: str, told: dict[str, Value], entry: dict[str, Value]) -> VersionStatus:
    build, error = told.get("progress"), told.get("error")
    building = build if isinstance(build, dict) else {}
    return VersionStatus(
        database,
        name,
        str(told.get("state")),
        _partitions(told),
        _whole(told.get("records")),
        _whole(told.get("size_bytes")),
        _number(building.get("done")),
        _number(building.get("remaining_s")),
        _number(told.get("waited_s")),
        _text(told.get("waiting_for")),
        told.get("needed_bytes") is not None,
        told.get("source_differs") is True,
        entry.get("hold") == name,
        entry.get("active") == name,
        str(error.get("message")) if isinstance(error, dict) else None,
        _text(told.get("format")),
        _functions(told),
        _whole(told.get("duplicates")),
        _stray(told),
        _scrub(told),
    )


def _partitions(told: dict[str, Value]) -> str | None:
    partitions, count = told.get("partitions"), _whole(told.get("partition_count"))
    here = len(partitions) if isinstance(partitions, list) else None
    if count is None or here == count:
        return None if here is None else str(here)
    return f"{here or 0:,} of {count:,}"


def _functions(told: dict[str, Value]) -> tuple[str, ...]:
    function, alike = told.get("function"), told.get("alike")
    if function is None:
        return ()
    others = [str(name) for name in alike if name != function] if isinstance(alike, list) else []
    return str(function), *others


def _scrub(told: dict[str, Value]) -> str | None:
    """When it was last read back from the disk, and that it is so now."""
    scrub = told.get("scrub")
    if not isinstance(scrub, dict):
        return None
    words = ["being scrubbed"] if scrub.get("running") is True else []
    last_s, damaged_files = _whole(scrub.get("last_s")), _whole(scrub.get("damaged_files"))
    if last_s is not None:
        where = "" if scrub.get("bypassed_cache") is True else ", through the cache"
        found = f", {damaged_files:,} files damaged" if damaged_files else ""
        words.append(f"scrubbed {duration_text(last_s)} ago{where}{found}")
    return "; ".join(words) or None


def _stray(told: dict[str, Value]) -> str | None:
    """What voided the function that the files seemed to be made with."""
    first = told.get("first_stray")
    if not isinstance(first, dict):
        return None
    count = _whole(told.get("strays")) or 1
    offset = _whole(first.get("offset")) or 0
    keys = "1 key strays" if count == 1 else f"{count:,} keys stray"
    return (
        f"grouped by {plain(told.get('function'))}, since {keys} from {plain(told.get('voided'))}: "
        f"first {plain(first.get('key'))} in {plain(first.get('file'))}, byte {offset:,}"
    )


def _text(value: Value) -> str | None:
    return None if value is None else str(value)


def _whole(value: Value) -> int | None:
    return value if isinstance(value, int) else None


def _number(value: Value) -> float | None:
    return float(value) if isinstance(value, (int, float)) else None


def _draw(info: dict[str, Value], address: str, told: dict[str, Value]) -> None:
    node, cluster, up = plain(info.get("node")), plain(info.get("cluster")), _number(info.get("uptime_s")) or 0
    shard = "" if info.get("shard_id") is None else f", shard {plain(info['shard_id'])}"
    draw(Text.assemble((node, "bold"), f" at {address}, cluster {cluster}{shard}, up {duration_text(int(up))}"))
    if info.get("isolated") is True:
        draw(Text("isolated: it hears from no other node, and what it knows of them is stale", "bold red"))
    if info.get("publish_error") is not None:
        draw(Text(f"tree: {plain(info['publish_error'])}", "bold red"))
    twice = info.get("claimed_twice")
    if isinstance(twice, list) and twice:
        names = ", ".join(map(plain, twice))
        draw(Text(f"claimed twice: two nodes are called {names}; `gossipkv tree duplicates` says where", "bold red"))
    if info.get("silent") is not None:
        silence = plain(info["silent"])
        draw(Text(f"silent: nothing is built or switched, and no node hears of it: {silence}", "bold red"))
    if info.get("source_error") is not None:
        draw(Text(f"source: {plain(info['source_error'])}", "bold red"))
    click.echo()
    if told:
        _draw_databases(told)
    else:
        draw(Text("no databases: nothing is built, and the source shows none", "dim"))


def _draw_databases(told: dict[str, Value]) -> None:
    """Draw the versions, then who has them; lines come below the tables: they are long, and must not be folded."""
    wide = console().width >= WIDE_COLUMNS
    draw(_table(told, wide=wide))
    for line in () if wide else _remarks(told):
        draw(Text(printable(line)))
    spread = owners.table(told)
    if spread is not None:
        click.echo()
        draw(spread)
    lines = list(owners.lines(told))
    if lines and spread is not None:
        click.echo()
    for line in *_notes(told), *(line.text for line in lines if not line.is_trouble):
        draw(Text(printable(line), "yellow"))
    for line in *_troubles(told), *(line.text for line in lines if line.is_trouble):
        draw(Text(printable(line), "red"))


def _table(told: dict[str, Value], *, wide: bool) -> Table:
    numbers = "partitions", "records", "size"
    names = "database", "version", "state", "format", "function", *numbers, *([""] if wide else [])
    table = columns(*names, kept=("state",), right=numbers)
    for database, entry in sorted(told.items()):
        _add_database(table, database, entry, wide=wide)
    return table


def _add_database(table: Table, database: str, entry: Value, *, wide: bool) -> None:
    versions = list(_versions({database: entry}))
    for version in versions:
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
    if not versions:
        add_row(
            table, database, "", Text("EMPTY", "dim"), *[""] * 5, *([Text("no version yet", "dim")] if wide else [])
        )


def _troubles(told: dict[str, Value]) -> Iterator[str]:
    for database, entry in sorted(told.items()):
        if isinstance(entry, dict) and entry.get("error") is not None:
            yield f"{database}: {plain(entry['error'])}"
    for version in _versions(told):
        if version.lacks_space:
            yield f"{version.database} {version.name}: waits for {version.waiting_for}"
        if version.error is not None:
            yield f"{version.database} {version.name}: {version.error}"


def _remarks(told: dict[str, Value]) -> Iterator[str]:
    for version in _versions(told):
        if remark := _remark(version):
            yield f"{version.database} {version.name}: {remark}"


def _notes(told: dict[str, Value]) -> Iterator[str]:
    yield from (f"{version.database} {version.name}: {version.stray}" for version in _versions(told) if version.stray)


def _remark(version: VersionStatus) -> str:
    remarks = []
    if version.held:
        remarks.append("held")
    if version.waiting_for is not None:
        remarks.append("waits for room" if version.lacks_space else f"waits for {version.waiting_for}")
    if version.state == "BUILDING" and version.done is not None:
        left = "" if version.remaining_s is None else f", {duration_text(round(version.remaining_s))} left"
        filled = round(version.done * 20)
        remarks.append(f"{'━' * filled}{'╌' * (20 - filled)} {version.done:.0%}{left}")
    if version.waited_s is not None:
        remarks.append(f"waiting {duration_text(int(version.waited_s))}")
    if version.functions[1:]:
        remarks.append(f"{' and '.join(version.functions[1:])} would do as well")
    if version.duplicates:
        remarks.append(f"{version.duplicates:,} duplicates")
    if version.scrub is not None:
        remarks.append(version.scrub)
    if version.source_differs:
        remarks.append("source has changed since")
    return "; ".join(remarks)
