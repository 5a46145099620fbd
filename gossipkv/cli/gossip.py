"""`members` and `tree`: a node's knowledge of the other members."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Final

import click
import msgpack
from rich.text import Text

from gossipkv.cli import NOT_FOUND
from gossipkv.cli.help import Command
from gossipkv.cli.options import JSON, NODES, AskedNodes
from gossipkv.cli.output import json_line, note, print_json
from gossipkv.cli.screen import add_row, columns, draw, write_table
from gossipkv.errors import ServiceError
from gossipkv.status.codec import decode, decode_list
from gossipkv.status.reports import MemberReport
from gossipkv.status.words import duration_text, plain

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.table import Table

    from gossipkv.client.blocking import Client
    from gossipkv.wire.rpc import Value

    Row = dict[str, Value]

POLL_S: Final = 0.5
STYLES: Final = {"alive": "green", "suspect": "yellow", "dead": "bold red", "left": "dim", "silent": "bold red"}


@click.command(cls=Command)
@click.option("--watch", is_flag=True, help="Keep running, and write a line for each change.")
@NODES
@JSON
def members(nodes: AskedNodes, *, watch: bool, as_json: bool) -> None:
    """List the members of the cluster with their states: alive, suspect, dead or left.

    With --watch and --json, each member is a JSON object on its own line, written again after each change.
    """
    with nodes.connect() as client:
        answer = client.members()
        if not watch:
            write_table([*answer], _member_table(answer), "no members", as_json=as_json)
            return
        _write_members(answer, as_json=as_json)
        by_name = {_name(member): member for member in answer}
        for member in _changes(client, by_name):
            _write_members([member], as_json=as_json)


def _name(member: Row) -> str:
    return str(member.get("node"))


def _write_members(members: list[Row], *, as_json: bool) -> None:
    stream = sys.stdout.buffer
    for row in members:
        if as_json:
            stream.write(json_line(row))
        else:
            member = decode(MemberReport, row)
            life = f"epoch {member.epoch}, incarnation {member.incarnation}"
            line = f"{time.strftime('%H:%M:%S')}  {member.node} at {member.address} is {_state(member)} ({life})\n"
            stream.write(line.encode())
    stream.flush()


def _state(member: MemberReport) -> str:
    return member.state + ", claimed twice" * member.claimed_twice + (f": {member.misfit}" if member.misfit else "")


def _changes(client: Client, before: dict[str, Row]) -> Iterator[Row]:
    """Yield each member whose fields changed; a forgotten member has the state `forgotten`."""
    silent = False
    while True:
        time.sleep(POLL_S)
        try:
            found = {_name(member): member for member in client.members()}
        except ServiceError as error:  # The node may come back.
            if not silent:
                note(f"gossipkv: {error}")
            silent = True
            continue
        silent = False
        for name, member in found.items():
            if before.get(name) != member:
                yield member
        for name in before.keys() - found.keys():
            yield {**before[name], "state": "forgotten"}
        before = found


def _member_table(members: list[Row]) -> Table:
    numbers = "epoch", "incarnation"
    table = columns("node", "address", "state", *numbers, kept=("state",), right=numbers)
    for member in decode_list(MemberReport, members):
        state = _state(member)
        styled = Text(state, STYLES.get(state, "bold red"))
        add_row(table, member.node, member.address, styled, member.epoch, member.incarnation)
    return table


@click.command(cls=Command)
@click.argument("path", default="")
@click.option("--all", "everything", is_flag=True, help="Include keys of members that are suspect, dead or left.")
@NODES
@JSON
def tree(path: str, nodes: AskedNodes, *, everything: bool, as_json: bool) -> int:
    """List the keys at and below PATH that members publish, with owner, age, state and value.

    The exit status is 1 if there are no keys.
    """
    with nodes.connect() as client:
        path = path.strip("/")
        found = [*_at(client, path, everything=everything), *_below(client, path, everything=everything)]
    if as_json:
        print_json([*found])
    elif found:
        draw(_tree_table(found))
    if not found:
        note(f"not found: no member publishes a key{f' at or below {path}' if path else ''}")
        return NOT_FOUND
    return 0


def _at(client: Client, path: str, *, everything: bool) -> Iterator[Row]:
    """Yield the key at a path, once for each member that publishes it."""
    above, _, last = path.rpartition("/")
    if last:
        for entry in client.entries(above, everything=everything):
            if plain(entry.get("name")) == last:
                yield {"path": path, **entry}


def _below(client: Client, path: str, *, everything: bool) -> Iterator[Row]:
    """Yield the keys below a path, each level before the next; a key may have keys below it."""
    names = client.children(path, everything=everything)
    if not names:
        return
    for entry in client.entries(path, everything=everything):
        yield {"path": _join(path, plain(entry.get("name"))), **entry}
    for name in names:
        yield from _below(client, _join(path, name), everything=everything)


def _join(path: str, name: str) -> str:
    return f"{path}/{name}" if path else name


def _tree_table(found: list[Row]) -> Table:
    table = columns("path", "owner", "age", "state", "value", kept=("state",))
    for entry in found:
        state, age_s = plain(entry.get("state")), entry.get("age_s")
        add_row(
            table,
            plain(entry.get("path")),
            plain(entry.get("owner")),
            duration_text(round(age_s)) if isinstance(age_s, (int, float)) else "-",
            Text(state, STYLES.get(state, "")),
            _value_text(entry.get("value")),
        )
    return table


def _value_text(value: Value) -> str:
    """Return a value for people: nodes publish MessagePack maps; other values are shown as they are."""
    try:
        fields = msgpack.unpackb(value) if isinstance(value, bytes) else None
    except (ValueError, msgpack.UnpackException):
        fields = None
    if not isinstance(fields, dict):
        return plain(value)
    return "  ".join(
        f"{plain(name)}={word.hex() if isinstance(word, bytes) else plain(word)}" for name, word in fields.items()
    )
