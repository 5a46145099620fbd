"""`put` and `delete`: one record of a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from gossipkv.cli.help import Command
from gossipkv.cli.options import HEX_KEYS, NODES, AskedNodes, duration_ms, key_bytes
from gossipkv.cli.reads import input_bytes, key_or_input
from gossipkv.client.tables import LEVELS
from gossipkv.settings.tables import MAX_KEY_BYTES, MAX_VALUE_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable

    from click.decorators import FC

    from gossipkv.client.tables import Level

STDIN: Final = b"-"


def level(default: Level | None, words: str) -> Callable[[FC], FC]:
    """Return the option `--level`."""
    return click.option("--level", type=click.Choice(LEVELS), default=default, show_default=bool(default), help=words)


LEVEL: Final = level("majority", "Replicas that must confirm before the command returns.")


@click.command(cls=Command)
@click.argument("table", metavar="TABLE")
@click.argument("key", metavar="KEY", type=key_bytes)
@click.argument("value", metavar="[VALUE]", type=key_bytes, default="-")
@level(None, "Replicas that must confirm before the command returns.  [default: majority, unless the put is smeared]")
@click.option("--no-smear", is_flag=True, help="For a time series: write at once instead of within two minutes.")
@click.option(
    "--ttl", type=duration_ms, metavar="DURATION", help="Lifetime of the record.  [default: as the table says]"
)
@HEX_KEYS
@NODES
def put(
    table: str, key: bytes, value: bytes, *, level: Level | None, no_smear: bool, ttl: int | None, nodes: AskedNodes
) -> None:
    """Write VALUE under KEY in TABLE.

    If VALUE is absent or `-`, the value is read from standard input, byte for byte; KEY may be `-` instead. Keys have
    at most 65,522 bytes, values 16,711,616. The request is sent once: without an answer, the write may or may not have
    been done.
    """
    if key == STDIN == value:
        raise click.UsageError("KEY and VALUE cannot both come from standard input")
    if value == STDIN:
        value = input_bytes(MAX_VALUE_BYTES, "a value of a table")
    key = key_or_input(key, MAX_KEY_BYTES)
    with nodes.connect() as client:
        client.table(table).put(key, value, level=level, smear=not no_smear, ttl_ms=ttl)


@click.command(cls=Command)
@click.argument("table", metavar="TABLE")
@click.argument("key", metavar="KEY", type=key_bytes)
@LEVEL
@HEX_KEYS
@NODES
def delete(table: str, key: bytes, *, level: Level, nodes: AskedNodes) -> None:
    """Delete KEY from TABLE; absent keys are no error.

    If KEY is `-`, the key is read from standard input, without one final line feed. The request is sent once: without
    an answer, the delete may or may not have been done.
    """
    key = key_or_input(key, MAX_KEY_BYTES)
    with nodes.connect() as client:
        client.table(table).delete(key, level=level)
