"""Commands of `table` about ranges: their bounds and their hosts.

The requests are idempotent, so a command that gets no answer asks once more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from gossipkv.cli.decisions import DECISION, allowed, decided, unconfirmed
from gossipkv.cli.options import HEX_KEYS, JSON, NODE, ask_map, connect, key_bytes, timeout
from gossipkv.cli.output import note, print_json, tell
from gossipkv.cli.reads import key_or_input
from gossipkv.cli.screen import add_row, columns, draw
from gossipkv.errors import Conflict
from gossipkv.register.metadata.partitions import HASH
from gossipkv.status.codec import decode
from gossipkv.status.reports import TableMap
from gossipkv.status.words import names_text, plain
from gossipkv.wire.key_text import shown

if TYPE_CHECKING:
    from collections.abc import Callable

    from click.decorators import FC
    from rich.table import Table

    from gossipkv.address import Address
    from gossipkv.errors import GossipKVError
    from gossipkv.wire.rpc import Value

NO_COPY: Final = "none"
SIZES: Final = timeout("10s", "one request; hosts that do not say how much they have are waited for")


def _of_range(*more: str) -> Callable[[FC], FC]:
    """Add the parameters of a decision on a range of the table NAME, which is named by a key in it."""

    def decorate(command: FC) -> FC:
        key = click.argument("key", metavar="KEY", type=key_bytes, callback=lambda _, __, value: key_or_input(value))
        for parameter in (
            HEX_KEYS,
            JSON,
            DECISION,
            NODE,
            *map(click.argument, reversed(more)),
            key,
            click.argument("name"),
        ):
            command = parameter(command)
        return command

    return decorate


@click.command()
@_of_range()
def split(name: str, key: bytes, nodes: tuple[Address, ...], timeout_ms: int, *, as_json: bool) -> None:
    """Divide a range of the table NAME in two.

    It is the one that KEY is in, and the second of the two begins at KEY; nothing is copied.  KEY is `-`: the key is
    what standard input holds, without one line feed at its end.
    """
    answer = _decided("split", nodes, timeout_ms, name, key)
    ids = names_text([partition.id for partition in decode(TableMap, answer).partitions])
    tell(answer, f"{name}: divided at {shown(key)}, into {ids}", as_json=as_json)


@click.command()
@_of_range("node")
def join(name: str, key: bytes, node: str, nodes: tuple[Address, ...], timeout_ms: int, *, as_json: bool) -> None:
    """Place a replica of the range that KEY is in on NODE.

    One slot of that range of the table NAME moves there; `status` shows how far it is.  KEY is `-`: what standard
    input holds.
    """
    _tell_move(_decided("join", nodes, timeout_ms, name, key, node), name, key, as_json=as_json)


@click.command()
@_of_range("node")
def leave(name: str, key: bytes, node: str, nodes: tuple[Address, ...], timeout_ms: int, *, as_json: bool) -> None:
    """Let another node hold the replica that NODE has of a range.

    The slot that NODE has of the range of the table NAME that KEY is in moves to a node that is picked.  One that is
    on its way to NODE yet stays where it is.  KEY is `-`: what standard input holds.
    """
    _tell_move(_decided("leave", nodes, timeout_ms, name, key, node), name, key, as_json=as_json)


def _decided(method: str, nodes: tuple[Address, ...], timeout_ms: int, *params: Value) -> dict[str, Value]:
    """Return the decision on a range; after a repeated request a `Conflict` may say that it was made."""

    def done(error: GossipKVError) -> dict[str, Value] | None:
        return {**error.details} if isinstance(error, Conflict) and "partition" in error.details else None

    with connect(nodes, timeout_ms) as client:
        return decided(client, method, *params, allowed(timeout_ms), done=done)


def _tell_move(answer: dict[str, Value], name: str, key: bytes, *, as_json: bool) -> None:
    if as_json:
        print_json(answer)
        return
    ends = " ".join(f"{way} {plain(answer[way])}" for way in ("from", "to") if answer.get(way) is not None)
    slot, is_new = answer.get("slot"), answer.get("changed") is not False
    moved = "the range" if slot is None else f"slot {plain(slot)} of the range"
    does = f"moves {ends}" if is_new or answer.get("from") is not None else f"is on {plain(answer.get('to'))}"
    click.echo(f"{name}: {moved} that {shown(key)} is in {does}")
    if not is_new:
        note("nothing to do: it was so already")


@click.command(name="force-join")
@_of_range("node")
@click.option(
    "--copy",
    metavar="COPY",
    help="The copy set aside on NODE that it goes on with; `none`: with nothing.  [default: the one that there is]",
)
@click.option("--yes", is_flag=True, help="Do it; without this, only say what may be lost.")
def force_join(
    name: str,
    key: bytes,
    node: str,
    nodes: tuple[Address, ...],
    timeout_ms: int,
    *,
    copy: str | None,
    yes: bool,
    as_json: bool,
) -> int:
    """Begin a range anew on NODE, whose hosts are all gone for good.

    It is the one of the table NAME that KEY is in.  COPY is what `table quarantine list NODE` calls a copy of it.
    Without --yes nothing is done: it says what may be lost, with exit status 2.
    """
    if not yes:
        usual = "with the copy of it that is set aside there, or with nothing if there is none"
        begins = {None: usual, NO_COPY: "with nothing"}.get(copy, f"with the copy {copy}")
        return unconfirmed(
            f"The range of {name} that {shown(key)} is in would begin anew on {node}, {begins}, and all else that was "
            "written to its keys would be lost, also if it was acknowledged, and also what its hosts have if they come "
            "back.  If they are only down, start one of them instead"
        )
    options: dict[str, Value] = {
        **({} if copy is None else {"copy": "" if copy == NO_COPY else copy}),
        **allowed(timeout_ms),
    }
    with connect(nodes, timeout_ms) as client:
        answer = decided(client, "force_join", name, key, node, options)
    if as_json:
        print_json(answer)
    else:
        begun, where, lost = (plain(answer.get(field)) for field in ("partition", "node", "may_be_lost"))
        click.echo(f"{name}: partition {begun} on {where}: {lost}")
        if answer.get("changed") is False:
            note("nothing to do: it was so already")
    return 0


@click.command()
@click.argument("name")
@NODE
@SIZES
@JSON
def partitions(name: str, nodes: tuple[Address, ...], timeout_ms: int, *, as_json: bool) -> None:
    """Write where the partitions of the table NAME are, how large, and how busy.

    Sizes and rates are of those hosts that live, about; `-` where nobody says.  A rate is of requests a second.
    """
    options: dict[str, Value] = {}
    found: list[Value] = []
    with connect(nodes, timeout_ms) as client:
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
