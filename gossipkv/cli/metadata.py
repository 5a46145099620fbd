"""`metadata`: the acceptors of tables: shows them, lets nodes join and leave, and goes on after a majority is lost.

Decisions are stored in registers: one for each table, and one for the catalogue of all tables.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click
from rich.progress import BarColumn, MofNCompleteColumn, TimeRemainingColumn
from rich.text import Text

from gossipkv.cli import FAILED, WRONG_USE, CommandGroup
from gossipkv.cli.decisions import DECISION
from gossipkv.cli.options import JSON, NODE, TIMEOUT, connect
from gossipkv.cli.output import note, print_json
from gossipkv.cli.screen import add_row, columns, description, draw, progress
from gossipkv.errors import ServiceError, UnknownDatabase
from gossipkv.status.reading import list_of, map_of
from gossipkv.status.words import plain

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.table import Table

    from gossipkv.address import Address
    from gossipkv.client.blocking import Client
    from gossipkv.wire.rpc import Value

    Row = dict[str, Value]

OF_TABLE: Final = click.option("--table", metavar="TABLE", help="Of this table.  [default: of the catalogue]")
KINDS: Final = ("hash", "range")  # Kinds of databases that are tables.
ROOT_CHARACTERS: Final = 12  # Digits of a root that are shown; enough to tell two apart.


@click.group(cls=CommandGroup, no_args_is_help=False, context_settings={"help_option_names": ["-h", "--help"]})
def metadata() -> None:
    """Show and change who decides on tables: on the catalogue of all, or on the partitions of one."""


@metadata.command()
@click.argument("table", metavar="[TABLE]", required=False)
@NODE
@TIMEOUT
@JSON
def status(table: str | None, nodes: tuple[Address, ...], timeout_ms: int, *, as_json: bool) -> int:
    """Write which nodes decide on the catalogue, or on TABLE, which of them answer, and what was decided last.

    Exit status 3: too few of them answer, and nothing can be decided.
    """
    with connect(nodes, timeout_ms) as client:
        told = _registers(client, table, timeout_ms)
    if as_json:
        print_json([*told])
    elif told:
        draw(_table(told))
    else:
        note("nothing is decided yet: no table was ever made")
    stuck = [register for register in told if not decides(register)]
    for register in stuck:
        note(
            f"gossipkv: {_name(register)}: too few of those that decide on it answer, and nothing can be decided; "
            "start them again, or see `gossipkv metadata force --help`"
        )
    return FAILED if stuck else 0


@metadata.command()
@click.argument("node")
@OF_TABLE
@NODE
@DECISION
@JSON
def join(node: str, table: str | None, nodes: tuple[Address, ...], timeout_ms: int, *, as_json: bool) -> None:
    """Add the node named NODE to the deciding nodes."""
    with connect(nodes, timeout_ms) as client:
        _tell(client.call("metadata_join", table, node), as_json=as_json)


@metadata.command()
@click.argument("node")
@OF_TABLE
@NODE
@DECISION
@JSON
def leave(node: str, table: str | None, nodes: tuple[Address, ...], timeout_ms: int, *, as_json: bool) -> None:
    """Remove the node named NODE from the deciding nodes; the last one cannot leave."""
    with connect(nodes, timeout_ms) as client:
        _tell(client.call("metadata_leave", table, node), as_json=as_json)


@metadata.command()
@click.argument("old")
@click.argument("new")
@NODE
@DECISION
@JSON
def replace(old: str, new: str, nodes: tuple[Address, ...], timeout_ms: int, *, as_json: bool) -> int:
    """Replace OLD by the node named NEW as a deciding node, for the catalogue and every table.

    It may be repeated after whatever has stopped it, and does the rest.  A node that has another store by now takes its
    own place, under its name twice; one that is no member any more is named by its uuid, as `metadata status` does.

    Exit status 3: what could not be changed is told, each with the reason.
    """
    shown = description(), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    told, failures = [], 0
    with connect(nodes, timeout_ms) as client, progress(*shown) as bar:
        task = bar.add_task(f"{old} to {new}")
        waiting: list[str | None] = [None]
        done: set[str | None] = set()
        while waiting:  # Tables created meanwhile are included.
            bar.update(task, total=len(done) + len(waiting))
            for table in waiting:
                try:
                    told.append(map_of(client.call("metadata_replace", table, old, new)))
                except UnknownDatabase:  # The table was dropped meanwhile.
                    pass
                except ServiceError as error:
                    if "register" not in error.details:  # The error concerns all registers.
                        raise
                    note(f"gossipkv: {error.message}")
                    failures += 1
                bar.advance(task)
            done.update(waiting)
            waiting = [name for name in _tables(client) if name not in done]
    changed = [register for register in told if register.get("replaced") is True]
    if as_json:
        print_json([*told])
    for register in [] if as_json else changed:
        click.echo(f"{_name(register)}: decided by {', '.join(map(plain, list_of(register.get('nodes'))))}")
    if not changed and not failures:
        why = "decides with the store that it has" if old == new else "decides on none of them"
        note(f"nothing to do: there are {len(told)} registers, and {old} {why}")
    if failures:
        note(f"gossipkv: {failures} of {len(done)} registers are as they were; repeat this when that is mended")
    return FAILED if failures else 0


def _tables(client: Client) -> list[str | None]:
    """Return the names of the tables that the node knows."""
    return [plain(database["name"]) for database in client.databases() if database.get("kind") in KINDS]


@metadata.command()
@click.option("--survivor", "survivors", multiple=True, required=True, metavar="NODE", help="A node that is to decide.")
@OF_TABLE
@click.option("--yes", is_flag=True, help="Do it; without this, only say what may be lost.")
@NODE
@DECISION
@JSON
def force(
    survivors: tuple[str, ...],
    table: str | None,
    nodes: tuple[Address, ...],
    timeout_ms: int,
    *,
    yes: bool,
    as_json: bool,
) -> int:
    """Let the survivors alone decide from now on, because a majority is gone for good.

    What only the others knew is lost.  Without --yes nothing is done: it says what that may be, with exit status 2.  A
    node refuses while enough of those that decide answer, and unless every survivor does.
    """
    with connect(nodes, timeout_ms) as client:
        if not yes:
            _warn(client, table, survivors, timeout_ms)
            return WRONG_USE
        _tell(client.call("metadata_force", table, [*survivors]), as_json=as_json)
    return 0


def _warn(client: Client, table: str | None, survivors: tuple[str, ...], timeout_ms: int) -> None:
    try:
        told = _registers(client, table, timeout_ms)
    except ServiceError as error:
        note(f"gossipkv: who decides now is not known: {error}")
        told = []
    others = {name: None for register in told for name, _, _ in _acceptors(register) if name not in survivors}
    who = f"{', '.join(others)} and any other" if others else "any other"
    note(
        f"gossipkv: nothing was done.  {', '.join(survivors)} alone would decide on {table or 'the catalogue'}; what "
        f"was decided with {who} and is not known to them would be lost, also if it was acknowledged: tables that "
        "were made or dropped, partitions that were moved.  If that is to be, repeat this with --yes"
    )


def decides(register: Row) -> bool:
    """Return True if a majority of the present acceptors answers, and one of the future acceptors."""
    return all(_is_majority(list_of(register.get(side))) for side in ("old", "new"))


def _is_majority(acceptors: list[Value]) -> bool:
    answering = sum(map_of(acceptor).get("answers") is True for acceptor in acceptors)
    return 2 * answering > len(acceptors)


def _registers(client: Client, table: str | None, timeout_ms: int) -> list[Row]:
    told = client.call("metadata_status", table, {"timeout_ms": timeout_ms})
    return [map_of(register) for register in list_of(told)]


def _name(register: Row) -> str:
    table = register.get("table")
    return "the catalogue" if table is None else plain(table)


def _acceptors(register: Row) -> Iterable[tuple[str, str, Row]]:
    """Yield each present or future acceptor once: its name, whether it joins or leaves, and its fields."""
    sides = {side: {_key(each): map_of(each) for each in list_of(register.get(side))} for side in ("old", "new")}
    for key, acceptor in (sides["old"] | sides["new"]).items():
        change = "joins" if key not in sides["old"] else "leaves" if key not in sides["new"] else ""
        yield plain(acceptor.get("node")), change, acceptor


def _key(acceptor: Value) -> tuple[str, str]:
    told = map_of(acceptor)
    return plain(told.get("node")), plain(told.get("store"))


def _tell(told: Value, *, as_json: bool) -> None:
    """Write the acceptors after a change, and the possible loss."""
    register = map_of(told)
    if as_json:
        print_json(register)
    else:
        names = (f"{name} ({change})" if change else name for name, change, _ in _acceptors(register))
        click.echo(f"{_name(register)}: decided by {', '.join(names)}")
    if register.get("lost") is not None:
        note(f"gossipkv: {plain(register['lost'])}")


def _table(told: list[Row]) -> Table:
    numbers = "generation", "sequence"
    made = columns("register", *numbers, "root", "node", "store", "answers", "", kept=("answers",), right=numbers)
    for register in told:
        root = register.get("root")
        cells = [
            _name(register).removeprefix("the "),
            plain(register.get("generation")),
            plain(register.get("sequence")),
            (root.hex() if isinstance(root, bytes) else plain(root))[:ROOT_CHARACTERS],
        ]
        for name, change, acceptor in _acceptors(register):
            answers = acceptor.get("answers") is True
            why = acceptor.get("why")
            add_row(
                made,
                *cells,
                name,
                plain(acceptor.get("store")),
                Text("yes" if answers else "no", "green" if answers else "bold red"),
                " ".join(filter(None, (change, "" if why is None else plain(why)))),
            )
            cells = [""] * len(cells)  # Further rows leave these cells empty.
    return made
