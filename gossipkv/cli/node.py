"""`ping` and `refresh`: short requests to a node."""

from __future__ import annotations

from time import perf_counter_ns
from typing import TYPE_CHECKING

import click

from gossipkv.address import Address
from gossipkv.cli.flags import load_settings
from gossipkv.cli.help import Command
from gossipkv.cli.options import JSON, NODES, AskedNodes, ask_map, ask_within
from gossipkv.cli.output import print_json, tell
from gossipkv.client import blocking
from gossipkv.client.credentials import Credentials

if TYPE_CHECKING:
    from gossipkv.wire.rpc import Value


@click.command(cls=Command)
@click.option("--own", is_flag=True, help="Ask the node that `serve` runs with this environment, also by TLS.")
@NODES
@JSON
def ping(nodes: AskedNodes, *, own: bool, as_json: bool) -> None:
    """Ask whether a node answers, and how fast."""
    with _own(nodes.timeout_ms) if own else nodes.connect() as client:
        begin_ns = perf_counter_ns()
        client.ping()
        taken_ms = (perf_counter_ns() - begin_ns) / 1e6
        address = str(client.address)
    answer: dict[str, Value] = {"node": address, "answer": "pong", "round_trip_ms": round(taken_ms, 3)}
    tell(answer, f"{address}: pong in {taken_ms:.2f} ms", as_json=as_json)


def _own(timeout_ms: int) -> blocking.Client:
    """Return a client of the node with these variables, whose certificate may not have the name of this machine."""
    import ssl  # noqa: PLC0415  # Other commands start faster without it.

    settings = load_settings(None, {})
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(settings.listen.host, settings.listen.host)  # noqa: S104  # Read, not bound.
    context = settings.tls_certificate is not None and ssl.create_default_context()
    if context and settings.tls_certificate is not None:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.load_cert_chain(settings.tls_certificate, settings.tls_key)
    asked = [Address(host, settings.listen.port)]
    return blocking.Client(asked, timeout_ms=timeout_ms, credentials=Credentials(context, None), follows=False).dial()


@click.command(cls=Command)
@click.argument("database", metavar="[DB]", required=False)
@ask_within("10s", "the node's look at its source")
@JSON
def refresh(database: str | None, nodes: AskedNodes, *, as_json: bool) -> None:
    """Make the node look at its source now, for DB or for all databases, and write the versions it sees."""
    with nodes.connect() as client:
        seen = ask_map(client, "refresh", database)
    if as_json:
        print_json(seen)
    for name, versions in [] if as_json else sorted(seen.items()):
        listed = " ".join(map(str, versions)) if isinstance(versions, list) else str(versions)
        click.echo(f"{name}\t{listed}")
