"""`ping`, `refresh` and `backup`: short requests to a node."""

from __future__ import annotations

from pathlib import Path
from time import perf_counter_ns
from typing import TYPE_CHECKING

import click

from gossipkv.cli.options import JSON, NODE, TIMEOUT, ask_map, connect, timeout
from gossipkv.cli.output import note, print_json, tell
from gossipkv.status.words import plain, size_text

if TYPE_CHECKING:
    from gossipkv.address import Address
    from gossipkv.wire.rpc import Value


@click.command()
@NODE
@TIMEOUT
@JSON
def ping(nodes: tuple[Address, ...], timeout_ms: int, *, as_json: bool) -> None:
    """Ask whether a node answers, and how fast."""
    with connect(nodes, timeout_ms) as client:
        begin_ns = perf_counter_ns()
        client.ping()
        taken_ms = (perf_counter_ns() - begin_ns) / 1e6
        address = str(client.address)
    answer: dict[str, Value] = {"node": address, "answer": "pong", "round_trip_ms": round(taken_ms, 3)}
    tell(answer, f"{address}: pong in {taken_ms:.2f} ms", as_json=as_json)


@click.command()
@click.argument("database", metavar="[DB]", required=False)
@NODE
@TIMEOUT
@JSON
def refresh(database: str | None, nodes: tuple[Address, ...], timeout_ms: int, *, as_json: bool) -> None:
    """Make the node look at its source now, for DB or for all databases, and write the versions it sees."""
    with connect(nodes, timeout_ms) as client:
        seen = ask_map(client, "refresh", database)
    if as_json:
        print_json(seen)
    for name, versions in [] if as_json else sorted(seen.items()):
        listed = " ".join(map(str, versions)) if isinstance(versions, list) else str(versions)
        click.echo(f"{name}\t{listed}")


@click.command()
@click.argument("directory", metavar="DIR", type=click.Path(path_type=Path))
@NODE
@timeout("1h", "all of it")
@JSON
def backup(directory: Path, nodes: tuple[Address, ...], timeout_ms: int, *, as_json: bool) -> None:
    """Copy the tables of a running node to DIR, which is made, on the node's own machine.

    Runs are linked where the file system of DIR is that of the node, so they take no room, and are no copy on another
    disk; the log is copied.  What was acknowledged before is in the backup.
    """
    with connect(nodes, timeout_ms) as client:
        answer = ask_map(client, "backup", str(directory.resolve()))
    if as_json:
        print_json(answer)
        return
    sizes = (answer.get(name) for name in ("copied_bytes", "linked_bytes"))
    copied, linked = (size if isinstance(size, int) else 0 for size in sizes)
    click.echo(f"{plain(answer.get('directory'))}: {size_text(copied)} copied, {size_text(linked)} linked")
    if linked:
        note("gossipkv: what is linked lies on the node's own disk: copy the backup to another one")
