"""`table changes`: writes the changes of a table as JSON lines, until it is interrupted."""

from __future__ import annotations

import sys
from base64 import b64decode, b64encode
from itertools import islice

import click

from gossipkv.cli.help import Command
from gossipkv.cli.options import HEX_KEYS, NODES, AskedNodes, key_bytes
from gossipkv.cli.output import json_line, note
from gossipkv.cli.signals import ended_like_ctrl_c


def _token(text: str) -> bytes:
    """Parse a token."""
    try:
        return b64decode(text, validate=True)
    except ValueError:
        raise click.BadParameter("a token is Base64, as this command writes it when it ends") from None


@click.command(cls=Command)
@click.argument("name", metavar="TABLE")
@click.option("--prefix", type=key_bytes, metavar="PREFIX", help="Only keys with this prefix.")
@click.option("--start", type=click.Choice(["snapshot"]), help="Begin with all present records.  [default: begin now]")
@click.option("--token", type=_token, metavar="TOKEN", help="Go on after an earlier run.")
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="End after so many changes.")
@HEX_KEYS
@NODES
def changes(
    name: str, nodes: AskedNodes, *, prefix: bytes | None, start: str | None, token: bytes | None, limit: int | None
) -> None:
    """Write each change of TABLE as a line {"key", "value", "expires_at"}; a deleted record has the value null.

    Each acknowledged change comes at least once, and those of a key in their order. If changes have come, the command
    writes the token for another run to standard error at its end, also by SIGTERM.
    """
    if start is not None and token is not None:
        raise click.UsageError("--start is for a run without --token")
    reached = token or b""
    with ended_like_ctrl_c(), nodes.connect() as client:
        feed = client.table(name).changes(token=token, prefix=prefix, start="snapshot" if start else None)
        try:
            for change in islice(feed, limit):
                line = {"key": change.key, "value": change.value, "expires_at": change.expires_ms}
                sys.stdout.buffer.write(json_line({**line}))
                sys.stdout.buffer.flush()
                reached = change.token
        finally:
            if reached:
                note(f"to go on: --token {b64encode(reached).decode()}")
