"""Options that several commands share, and the parsing of their values."""

from __future__ import annotations

import contextlib
import errno
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, final

import click

from gossipkv.address import parse_address
from gossipkv.cli.credentials import credential_options, credentials
from gossipkv.cli.help import NODES_KEY, ConnectionOption
from gossipkv.cli.output import CommandOutput
from gossipkv.cli.usage import node_address
from gossipkv.client import blocking, reads
from gossipkv.errors import GossipKVError, Unavailable, UnknownDatabase
from gossipkv.settings import quantity
from gossipkv.settings.nearest import near
from gossipkv.settings.node_variables import NODE_VARIABLE, asked_nodes
from gossipkv.settings.setting import NAME_FORM, read_name
from gossipkv.status.words import names_text, plain
from gossipkv.wire.key_text import typed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from click.decorators import FC

    from gossipkv.address import Address
    from gossipkv.wire.rpc import Value

# Keys in click's context: `--hex` was given, and the time of `--timeout`.
HEX_KEY: Final = "gossipkv.hex"
TIMEOUT: Final = "gossipkv.timeout"
DEFAULT_NODE: Final = "127.0.0.1:7070"
MAX_NAMED: Final = 5  # Errors about an unknown database list at most so many others.


def duration_ms(text: str) -> int:
    """Parse a duration such as `500ms` or `10s` into milliseconds; zero is refused."""
    try:
        milliseconds = quantity.parse(text, quantity.DURATION)
    except ValueError as error:
        raise click.BadParameter(f"{text!r}: {error}") from None
    if milliseconds == 0:
        raise click.BadParameter(f"{text!r}: expected a duration above zero")
    return milliseconds


def size_bytes(text: str) -> int:
    """Parse a size such as `64MiB` into bytes."""
    try:
        return quantity.parse(text, quantity.SIZE)
    except ValueError as error:
        raise click.BadParameter(f"{text!r}: {error}") from None


def name_of(text: str) -> str:
    """Parse the name of a user or of a node."""
    try:
        return read_name(text)
    except ValueError:
        raise click.BadParameter(f"{text!r}: a name consists of {NAME_FORM}") from None


def key_bytes(text: str) -> bytes:
    """Return an argument as the bytes that the shell passed, in any locale; with `--hex` parse digits after `0x`."""
    if text.startswith("0x") and click.get_current_context().meta.get(HEX_KEY):
        try:
            return typed(text)
        except ValueError:
            raise click.BadParameter(f"{text!r}: expected pairs of hexadecimal digits after 0x") from None
    return os.fsencode(text)


def _hex(does: str) -> Callable[[FC], FC]:
    """Return the option `--hex`, which click reads before the keys."""
    return click.option(
        "--hex",
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=lambda context, _, value: context.meta.update({HEX_KEY: value}),
        help=f"{does}Read keys that begin with 0x as hexadecimal digits.",
    )


@final
@dataclass(frozen=True, slots=True)
class AskedNodes:
    """The nodes of `--node`, which may be none, and the time of `--timeout`."""

    addresses: Sequence[Address]
    timeout_ms: int

    @contextlib.contextmanager
    def connect(self) -> Iterator[blocking.Client]:
        """Yield a client for the given nodes, or else those of the environment, or else the one of this machine.

        No other node is asked: an answer must be of a node that the user named. An error about an unknown database
        names those that the node knows.
        """
        asked = nodes_or_usual(self.addresses)
        client = blocking.Client(asked, timeout_ms=self.timeout_ms, credentials=credentials(), follows=False)
        try:
            client.dial()
        except Unavailable as error:
            if error.message.endswith(f" {DEFAULT_NODE}: {os.strerror(errno.ECONNREFUSED)}"):
                error.message += f"; start a node with `gossipkv serve`, or name one with --node or {NODE_VARIABLE}"
            raise
        with client:
            try:
                yield client
            except UnknownDatabase as error:
                explain_unknown(client, error)
                raise


def ask_within(default: str, what: str) -> Callable[[FC], FC]:
    """Return the options for the nodes to ask, their authentication and the time allowed for `what`.

    The command gets them as its parameter `nodes`.
    """
    timeout = click.option(
        "--timeout",
        "timeout_ms",
        cls=ConnectionOption,
        type=duration_ms,
        default=default,
        show_default=True,
        metavar="DURATION",
        help=f"Time allowed for {what}.",
        is_eager=True,
        expose_value=False,
        callback=lambda context, _, value: context.meta.update({TIMEOUT: value}),
    )
    return lambda command: _node(credential_options(timeout(command)))


_node: Final = click.option(
    "--node",
    "nodes",
    cls=ConnectionOption,
    type=node_address,
    multiple=True,
    metavar="HOST:PORT",
    help=(
        "Node to ask; repeatable, and the first that answers is used.  [default: --node before the command, "
        f"then ${NODE_VARIABLE}, then {DEFAULT_NODE}]"
    ),
    callback=lambda context, _, addresses: AskedNodes(addresses, context.meta[TIMEOUT]),
)
NODES: Final = ask_within("1s", "one request")
VERSION: Final = click.option("--version", metavar="VERSION", help="Read exactly this version.")
HEX: Final = _hex("Write keys and values as hexadecimal digits. ")
HEX_KEYS: Final = _hex("")
JSON: Final = click.option("--json", "as_json", is_flag=True, help="Write JSON, for programs.")
OUT: Final = click.option(
    "--out",
    "output",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write to FILE, which is made at the first output.",
    callback=lambda context, _, file: CommandOutput(file, hexadecimal=context.meta[HEX_KEY]),
)


def nodes_or_usual(nodes: Sequence[Address]) -> Sequence[Address]:
    """Return the given nodes, or else those before the command's name, those of the environment, or the usual one."""
    if nodes or (nodes := click.get_current_context().meta.get(NODES_KEY, ())):
        return nodes
    try:
        return asked_nodes(os.environ) or [parse_address(DEFAULT_NODE)]
    except ValueError as error:
        raise click.UsageError(str(error)) from None


def kinds_of(client: blocking.Client) -> dict[str, str]:
    """Return the kind of each database that the asked node knows."""
    return {plain(database.get("name")): plain(database.get("kind")) for database in client.databases()}


def explain_unknown(client: blocking.Client, error: UnknownDatabase) -> None:
    """Add to an error about an unknown database which ones the node knows."""
    name = error.details.get("database")
    with contextlib.suppress(GossipKVError):
        if not isinstance(name, str):
            return
        kinds = kinds_of(client)
        if name in kinds:  # The command was for the other kind.
            words = "dataset, not a table" if kinds[name] == "dataset" else "table, not a dataset"
            error.message = f"{name} is a {words}"
        elif not kinds:
            error.message += "; the node has no database yet"
        else:
            listed = f"; the node has {names_text([*kinds])}" if len(kinds) <= MAX_NAMED else ""
            error.message += near(name, kinds) or listed


def usual_nodes() -> list[str]:
    """Return the default nodes, as text."""
    return [str(node) for node in nodes_or_usual(())]


def ask_map(client: blocking.Client, method: str, *params: Value) -> dict[str, Value]:
    """Return the answer of a method whose answers are maps.  Raises ProtocolError for another answer."""
    return reads.map_of(method, client.call(method, *params))


def ask_maps(client: blocking.Client, method: str, *params: Value) -> list[dict[str, Value]]:
    """Return the answer of a method whose answers are lists of maps.  Raises ProtocolError for another answer."""
    return reads.maps_of(method, client.call(method, *params))
