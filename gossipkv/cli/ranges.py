"""Commands of `table` about ranges: their bounds and their hosts.

The requests are idempotent, so a command that gets no answer asks once more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from gossipkv.cli.decisions import DECISION, allowed, decided, unconfirmed
from gossipkv.cli.help import Command
from gossipkv.cli.options import HEX_KEYS, JSON, AskedNodes, ask_map, ask_within, key_bytes
from gossipkv.cli.output import note, print_json, tell
from gossipkv.cli.reads import key_or_input
from gossipkv.cli.screen import add_row, columns, draw
from gossipkv.errors import Conflict
from gossipkv.register.metadata.partitions import HASH, MAX_SHARDS, shard_key
from gossipkv.status.codec import decode
from gossipkv.status.reports import TableMap
from gossipkv.status.words import names_text, plain
from gossipkv.wire.key_text import shown

if TYPE_CHECKING:
    from collections.abc import Callable

    from click.decorators import FC
    from rich.table import Table

    from gossipkv.errors import GossipKVError
    from gossipkv.wire.rpc import Value

NO_COPY: Final = "none"
SIZES: Final = ask_within("10s", "one request, with the wait for hosts that report no size")


def _of_range(*more: str) -> Callable[[FC], FC]:
    """Add the parameters of a decision on a range of the table NAME, which is named by a key in it."""

    def decorate(command: FC) -> FC:
        key = click.argument("key", metavar="KEY", type=key_bytes, callback=lambda _, __, value: key_or_input(value))
        for parameter in (
            HEX_KEYS,
            JSON,
            DECISION,
            *map(click.argument, reversed(more)),
            key,
            click.argument("name"),
        ):
            command = parameter(command)
        return command

    return decorate


@click.command(cls=Command)
@_of_range()
def split(name: str, key: bytes, nodes: AskedNodes, *, as_json: bool) -> None:
    """Split the range of the table NAME that contains KEY.

    The second half begins at KEY; no data is copied. A KEY of `-` is read from standard input.
    """
    answer = _decided("split", nodes, name, key)
    ids = names_text([partition.id for partition in decode(TableMap, answer).partitions])
    tell(answer, f"{name}: split at {shown(key)} into {ids}", as_json=as_json)


@click.command(cls=Command)
@_of_range("node")
def join(name: str, key: bytes, node: str, nodes: AskedNodes, *, as_json: bool) -> None:
    """Move a replica of the range of the table NAME that contains KEY to NODE.

    `status` shows the progress. A KEY of `-` is read from standard input.
    """
    _tell_move(_decided("join", nodes, name, key, node), name, key, as_json=as_json)


@click.command(cls=Command)
@_of_range("node")
def leave(name: str, key: bytes, node: str, nodes: AskedNodes, *, as_json: bool) -> None:
    """Move the replica of the range of the table NAME that contains KEY away from NODE.

    The planner picks the new node. If the replica is still moving to NODE, that move is cancelled. A KEY of `-` is
    read from standard input.
    """
    _tell_move(_decided("leave", nodes, name, key, node), name, key, as_json=as_json)


def _decided(method: str, nodes: AskedNodes, *params: Value) -> dict[str, Value]:
    """Return the decision on a range; after a repeated request a `Conflict` may say that it was made."""

    def done(error: GossipKVError) -> dict[str, Value] | None:
        return {**error.details} if isinstance(error, Conflict) and "partition" in error.details else None

    with nodes.connect() as client:
        return decided(client, method, *params, allowed(nodes.timeout_ms), done=done)


def _tell_move(answer: dict[str, Value], name: str, key: bytes, *, as_json: bool) -> None:
    if as_json:
        print_json(answer)
        return
    ends = " ".join(f"{way} {plain(answer[way])}" for way in ("from", "to") if answer.get(way) is not None)
    slot, is_new = answer.get("slot"), answer.get("changed") is not False
    moved = "the range" if slot is None else f"slot {plain(slot)} of the range"
    does = f"moves {ends}" if is_new or answer.get("from") is not None else f"is on {plain(answer.get('to'))}"
    click.echo(f"{name}: {moved} with {shown(key)} {does}")
    if not is_new:
        note("nothing to do: no change was needed")


@click.command(cls=Command, name="force-join")
@_of_range("node")
@click.option(
    "--copy",
    metavar="COPY",
    help="Quarantined replica on NODE to continue from; `none`: begin empty.  [default: the only one]",
)
@click.option("--shard", is_flag=True, help="KEY is the number of a hash table's shard.")
@click.option("--yes", is_flag=True, help="Do it. Without this, the command only says what may be lost.")
def force_join(
    name: str, key: bytes, node: str, nodes: AskedNodes, *, copy: str | None, shard: bool, yes: bool, as_json: bool
) -> int:
    """Re-create the range or shard of the table NAME that contains KEY on NODE, after all its hosts are lost.

    COPY is a name from `table quarantine list NODE`. Without --yes, the command only says what may be lost, with
    exit status 2.
    """
    if shard and not (key.isdigit() and int(key) < MAX_SHARDS):
        raise click.UsageError(f"--shard: {shown(key)} is not the number of a shard, which `table partitions` shows")
    what = f"Shard {key.decode()} of {name}" if shard else f"The partition of {name} with {shown(key)}"
    if not yes:
        usual = "from its quarantined replica there, or empty if there is none"
        begins = {None: usual, NO_COPY: "empty"}.get(copy, f"from the replica {copy}")
        return unconfirmed(
            f"{what} would be re-created on {node}, {begins}. All its "
            "other records would be lost, even if they were acknowledged, and even if its hosts come "
            "back. If its hosts are only down, start one of them instead"
        )
    options: dict[str, Value] = {
        **({} if copy is None else {"copy": "" if copy == NO_COPY else copy}),
        **({"shard": True} if shard else {}),
        **allowed(nodes.timeout_ms),
    }
    with nodes.connect() as client:
        answer = decided(client, "force_join", name, shard_key(int(key)) if shard else key, node, options)
    if as_json:
        print_json(answer)
    else:
        begun, where, lost = (plain(answer.get(field)) for field in ("partition", "node", "may_be_lost"))
        click.echo(f"{name}: partition {begun} on {where}: {lost}")
        if answer.get("changed") is False:
            note("nothing to do: no change was needed")
    return 0


@click.command(cls=Command)
@click.argument("name")
@SIZES
@JSON
def partitions(name: str, nodes: AskedNodes, *, as_json: bool) -> None:
    """List the partitions of the table NAME with hosts, size and load.

    Sizes, rows and rates are estimates by live hosts, or `-` if none reports. Rates are requests per second.
    """
    options: dict[str, Value] = {}
    found: list[Value] = []
    with nodes.connect() as client:
        while True:
            page = ask_map(client, "partitions", name, options)
            found += part if isinstance(part := page.get("partitions"), list) else []
            if page.get("next") is None:
                break
            options = {"start": page["next"]}
    answer: dict[str, Value] = {"table": name, "kind": page.get("kind"), "partitions": found}
    if as_json:
        print_json(answer)
    else:
        draw(_partitions_table(decode(TableMap, answer)))


def _partitions_table(found: TableMap) -> Table:
    bounds = ("shard",) if found.kind == HASH else ("start", "end")
    figures = ("size", "rows", "rate")
    made = columns("partition", *bounds, "hosts", *figures, kept=figures, right=("shard", *figures))
    for partition in found.partitions:
        add_row(made, *partition.row(found.kind))
    return made
