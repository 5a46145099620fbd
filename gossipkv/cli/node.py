"""`ping` and `refresh`: short words to a node."""

from __future__ import annotations

from time import perf_counter_ns
from typing import TYPE_CHECKING

import click

from gossipkv.cli.options import JSON, NODE, TIMEOUT, connect
from gossipkv.cli.output import print_json

if TYPE_CHECKING:
    from gossipkv.address import Address


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
    if as_json:
        print_json({"node": address, "answer": "pong", "round_trip_ms": round(taken_ms, 3)})
    else:
        click.echo(f"{address}: pong in {taken_ms:.2f} ms")


@click.command()
@click.argument("database", metavar="[DB]", required=False)
@NODE
@TIMEOUT
@JSON
def refresh(database: str | None, nodes: tuple[Address, ...], timeout_ms: int, *, as_json: bool) -> None:
    """Have the node look at its source now, for DB or for all databases, and write the versions it sees."""
    with connect(nodes, timeout_ms) as client:
        seen = client.refresh(database)
    if as_json:
        print_json(seen)
    elif isinstance(seen, dict):
        for name, versions in sorted(seen.items()):
            listed = " ".join(str(version) for version in versions) if isinstance(versions, list) else str(versions)
            click.echo(f"{name}\t{listed}")
    else:
        click.echo(" ".join(str(version) for version in seen) if isinstance(seen, list) else str(seen))
