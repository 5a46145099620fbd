"""`table delete-range`: deletes all keys of a range, page by page."""

from __future__ import annotations

from time import monotonic, sleep
from typing import TYPE_CHECKING, Final

import click
from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn

from gossipkv.cli.help import Command
from gossipkv.cli.options import HEX_KEYS, JSON, AskedNodes, ask_within, key_bytes
from gossipkv.cli.output import note, tell
from gossipkv.cli.screen import description, progress
from gossipkv.cli.writes import LEVEL
from gossipkv.client import tables
from gossipkv.client.range_deletion import DeletionPages
from gossipkv.client.reads import span_options
from gossipkv.errors import GossipKVError, NotReady, Overloaded, TimedOut, Unavailable, Unknown

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gossipkv.client.blocking import Client
    from gossipkv.client.tables import Level
    from gossipkv.wire.rpc import Value

PATIENCE_S: Final = 30.0  # Time without progress; a dead node is detected sooner.
PAUSE_S: Final = 0.5
FOR_NOW: Final = (NotReady, Overloaded, TimedOut, Unavailable, Unknown)
PAGE: Final = ask_within("10s", "some thousand records")


@click.command(cls=Command, name="delete-range")
@click.argument("name")
@click.argument("start", metavar="[START]", type=key_bytes, required=False)
@click.argument("end", metavar="[END]", type=key_bytes, required=False)
@click.option("--prefix", type=key_bytes, metavar="PREFIX", help="Only keys with this prefix.")
@HEX_KEYS
@LEVEL
@PAGE
@JSON
def delete_range(
    name: str,
    start: bytes | None,
    end: bytes | None,
    nodes: AskedNodes,
    *,
    prefix: bytes | None,
    level: Level,
    as_json: bool,
) -> None:
    """Delete the keys of the table NAME from START (inclusive) to END (exclusive).

    START may be empty. Without END, delete to the last key. Records that are put meanwhile may or may not be
    deleted. The reported number is exact, unless it says `at least` because a node gave no answer. If the command
    ends early, repeat it.
    """
    bounds = span_options(start, end, prefix, reverse=False)
    deletion = DeletionPages(name, bounds, tables.write_options(b"", level, 0, nodes.timeout_ms))
    with nodes.connect() as client:
        try:
            with progress(SpinnerColumn(), description(), TextColumn("{task.completed:,}"), TimeElapsedColumn()) as bar:
                task = bar.add_task(f"{name}: records deleted", total=None)
                for deleted in _pages(client, deletion):
                    bar.update(task, completed=deleted)
        except (GossipKVError, KeyboardInterrupt):
            if deletion.deleted:
                note(f"gossipkv: {_counted(deletion)} deleted; the same command deletes the rest")
            raise
    answer: dict[str, Value] = {"table": name, "deleted": deletion.deleted, "exact": deletion.is_exact}
    tell(answer, f"{name}: {_counted(deletion)} deleted", as_json=as_json)


def _pages(client: Client, deletion: DeletionPages) -> Iterator[int]:
    """Delete; yield the number of deleted records after each page.  Raises GossipKVError if a failure persists."""
    failing_since = None
    while (call := deletion.next_call()) is not None:
        try:
            deletion.take(client.call(*call))
        except FOR_NOW as error:
            if isinstance(error, Unknown):
                deletion.take_unknown(error)
            failing_since = monotonic() if failing_since is None else failing_since
            if monotonic() - failing_since > PATIENCE_S:
                raise
            sleep(PAUSE_S)
        else:
            failing_since = None
            yield deletion.deleted


def _counted(deletion: DeletionPages) -> str:
    count = deletion.deleted
    return f"{'' if deletion.is_exact else 'at least '}{count:,} {'record' if count == 1 else 'records'}"
