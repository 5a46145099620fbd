"""`put` and `delete`: one record of a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from gossipkv.cli.options import HEX_KEYS, NODE, TIMEOUT, connect, key_bytes
from gossipkv.cli.reads import input_bytes, key_or_input
from gossipkv.client.tables import LEVELS
from gossipkv.settings.tables import MAX_KEY_BYTES, MAX_VALUE_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable

    from click.decorators import FC

    from gossipkv.address import Address
    from gossipkv.client.tables import Level

STDIN: Final = b"-"


def level(default: Level | None, words: str) -> Callable[[FC], FC]:
    """Return the option `--level`."""
    return click.option("--level", type=click.Choice(LEVELS), default=default, show_default=bool(default), help=words)


LEVEL: Final = level("majority", "How many copies are to have it before this returns.")


@click.command()
@click.argument("table", metavar="TABLE")
@click.argument("key", metavar="KEY", type=key_bytes)
@click.argument("value", metavar="[VALUE]", type=key_bytes, default="-")
@level(None, "How many copies are to have it before this returns.  [default: majority, unless it is smeared]")
@click.option("--no-smear", is_flag=True, help="Of a time series: have it written at once, and not within two minutes.")
@HEX_KEYS
@NODE
@TIMEOUT
def put(
    table: str,
    key: bytes,
    value: bytes,
    *,
    level: Level | None,
    no_smear: bool,
    nodes: tuple[Address, ...],
    timeout_ms: int,
) -> None:
    """Let KEY in TABLE have VALUE.

    Without VALUE, or where it is `-`, the value is what standard input holds, every byte of it; KEY may be `-` instead.
    A key has at most 65,522 bytes, a value 16,711,616.  When no answer comes it may have been done; it is sent once.
    """
    if key == STDIN == value:
        raise click.UsageError("KEY and VALUE cannot both be what standard input holds")
    if value == STDIN:
        value = input_bytes(MAX_VALUE_BYTES, "a value of a table")
    key = key_or_input(key, MAX_KEY_BYTES)
    with connect(nodes, timeout_ms) as client:
        client.table(table).put(key, value, level=level, smear=not no_smear)


@click.command()
@click.argument("table", metavar="TABLE")
@click.argument("key", metavar="KEY", type=key_bytes)
@LEVEL
@HEX_KEYS
@NODE
@TIMEOUT
def delete(table: str, key: bytes, *, level: Level, nodes: tuple[Address, ...], timeout_ms: int) -> None:
    """Delete KEY from TABLE, whether it is there or not.

    KEY is `-`: the key is what standard input holds, without one line feed at its end.  When no answer comes it may
    have been done; it is sent once.
    """
    key = key_or_input(key, MAX_KEY_BYTES)
    with connect(nodes, timeout_ms) as client:
        client.table(table).delete(key, level=level)
