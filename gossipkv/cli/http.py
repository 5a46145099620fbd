"""`http`: the gateway alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
import trio

from gossipkv.cli.credentials import credentials
from gossipkv.cli.help import Command
from gossipkv.cli.options import NODES, AskedNodes, duration_ms, nodes_or_usual
from gossipkv.cli.output import allow_descriptors, say_ready
from gossipkv.cli.usage import node_address
from gossipkv.http import alone
from gossipkv.http.order import GatewayLimits, Types
from gossipkv.processes import logs
from gossipkv.settings.databases import is_name
from gossipkv.settings.http import MEDIA_TYPE_FORM, USUAL_MEDIA_TYPE, expected_hosts, read_hosts, read_media_type

if TYPE_CHECKING:
    from gossipkv.address import Address


def _content_type(text: str) -> tuple[str | None, str]:
    database, equals, kind = text.partition("=")
    try:
        if equals and is_name(database):
            return database, read_media_type(kind)
        return None, read_media_type(text)
    except ValueError:
        raise click.BadParameter(f"{text!r}: expected {MEDIA_TYPE_FORM}, before it DB= for one database") from None


def _hosts(text: str) -> tuple[str, ...]:
    try:
        return read_hosts(text)
    except ValueError as error:
        raise click.BadParameter(f"{text!r}: {error}") from None


@click.command(cls=Command)
@NODES
@click.option(
    "--listen",
    type=node_address,
    default="127.0.0.1:8080",
    show_default=True,
    metavar="HOST:PORT",
    help="Address to answer HTTP on; port 0 means any free port.",
)
@click.option("--share-port", is_flag=True, help="Share the address with other gateways of this user.")
@click.option(
    "--content-type",
    "types",
    type=_content_type,
    multiple=True,
    metavar="[DB=]TYPE",
    help=f"Media type of the values of DB, or of all databases.  [default: {USUAL_MEDIA_TYPE}]",
)
@click.option(
    "--http-hosts",
    "hosts",
    type=_hosts,
    default="none",
    show_default=True,
    metavar="HOSTS",
    help="Further names in the Host of requests, as the setting `http_hosts` of nodes.",
)
@click.option(
    "--max-connections",
    type=click.IntRange(1, 1_000_000),
    default=GatewayLimits().max_connections,
    show_default=True,
    metavar="N",
    help="Maximum number of open connections.",
)
@click.option(
    "--drain-timeout",
    "drain_timeout_ms",
    type=duration_ms,
    default="10s",
    show_default=True,
    metavar="DURATION",
    help="Time for requests in flight when the gateway ends.",
)
@click.option("--allow-writes", is_flag=True, help="Let all clients write with the gateway's own rights.")
@click.option("--log-format", type=click.Choice(["text", "json"]), default="text", show_default=True)
def http(
    *,
    nodes: AskedNodes,
    listen: Address,
    types: tuple[tuple[str | None, str], ...],
    hosts: tuple[str, ...],
    max_connections: int,
    drain_timeout_ms: int,
    log_format: str,
    share_port: bool,
    allow_writes: bool,
) -> None:
    """Run an HTTP gateway in front of a cluster.

    The gateway asks the first of its nodes that answers. It writes one line to standard output, `ready HOST:PORT`,
    when it listens, even if no node answers yet. On SIGTERM it answers the requests in flight and ends. On SIGHUP
    it forgets the versions that it answered from; send SIGHUP after a rollback.
    """
    logs.configure("info", log_format)
    allow_descriptors()
    kinds = dict(types)
    usual = kinds.pop(None, USUAL_MEDIA_TYPE)
    settings = alone.Alone(
        tuple(nodes_or_usual(nodes.addresses)),
        Types(usual, {database: kind for database, kind in kinds.items() if database is not None}),
        nodes.timeout_ms,
        drain_timeout_ms,
        expected_hosts([listen], hosts),
        GatewayLimits(max_connections=max_connections),
        credentials(),
        allow_writes,
    )
    with alone.listen(listen, share_port=share_port) as listener:
        trio.run(alone.run, settings, listener, say_ready)
