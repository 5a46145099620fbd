"""`ping` and `refresh`: short requests to a node."""

from __future__ import annotations

from time import perf_counter_ns
from typing import TYPE_CHECKING

import click

from gossipkv.cli.options import JSON, NODE, TIMEOUT, ask_map, connect
from gossipkv.cli.output import print_json, tell

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
