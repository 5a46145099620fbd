"""`table`: makes, drops, lists and shows tables; its other commands are in `placement` and `ranges`."""

from __future__ import annotations

import contextlib
import secrets
from typing import TYPE_CHECKING, Final

import click

from gossipkv.cli import CommandGroup, placement, quarantine, ranges
from gossipkv.cli.decisions import DECISION, allowed, decided
from gossipkv.cli.options import HEX_KEYS, JSON, NODE, TIMEOUT, connect, key_bytes
from gossipkv.cli.output import note, print_json
from gossipkv.cli.screen import add_row, columns, draw
from gossipkv.errors import NotReady, ProtocolError, UnknownDatabase
from gossipkv.keyspace.time_key import parse_time_key
from gossipkv.register.metadata.pages import OPERATION_ID_BYTES
from gossipkv.register.metadata.partitions import HASH, PARTITIONERS, RANGE
from gossipkv.status.reading import list_of, map_of, whole_of
from gossipkv.status.tables import partition_row
from gossipkv.status.words import plain
from gossipkv.table.rpc.requests import KINDS

if TYPE_CHECKING:
    from rich.table import Table

    from gossipkv.address import Address
    from gossipkv.client.blocking import Client
    from gossipkv.keyspace.time_key import TimeKey
    from gossipkv.wire.rpc import Value

SEQUENCE_BITS: Final = 48


def time_key(text: str) -> TimeKey:
    """Parse `OFFSET:WIDTH:UNIT`."""
    try:
        return parse_time_key(text)
    except ProtocolError as error:
        raise click.BadParameter(error.message) from None


@click.group(cls=CommandGroup, no_args_is_help=False, context_settings={"help_option_names": ["-h", "--help"]})
def table() -> None:
    """Make, drop, list and show tables, and change how they are laid on nodes."""


table.add_command(placement.plan)
table.add_command(placement.reshard)
table.add_command(ranges.split)
table.add_command(ranges.join)
table.add_command(ranges.leave)
table.add_command(ranges.force_join)
table.add_command(ranges.partitions)
table.add_command(ranges.delete_range)
table.add_command(quarantine.quarantine)


@table.command()
@click.argument("name")
@click.option("--kind", type=click.Choice(KINDS), required=True, help="Partitions by hash, or by ranges of keys.")
@click.option("--partitions", type=click.IntRange(min=1), metavar="N", help="Of a hash table.  [default: 64]")
@click.option("--partitioner", type=click.Choice(PARTITIONERS), help="Hash of a hash table.  [default: murmur3]")
@click.option(
    "--replication",
    type=click.IntRange(min=1),
    metavar="R",
    help="Replicas of each partition.  [default: 3, or as many as there are nodes]",
)
@click.option(
    "--bound",
    "bounds",
    type=key_bytes,
    multiple=True,
    metavar="KEY",
    help="Of a range table: first key of a further partition; may be given more than once.",
)
@click.option(
    "--time-key", type=time_key, metavar="OFFSET:WIDTH:UNIT", help="Of a time series: where its keys have their time."
)
@HEX_KEYS
@click.option("--smear/--no-smear", default=None, help="Whether puts may be kept a while.  [default: with a time key]")
@NODE
@DECISION
@JSON
def create(
    name: str,
    kind: str,
    bounds: tuple[bytes, ...],
    nodes: tuple[Address, ...],
    timeout_ms: int,
    *,
    partitions: int | None,
    partitioner: str | None,
    replication: int | None,
    time_key: TimeKey | None,
    smear: bool | None,
    as_json: bool,
) -> None:
    """Make the table NAME.

    When no answer comes the node is asked once more under the same id, so it is not made twice.
    """
    if kind == HASH and bounds:
        raise click.UsageError("--bound is for range tables")
    if kind == RANGE and partitioner is not None:
        raise click.UsageError("--partitioner is for hash tables")
    if kind == RANGE and partitions is not None:
        raise click.UsageError("--partitions is for hash tables; a range table has one more than it has bounds")
    if kind == HASH and time_key is not None:
        raise click.UsageError("--time-key is for range tables")
    if smear and time_key is None:
        raise click.UsageError("--smear is for tables with a --time-key")
    given: dict[str, Value] = {"partitioner": partitioner, "time_key": time_key and [*time_key], "smear": smear}
    asked: dict[str, Value] = {
        "kind": kind,
        "partitions": partitions,
        **{name: value for name, value in given.items() if value is not None},
        "replication": replication,
        "bounds": [*sorted(bounds)],
        "operation": secrets.token_bytes(OPERATION_ID_BYTES),
        **allowed(timeout_ms),
    }
    with connect(nodes, timeout_ms) as client:
        told = decided(client, "create_table", name, asked)
    if as_json:
        print_json(told)
    else:
        click.echo(f"{name}: made, table {plain(told.get('table'))}, config {config_text(told.get('config'))}")


@table.command()
@click.argument("name")
@NODE
@DECISION
@JSON
def drop(name: str, nodes: tuple[Address, ...], timeout_ms: int, *, as_json: bool) -> None:
    """Drop the table NAME, with all that is in it.  Exit status 1: there is no such table.

    When no answer comes the node is asked once more for that very table, so it drops no other that is made meanwhile.
    """
    with connect(nodes, timeout_ms) as client:
        table = None
        with contextlib.suppress(UnknownDatabase, NotReady):  # The node may not have heard of the table yet.
            table = map_of(client.call("partition_map", name)).get("table")
        asked: dict[str, Value] = {"table": table, **allowed(timeout_ms)}
        told = decided(
            client, "drop_table", name, asked, done=lambda error: asked if isinstance(error, UnknownDatabase) else None
        )
    if as_json:
        print_json(told)
    else:
        click.echo(f"{name}: dropped")


@table.command(name="list")
@NODE
@TIMEOUT
@JSON
def list_(nodes: tuple[Address, ...], timeout_ms: int, *, as_json: bool) -> None:
    """List the tables that the node knows, with their kinds.  Exit status 0 also where there is none."""
    with connect(nodes, timeout_ms) as client:
        told = [map_of(each) for each in list_of(client.call("databases"))]
    tables = sorted((each for each in told if each.get("kind") in KINDS), key=lambda each: plain(each.get("name")))
    if as_json:
        print_json([*tables])
    elif tables:
        made = columns("table", "kind")
        for each in tables:
            add_row(made, plain(each.get("name")), plain(each.get("kind")))
        draw(made)
    else:
        note("no tables")


@table.command()
@click.argument("name")
@NODE
@TIMEOUT
@JSON
def show(name: str, nodes: tuple[Address, ...], timeout_ms: int, *, as_json: bool) -> None:
    """Write where the partitions of the table NAME are, as the node knows it.  Exit status 1: there is none."""
    with connect(nodes, timeout_ms) as client:
        found = _whole(client, name)
    if as_json:
        print_json(found)
        return
    kind, partitions = plain(found.get("kind")), found.get("partitions")
    if not isinstance(partitions, list):  # The name is a dataset's.
        click.echo(f"{name}: {kind}, {plain(partitions)} partitions; `gossipkv status {name}` shows who has them")
        return
    identity = f"table {plain(found.get('table'))}, config {config_text(found.get('config'))}"
    click.echo(f"{name}: {kind}, {len(partitions)} partitions, {identity}{_timed(found)}\n")
    draw(_partitions_table(kind, partitions))


def _whole(client: Client, name: str) -> dict[str, Value]:
    """Fetch a partition map in pages; start again if it changes meanwhile."""
    while True:
        told = map_of(client.call("partition_map", name))
        after, partitions = told.pop("next", None), told.get("partitions")
        more = told
        while isinstance(partitions, list) and after is not None and more.get("config") == told.get("config"):
            more = map_of(client.call("partition_map", name, {"start": after}))
            partitions += list_of(more.get("partitions"))
            after = more.get("next")
        if more.get("config") == told.get("config"):
            return told


def _partitions_table(kind: str, partitions: list[Value]) -> Table:
    first = "shard" if kind == HASH else "start"
    made = columns("partition", first, "node", "slot", "state", "assignment", kept=("state",), right=("slot",))
    for partition in map(map_of, partitions):
        cells = partition_row(kind, partition)[:2]
        for assignment in [map_of(each) for each in list_of(partition.get("assignments"))] or [{}]:
            add_row(made, *cells, *(plain(assignment.get(key, "")) for key in ("node", "slot", "state", "id")))
            cells = "", ""  # Further rows leave these cells empty.
    return made


def _timed(found: dict[str, Value]) -> str:
    """Return the words about the time key of a table; empty if it has none."""
    if not isinstance(found.get("time_key"), list):
        return ""
    told = ":".join(map(plain, list_of(found.get("time_key"))))
    return f", time key {told}, {'smeared' if found.get('smear') else 'not smeared'}"


def config_text(config: Value) -> str:
    """Return a config id for people: generation and sequence, both of which grow."""
    number = whole_of(config)
    return "-" if number is None else f"{number >> SEQUENCE_BITS}.{number & ((1 << SEQUENCE_BITS) - 1)}"
