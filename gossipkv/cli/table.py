"""`table`: makes, drops, lists and shows tables; modules beside this one have its other commands."""

from __future__ import annotations

import contextlib
import secrets
from typing import TYPE_CHECKING, Final

import click

from gossipkv.cli import (
    CommandGroup,
    placement,
    quarantine,
    range_deletion,
    ranges,
    table_changes,
    table_export,
    table_import,
)
from gossipkv.cli.decisions import DECISION, allowed, decided
from gossipkv.cli.options import HEX_KEYS, JSON, NODES, AskedNodes, ask_map, ask_within, duration_ms, key_bytes
from gossipkv.cli.output import print_json, tell
from gossipkv.cli.screen import add_row, columns, draw, write_table
from gossipkv.errors import NotReady, ProtocolError, UnknownDatabase
from gossipkv.keyspace.time_key import parse_time_key
from gossipkv.register.metadata.operations import OPERATION_ID_BYTES
from gossipkv.register.metadata.partitions import HASH, PARTITIONERS, RANGE
from gossipkv.settings.tables import CREATION_MS
from gossipkv.status.codec import decode, decode_list
from gossipkv.status.reports import DatabaseSummary, TableMap
from gossipkv.status.words import duration_text, names_text, plain
from gossipkv.table.rpc.requests import KINDS

if TYPE_CHECKING:
    from rich.table import Table

    from gossipkv.client.blocking import Client
    from gossipkv.keyspace.time_key import TimeKey
    from gossipkv.wire.rpc import Value

SEQUENCE_BITS: Final = 48
CREATION: Final = ask_within("30s", "the creation, and again to ask for its outcome")


def time_key(text: str) -> TimeKey:
    """Parse `OFFSET:WIDTH:UNIT`."""
    try:
        return parse_time_key(text)
    except ProtocolError as error:
        raise click.BadParameter(error.message) from None


@click.group(cls=CommandGroup, no_args_is_help=False, context_settings={"help_option_names": ["-h", "--help"]})
def table() -> None:
    """Manage tables, their partitions and their replicas."""


for command in (
    placement.plan, placement.reshard, ranges.split, ranges.join, ranges.leave, ranges.force_join, ranges.partitions,
    range_deletion.delete_range, table_import.import_, table_export.export, table_changes.changes,
    quarantine.quarantine,
):  # fmt: skip
    table.add_command(command)


@table.command()
@click.argument("name")
@click.option("--kind", type=click.Choice(KINDS), required=True, help="Partition by hash, or by ranges of keys.")
@click.option(
    "--partitions",
    type=click.IntRange(min=1),
    metavar="N",
    help=("Number of partitions of a hash table.  [default: 64]"),
)
@click.option(
    "--partitioner", type=click.Choice(PARTITIONERS), help=("Hash function of a hash table.  [default: murmur3]")
)
@click.option(
    "--replication",
    type=click.IntRange(min=1),
    metavar="R",
    help="Replicas of each partition.  [default: 3, or the number of members if lower]",
)
@click.option(
    "--bound",
    "bounds",
    type=key_bytes,
    multiple=True,
    metavar="KEY",
    help="First key of another partition of a range table; repeatable.",
)
@click.option(
    "--time-key", type=time_key, metavar="OFFSET:WIDTH:UNIT", help="Place of the time in the keys of a time series."
)
@HEX_KEYS
@click.option(
    "--smear/--no-smear",
    default=None,
    help=("Let any node accept puts and forward them later.  [default: only with a time key]"),
)
@click.option(
    "--ttl", type=duration_ms, metavar="DURATION", help="Default lifetime of records, such as 30d.  [default: endless]"
)
@click.option(
    "--retention",
    type=duration_ms,
    metavar="DURATION",
    help="Drop ranges whose times are older, such as 30d; needs a time key.  [default: never]",
)
@CREATION
@JSON
def create(
    name: str,
    kind: str,
    bounds: tuple[bytes, ...],
    nodes: AskedNodes,
    *,
    partitions: int | None,
    partitioner: str | None,
    replication: int | None,
    time_key: TimeKey | None,
    smear: bool | None,
    ttl: int | None,
    retention: int | None,
    as_json: bool,
) -> None:
    """Create the table NAME.

    The command waits for members that do not answer yet. If the time is over and most replicas have a node, the
    table is created, and the output names the members without a replica. A request without an answer is repeated
    under the same id, so no second table is created.
    """
    if kind == HASH and bounds:
        raise click.UsageError("--bound is for range tables")
    if kind == RANGE and partitioner is not None:
        raise click.UsageError("--partitioner is for hash tables")
    if kind == RANGE and partitions is not None:
        raise click.UsageError("--partitions is for hash tables; a range table has one partition more than bounds")
    if kind == HASH and time_key is not None:
        raise click.UsageError("--time-key is for range tables")
    if smear and time_key is None:
        raise click.UsageError("--smear is for tables with a --time-key")
    if retention is not None and time_key is None:
        raise click.UsageError("--retention is for tables with a --time-key")
    given: dict[str, Value] = {
        "partitioner": partitioner,
        "time_key": time_key and [*time_key],
        "smear": smear,
        "ttl_ms": ttl,
        "retention_ms": retention,
    }
    asked: dict[str, Value] = {
        "kind": kind,
        "partitions": partitions,
        **{name: value for name, value in given.items() if value is not None},
        "replication": replication,
        "bounds": [*sorted(bounds)],
        "operation": secrets.token_bytes(OPERATION_ID_BYTES),
        **allowed(nodes.timeout_ms, CREATION_MS),
    }
    with nodes.connect() as client:
        answer = decided(client, "create_table", name, asked)
    found = decode(TableMap, answer)
    tell(answer, f"{name}: made, {_identity(found)}{_replicas(found)}", as_json=as_json)


@table.command()
@click.argument("name")
@DECISION
@JSON
def drop(name: str, nodes: AskedNodes, *, as_json: bool) -> None:
    """Drop the table NAME with all its records.

    The exit status is 1 if the table does not exist. A request without an answer is repeated for the same table, so
    a new table of that name is never dropped.
    """
    with nodes.connect() as client:
        table = None
        with contextlib.suppress(UnknownDatabase, NotReady):  # The node may not have heard of the table yet.
            table = ask_map(client, "partition_map", name).get("table")
        asked: dict[str, Value] = {"table": table, **allowed(nodes.timeout_ms)}
        try:
            answer = decided(
                client,
                "drop_table",
                name,
                asked,
                done=lambda error: asked if isinstance(error, UnknownDatabase) else None,
            )
        except UnknownDatabase as error:
            error.message = f"there is no table {name}; nothing was dropped"
            raise
    tell(answer, f"{name}: dropped", as_json=as_json)


@table.command(name="list")
@NODES
@JSON
def list_(nodes: AskedNodes, *, as_json: bool) -> None:
    """List the tables that the node knows, with their kinds.

    The exit status is 0 even if there are none.
    """
    with nodes.connect() as client:
        answer = [database for database in client.databases() if database.get("kind") in KINDS]
    tables = sorted(answer, key=lambda database: plain(database.get("name")))
    made = columns("table", "kind")
    for summary in decode_list(DatabaseSummary, tables):
        add_row(made, summary.name, summary.kind)
    write_table([*tables], made, "no tables", as_json=as_json)


@table.command()
@click.argument("name")
@NODES
@JSON
def show(name: str, nodes: AskedNodes, *, as_json: bool) -> None:
    """Show the partitions of the table NAME and their nodes.

    The exit status is 1 if the table does not exist.
    """
    with nodes.connect() as client:
        answer = _whole(client, name)
    if as_json:
        print_json(answer)
        return
    found = decode(TableMap, answer)
    if not isinstance(answer.get("partitions"), list):  # The name is a dataset's.
        partitions = plain(answer.get("partitions"))
        click.echo(f"{name}: {found.kind}, {partitions} partitions; `gossipkv status {name}` shows their nodes")
        return
    traits = ""
    if found.time_key:
        traits = f", time key {':'.join(found.time_key)}, {'smeared' if found.smear else 'not smeared'}"
    if found.ttl_ms:
        traits += f", records expire after {duration_text(found.ttl_ms // 1000)}"
    if found.retention_ms:
        traits += f", ranges are dropped after {duration_text(found.retention_ms // 1000)}"
    click.echo(f"{name}: {found.kind}, {len(found.partitions)} partitions, {_identity(found)}{traits}\n")
    draw(_partitions_table(found))


def _whole(client: Client, name: str) -> dict[str, Value]:
    """Fetch a partition map in pages; start again if it changes meanwhile."""
    while True:
        found = ask_map(client, "partition_map", name)
        after, partitions = found.pop("next", None), found.get("partitions")
        page = found
        while isinstance(partitions, list) and after is not None and page.get("config") == found.get("config"):
            page = ask_map(client, "partition_map", name, {"start": after})
            more, after = page.get("partitions"), page.get("next")
            partitions += more if isinstance(more, list) else []
        if page.get("config") == found.get("config"):
            return found


def _partitions_table(found: TableMap) -> Table:
    first = "shard" if found.kind == HASH else "start"
    made = columns("partition", first, "node", "slot", "state", "assignment", kept=("state",), right=("slot",))
    for partition in found.partitions:
        cells = partition.place(found.kind)[:2]
        if not partition.assignments:
            add_row(made, *cells, *[""] * 4)
        for host in partition.assignments:
            add_row(made, *cells, host.node, str(host.slot), host.state, host.id)
            cells = "", ""  # Further rows leave these cells empty.
    return made


def _identity(table: TableMap) -> str:
    return f"table {table.table}, config {config_text(table.config)}"


def _replicas(table: TableMap) -> str:
    """Return the replicas of a new table in words; empty if the node does not report them."""
    if not table.replication:
        return ""
    of = "" if table.replicas == table.replication else f" of {table.replication} wanted"
    left_out = f"; without a replica: {names_text(table.left_out)}" if table.left_out else ""
    return f"; each of {table.partition_count:,} partitions has {table.replicas}{of} replicas{left_out}"


def config_text(config: int | None) -> str:
    """Return a config id for people: generation and sequence, both of which grow."""
    return "-" if config is None else f"{config >> SEQUENCE_BITS}.{config & ((1 << SEQUENCE_BITS) - 1)}"
