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
from gossipkv.cli.options import JSON, NODES, AskedNodes, ask_map, ask_maps
from gossipkv.cli.output import note, print_json, tell
from gossipkv.cli.screen import add_row, columns, description, progress, write_table
from gossipkv.errors import ServiceError, UnknownDatabase
from gossipkv.status.codec import Record, decode, decode_list
from gossipkv.status.reports import KINDS, DatabaseSummary

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.table import Table

    from gossipkv.client.blocking import Client
    from gossipkv.wire.rpc import Value

OF_TABLE: Final = click.option(
    "--table", metavar="TABLE", help=("Table whose acceptors change.  [default: the catalogue]")
)
DIGEST_CHARACTERS: Final = 12  # Digits of a digest that are shown; enough to tell two apart.


class AcceptorReport(Record):
    """An acceptor of a register."""

    node: str
    store: str
    answers: bool
    why: str | None  # The reason why it does not answer.


class RegisterReport(Record):
    """An entry of `metadata_status`, or a register after a change."""

    table: str | None
    generation: str
    sequence: str
    digest: bytes | None  # Two equal maps have the same.
    old: tuple[AcceptorReport, ...]  # The present acceptors.
    new: tuple[AcceptorReport, ...]  # The future acceptors.
    nodes: tuple[str, ...]
    replaced: bool
    lost: str | None

    @property
    def name(self) -> str:
        """Return its name in a sentence."""
        return "the catalogue" if self.table is None else self.table

    def acceptors(self) -> Iterable[tuple[AcceptorReport, str]]:
        """Yield each present or future acceptor once, and whether it joins or leaves."""
        old, new = ({(acceptor.node, acceptor.store): acceptor for acceptor in side} for side in (self.old, self.new))
        for key, acceptor in (old | new).items():
            yield acceptor, "joins" if key not in old else "leaves" if key not in new else ""


@click.group(cls=CommandGroup, no_args_is_help=False, context_settings={"help_option_names": ["-h", "--help"]})
def metadata() -> None:
    """Choose the nodes that decide on the list of tables (the catalogue), or on one table: the acceptors."""


@metadata.command()
@click.argument("table", metavar="[TABLE]", required=False)
@NODES
@JSON
def status(table: str | None, nodes: AskedNodes, *, as_json: bool) -> int:
    """Show the acceptors of the catalogue, or of TABLE, those that answer, and the last decision.

    The exit status is 3 if too few acceptors answer to decide.
    """
    with nodes.connect() as client:
        answer = ask_maps(client, "metadata_status", table, {"timeout_ms": nodes.timeout_ms})
    registers = decode_list(RegisterReport, answer)
    write_table([*answer], _table(registers), "no decisions yet: no table was ever created", as_json=as_json)
    stuck = [register for register in registers if not decides(register)]
    for register in stuck:
        note(
            f"gossipkv: {register.name}: too few acceptors answer, so nothing can be decided; start them "
            "again, or see `gossipkv metadata force --help`"
        )
    return FAILED if stuck else 0


@metadata.command()
@click.argument("node")
@OF_TABLE
@DECISION
@JSON
def join(node: str, table: str | None, nodes: AskedNodes, *, as_json: bool) -> None:
    """Make NODE an acceptor."""
    with nodes.connect() as client:
        _tell(ask_map(client, "metadata_join", table, node), as_json=as_json)


@metadata.command()
@click.argument("node")
@OF_TABLE
@DECISION
@JSON
def leave(node: str, table: str | None, nodes: AskedNodes, *, as_json: bool) -> None:
    """Remove NODE from the acceptors. The last acceptor cannot leave."""
    with nodes.connect() as client:
        _tell(ask_map(client, "metadata_leave", table, node), as_json=as_json)


@metadata.command()
@click.argument("old")
@click.argument("new", required=False)
@DECISION
@JSON
def replace(old: str, new: str | None, nodes: AskedNodes, *, as_json: bool) -> int:
    """Replace the acceptor OLD by NEW, for the catalogue and every table.

    If the command is interrupted, repeat it. If a node has a new store, name it twice. A node that
    is no longer a member is named by its uuid from `metadata status`. The exit status is 3 if a replacement failed;
    the reasons are listed.
    """
    comer = _newcomer(old, new)
    shown = description(), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    answers, failures = list["Value"](), 0
    with nodes.connect() as client, progress(*shown) as bar:
        task = bar.add_task(f"{old} to {comer}")
        waiting: list[str | None] = [None]
        done: set[str | None] = set()
        while waiting:  # Tables created meanwhile are included.
            bar.update(task, total=len(done) + len(waiting))
            for table in waiting:
                try:
                    answers.append(ask_map(client, "metadata_replace", table, old, comer))
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
    changed = [register for register in decode_list(RegisterReport, answers) if register.replaced]
    if as_json:
        print_json(answers)
    for register in [] if as_json else changed:
        click.echo(f"{register.name}: the acceptors are {', '.join(register.nodes)}")
    if not changed and not failures:
        why = "is an acceptor with its present store" if old == comer else "is an acceptor of none of them"
        note(f"nothing to do: there are {len(answers)} registers, and {old} {why}")
    if failures:
        note(
            f"gossipkv: {failures} of {len(done)} registers are unchanged; repeat the command when the "
            "causes are repaired"
        )
    return FAILED if failures else 0


def _newcomer(old: str, new: str | None) -> str:
    """Return the name of the new acceptor; without one, say what to do."""
    if new is None:
        raise click.UsageError(
            f"name the node that takes the place of {old}: a live node that is no acceptor (`gossipkv metadata status` "
            f"lists the acceptors, `gossipkv members` the nodes); if there is none, take {old} out with `gossipkv "
            f"metadata leave {old}`, and with `--table TABLE` for each table on which it decides"
        )
    return new


def _tables(client: Client) -> list[str | None]:
    """Return the names of the tables that the node knows."""
    databases = decode_list(DatabaseSummary, client.databases())
    return [database.name for database in databases if database.kind in KINDS]


@metadata.command()
@click.option(
    "--survivor",
    "survivors",
    multiple=True,
    required=True,
    metavar="NODE",
    help=("Surviving acceptor; repeatable."),
)
@OF_TABLE
@click.option("--yes", is_flag=True, help="Do it. Without this, the command only says what may be lost.")
@DECISION
@JSON
def force(survivors: tuple[str, ...], table: str | None, nodes: AskedNodes, *, yes: bool, as_json: bool) -> int:
    """Let the survivors decide alone after a majority of the acceptors is lost.

    Decisions that only the lost acceptors knew are lost. Without --yes, the command only says what may be lost,
    with exit status 2. It is refused while a majority of the acceptors answers, or if a survivor does not answer.
    """
    with nodes.connect() as client:
        if not yes:
            _warn(client, table, survivors, nodes.timeout_ms)
            return WRONG_USE
        _tell(ask_map(client, "metadata_force", table, [*survivors]), as_json=as_json)
    return 0


def _warn(client: Client, table: str | None, survivors: tuple[str, ...], timeout_ms: int) -> None:
    try:
        answer = ask_maps(client, "metadata_status", table, {"timeout_ms": timeout_ms})
    except ServiceError as error:
        note(f"gossipkv: the present acceptors are not known: {error}")
        answer = []
    acceptors = [node for register in decode_list(RegisterReport, answer) for node, _ in register.acceptors()]
    lost = dict.fromkeys(acceptor.node for acceptor in acceptors if acceptor.node not in survivors)
    who = f"{', '.join(lost)} and any other node" if lost else "any other node"
    note(
        f"gossipkv: nothing was done. {', '.join(survivors)} alone would decide on "
        f"{table or 'the catalogue'}. Decisions that only {who} know would be lost, even if they were "
        "acknowledged: created or dropped tables, moved partitions. To do it, repeat the command "
        "with --yes"
    )


def decides(register: RegisterReport) -> bool:
    """Return True if a majority of the present acceptors answers, and one of the future acceptors."""
    sides = register.old, register.new
    return all(2 * sum(acceptor.answers for acceptor in side) > len(side) for side in sides)


def _tell(answer: dict[str, Value], *, as_json: bool) -> None:
    """Write the acceptors after a change, and the possible loss."""
    register = decode(RegisterReport, answer)
    names = (f"{node.node} ({change})" if change else node.node for node, change in register.acceptors())
    tell(answer, f"{register.name}: the acceptors are {', '.join(names)}", as_json=as_json)
    if register.lost is not None:
        note(f"gossipkv: {register.lost}")


def _table(registers: Iterable[RegisterReport]) -> Table:
    numbers = "generation", "sequence"
    made = columns("register", *numbers, "digest", "node", "store", "answers", "", kept=("answers",), right=numbers)
    for register in registers:
        digest = "-" if register.digest is None else register.digest.hex()[:DIGEST_CHARACTERS]
        cells = [register.name.removeprefix("the "), register.generation, register.sequence, digest]
        for acceptor, change in register.acceptors():
            answers = Text("yes", "green") if acceptor.answers else Text("no", "bold red")
            remark = " ".join(filter(None, (change, acceptor.why)))
            add_row(made, *cells, acceptor.node, acceptor.store, answers, remark)
            cells = [""] * len(cells)  # Further rows leave these cells empty.
    return made
