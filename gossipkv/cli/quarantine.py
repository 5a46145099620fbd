"""`table quarantine`: quarantined replicas, whose slots were given to other nodes while their nodes were down.

Nothing reads, merges or drops them by itself.  People drop them, once they know that no record in them is needed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from gossipkv.cli import FAILED, CommandGroup
from gossipkv.cli.decisions import decided, unconfirmed
from gossipkv.cli.options import JSON, AskedNodes, ask_maps, ask_within
from gossipkv.cli.output import note, print_json
from gossipkv.cli.screen import add_row, columns, write_table
from gossipkv.errors import BadRequest
from gossipkv.status.words import plain, size_text

if TYPE_CHECKING:
    from rich.table import Table

    from gossipkv.errors import GossipKVError
    from gossipkv.wire.rpc import Value

PATIENCE: Final = ask_within("10s", "one request, with the wait for silent nodes")


@click.group(cls=CommandGroup, no_args_is_help=False, context_settings={"help_option_names": ["-h", "--help"]})
def quarantine() -> None:
    """List or drop quarantined replicas: kept copies that serve nothing."""


@quarantine.command(name="list")
@click.argument("name", metavar="[NODE]", required=False)
@PATIENCE
@JSON
def list_(name: str | None, nodes: AskedNodes, *, as_json: bool) -> int:
    """List the quarantined replicas of NODE, or of all live nodes.

    The exit status is 3 if a node did not answer.
    """
    with nodes.connect() as client:
        asked: list[Value] = [{"node": name}] if name is not None else []
        answer = ask_maps(client, "quarantine_list", *asked)
    silent, found = [copy for copy in answer if "error" in copy], [copy for copy in answer if "error" not in copy]
    write_table([*answer], _table(found), "no quarantined replicas", as_json=as_json)
    for copy in silent:
        note(f"gossipkv: {plain(copy.get('node'))}: its quarantined replicas are not known: {plain(copy.get('error'))}")
    return FAILED if silent else 0


def _table(found: list[dict[str, Value]]) -> Table:
    made = columns("node", "copy", "table", "partition", "size", "why", kept=("copy",), right=("size",))
    for copy in sorted(found, key=lambda copy: (plain(copy.get("node")), plain(copy.get("table")))):
        size = copy.get("bytes")
        place = (plain(copy.get(field)) for field in ("node", "copy", "table", "partition"))
        add_row(made, *place, size_text(size) if isinstance(size, int) else "-", plain(copy.get("why")))
    return made


@quarantine.command()
@click.argument("name", metavar="NODE")
@click.argument("copies", metavar="COPY...", nargs=-1, required=True)
@click.option("--yes", is_flag=True, help="Do it. Without this, the command only says what may be lost.")
@PATIENCE
@JSON
def drop(name: str, copies: tuple[str, ...], nodes: AskedNodes, *, yes: bool, as_json: bool) -> int:
    """Drop quarantined replicas of NODE.

    COPY is a name from `list`. Without --yes, the command only says what may be lost, with exit status 2.
    """
    if not yes:
        return unconfirmed(
            f"{_counted(copies)} at {name} would be deleted, with records that no other node has, even if "
            "they were acknowledged"
        )
    with nodes.connect() as client:
        for copy in copies:
            decided(client, "quarantine_drop", name, copy, done=_is_gone)
            if not as_json:
                click.echo(f"{name}: {copy}: dropped")
    if as_json:
        print_json([{"node": name, "copy": copy} for copy in copies])
    return 0


def _counted(copies: tuple[str, ...]) -> str:
    return "The replica" if len(copies) == 1 else f"{len(copies):,} replicas"


def _is_gone(error: GossipKVError) -> dict[str, Value] | None:
    """Accept a `BadRequest`: the first request dropped it, or there never was one of that name."""
    if not isinstance(error, BadRequest):
        return None
    note(f"gossipkv: {error}")
    return {}
