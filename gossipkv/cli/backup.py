"""`backup` and `restore`: the tables of a cluster, to a directory of a node or a URL, and back."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Final

import click
from rich.progress import BarColumn, TextColumn, TimeElapsedColumn

from gossipkv.cli import FAILED, CommandGroup
from gossipkv.cli.help import Command
from gossipkv.cli.options import JSON, NODES, AskedNodes, ask_map, ask_maps, ask_within
from gossipkv.cli.output import note, part_text, print_json, tell
from gossipkv.cli.screen import description, progress
from gossipkv.errors import GossipKVError, ProtocolError
from gossipkv.status.words import plain, size_text

if TYPE_CHECKING:
    from gossipkv.client.blocking import Client
    from gossipkv.wire.rpc import Value

WAIT_MS: Final = 1000  # Time for which the node waits for the end before it answers with the progress.
ID_BYTES: Final = 20
DEST: Final = click.argument("destination", metavar="DEST")
SRC: Final = click.argument("source", metavar="SRC")
TABLES: Final = click.option("--table", "tables", metavar="T", multiple=True, help="Only this table; repeatable.")
TAKE_OVER: Final = click.option("--take-over", is_flag=True, help="Take over DEST from another cluster.")
STEP: Final = ask_within("10s", "one answer of the node, which reports progress each second")


@click.group(cls=CommandGroup, context_settings={"help_option_names": ["-h", "--help"]})
def backup() -> None:
    """Back up the cluster's tables, and list, check and remove backups.

    DEST is a directory on the machine of the asked node, or a URL (`s3://…`). The node's settings must allow it:
    `backup_roots`, or `[storage."URL"]`. Datasets need no backup: their source has them.
    """


@backup.command()
@DEST
@TABLES
@click.option("--since", metavar="BACKUP", help="Copy only the changes since BACKUP of the same DEST.")
@click.option("--partial", is_flag=True, help="Leave out partitions that cannot be copied, and name them.")
@TAKE_OVER
@STEP
@JSON
def create(
    destination: str,
    tables: tuple[str, ...],
    since: str | None,
    nodes: AskedNodes,
    *,
    partial: bool,
    take_over: bool,
    as_json: bool,
) -> None:
    """Back up all tables of the cluster, or some, to DEST.

    The backup has every write that was acknowledged at `majority` or `all` before it began.  An interrupted backup
    leaves nothing that the next one does not remove.
    """
    options: dict[str, Value] = {"tables": [*tables], **({} if since is None else {"since": since})}
    options |= {name: True for name, is_on in (("take_over", take_over), ("partial", partial)) if is_on}
    answer = _job(nodes, "backup", destination, options)
    lines = f"{plain(answer.get('backup'))}: {_counted(answer)} of {_named(answer.get('tables'))} in {destination}"
    tell(answer, lines, as_json=as_json)
    _note_missing(plain(answer.get("backup")), answer.get("missing"))


@backup.command(name="list")
@DEST
@NODES
@JSON
def list_backups(destination: str, nodes: AskedNodes, *, as_json: bool) -> None:
    """List the complete backups at DEST, the oldest first, and those that are damaged."""
    with nodes.connect() as client:
        backups = ask_maps(client, "backup_list", destination)
    if as_json:
        print_json([*backups])
    elif not backups:
        note(f"gossipkv: {destination}: no complete backup is here")
    for found in [] if as_json else backups:
        if "damaged" in found:
            click.echo(f"{plain(found.get('backup'))}\tdamaged: {plain(found['damaged'])}")
            continue
        since = "" if found.get("since") is None else f", since {plain(found['since'])}"
        sizes = f"{_size(found.get('new_bytes'))} of its own, {_size(found.get('bytes'))} in all"
        lacks = "; ".join(_missing(found.get("missing")))
        line = f"{plain(found.get('backup'))}\t{_named(found.get('tables'))}\t{sizes}{since}"
        click.echo(f"{line}, without {lacks}" if lacks else line)


@backup.command()
@SRC
@click.option("--newest", is_flag=True, help="Read only the newest backup.")
@STEP
@JSON
def verify(source: str, nodes: AskedNodes, *, newest: bool, as_json: bool) -> None:
    """Read every byte of backups: of all in SRC, or of one if SRC is DEST/BACKUP."""
    answer = _job(nodes, "backup_verify", source, {"newest": True} if newest else {})
    names, told = answer.get("backups"), answer.get("damaged")
    damaged = told if isinstance(told, dict) else {}
    whole = [name for name in names if name not in damaged] if isinstance(names, list) else []
    counted = f"{plain(answer.get('files'))} files, {_size(answer.get('bytes'))}"
    tell(answer, f"{_named(whole, 'no backup')}: {counted}: all whole", as_json=as_json)
    for name, why in sorted(damaged.items()):
        note(f"gossipkv: {name} is damaged: {plain(why)}")
    missing = answer.get("missing")
    for name, lacks in sorted(missing.items()) if isinstance(missing, dict) else ():
        _note_missing(name, lacks)
    if damaged:
        raise click.exceptions.Exit(FAILED)


@backup.command()
@DEST
@click.argument("backups", metavar="[BACKUP]...", nargs=-1)
@click.option("--keep", type=click.IntRange(min=1), metavar="N", help="Remove all but the N newest backups.")
@TAKE_OVER
@ask_within("1m", "the whole removal")
@JSON
def expire(
    destination: str,
    backups: tuple[str, ...],
    keep: int | None,
    nodes: AskedNodes,
    *,
    take_over: bool,
    as_json: bool,
) -> None:
    """Delete backups at DEST at once: the named ones or, with --keep N, all but the N newest.

    Files that a later backup shares stay until that one is removed.
    """
    if bool(backups) == (keep is not None):
        raise click.UsageError("give either the backups to remove, or --keep N")
    options: dict[str, Value] = {"backups": [*backups]} if keep is None else {"keep": keep}
    options |= {"take_over": True} if take_over else {}
    with nodes.connect() as client:
        answer = ask_map(client, "backup_expire", destination, options)
    removed = answer.get("expired")
    count = len(removed) if isinstance(removed, list) else 0
    tell(answer, f"{destination}: {count} removed, {_size(answer.get('bytes'))}", as_json=as_json)
    damaged = answer.get("damaged")
    for name in damaged if isinstance(damaged, list) else ():
        note(f"gossipkv: {plain(name)} is damaged: what it may need of older backups stays until you name it to expire")


@click.command(cls=Command)
@SRC
@TABLES
@click.option("--as", "new_name", metavar="NEW", help="Another name for the only table.")
@STEP
@JSON
def restore(source: str, tables: tuple[str, ...], new_name: str | None, nodes: AskedNodes, *, as_json: bool) -> None:
    """Load the tables of a backup into the running cluster.

    SRC is DEST/BACKUP, or DEST for its newest backup.  The tables appear when all of their records are in; the cluster
    serves others meanwhile.  An interrupted restore leaves nothing.  Without --table, datasets are held again on the
    versions on which they were held.
    """
    options: dict[str, Value] = {"tables": [*tables], **({} if new_name is None else {"as": new_name})}
    answer = _job(nodes, "restore", source, options)
    named = answer.get("tables")
    restored = sorted(named) if isinstance(named, dict) else []
    tell(answer, f"{plain(answer.get('backup'))}: {_counted(answer)} in {_named([*restored])}", as_json=as_json)
    _note_missing(plain(answer.get("backup")), answer.get("missing"))
    fewer = answer.get("fewer")
    for name, told in sorted(fewer.items()) if isinstance(fewer, dict) else ():
        if isinstance(told, dict):
            left_out = told.get("left_out")
            without = f"; members without one: {_named(left_out, 'none')}" if left_out else ""
            note(f"gossipkv: {name} has {plain(told.get('replicas'))} of {plain(told.get('wanted'))} replicas{without}")
    holds = answer.get("holds")
    for name, why in sorted(holds.items()) if isinstance(holds, dict) else ():
        if why is not None:
            note(f"gossipkv: dataset {name}: {plain(why)}")


def _job(nodes: AskedNodes, method: str, place: str, options: dict[str, Value]) -> dict[str, Value]:
    """Start a job at a node, show its progress, and return its result; an interruption cancels it."""
    operation = os.urandom(ID_BYTES)
    with (
        nodes.connect() as client,
        progress(description(), BarColumn(), TextColumn("{task.fields[moved]}"), TimeElapsedColumn()) as bar,
    ):
        task = bar.add_task(method.replace("_", " "), total=None, moved="")
        try:
            while True:
                answer = ask_map(client, method, place, {**options, "operation": operation, "wait_ms": WAIT_MS})
                if answer.get("state") == "done":
                    return {name: value for name, value in answer.items() if name != "state"}
                done, total, moved = answer.get("done"), answer.get("total"), answer.get("bytes")
                if not (isinstance(done, int) and isinstance(total, int) and isinstance(moved, int)):
                    raise ProtocolError(f"{client.address} answered something else than the progress of a job")
                words = f"{method.replace('_', ' ')} {plain(answer.get('table'))}"
                bar.update(task, description=words, total=total or None, completed=done, moved=size_text(moved))
        except KeyboardInterrupt:
            _cancel(client, method, place, operation)
            raise


def _cancel(client: Client, method: str, place: str, operation: bytes) -> None:
    with contextlib.suppress(GossipKVError):
        client.call(method, place, {"operation": operation, "cancel": True})


def _missing(found: Value) -> list[str]:
    """Return the partitions that a partial backup lacks, in words for each table."""
    tables = sorted(found.items()) if isinstance(found, dict) else []
    return [f"{', '.join(map(part_text, parts))} of {name}" for name, parts in tables if isinstance(parts, list)]


def _note_missing(backup: str, found: Value) -> None:
    for lacks in _missing(found):
        note(f"gossipkv: {backup} is partial: it lacks {lacks}")


def _counted(answer: dict[str, Value]) -> str:
    records = answer.get("records")
    return f"{records if isinstance(records, int) else 0:,} records"


def _named(names: Value, nothing: str = "no table") -> str:
    return ", ".join(map(plain, names) if isinstance(names, list) else ()) or nothing


def _size(value: Value) -> str:
    return size_text(value if isinstance(value, int) else 0)
