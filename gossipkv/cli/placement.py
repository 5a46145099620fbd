"""`node`: the nodes that hold tables; also `plan` and `reshard` of `table`.

Each command changes the wanted placement in one transaction and returns; the nodes carry it out, by moves.  The
requests are idempotent, so a command that gets no answer asks once more.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final

import click

from gossipkv.cli import CommandGroup
from gossipkv.cli.decisions import DECISION, allowed, decided, unconfirmed
from gossipkv.cli.help import Command
from gossipkv.cli.options import JSON, NODES, AskedNodes, ask_map, ask_maps, ask_within
from gossipkv.cli.output import note, print_json, tell
from gossipkv.cli.screen import add_row, columns, draw, write_table
from gossipkv.register.metadata.partitions import MAX_SHARDS
from gossipkv.settings.tables import MAX_WEIGHT
from gossipkv.status.codec import Record, decode, decode_list
from gossipkv.status.reports import NotedPartition
from gossipkv.status.words import names_text, plain, size_text, some_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from click.decorators import FC
    from rich.table import Table

    from gossipkv.wire.rpc import Value

PLAN: Final = ask_within("60s", "the plans")
ISOLATION_GROUP: Final = click.option(
    "--isolation-group",
    metavar="G",
    help=("Group of nodes that fail together; `none` means the node alone.  [default: its settings]"),
)
WEIGHT: Final = click.IntRange(1, MAX_WEIGHT)
TAKEN_OUT: Final = {0: "removed", None: "gone"}  # Shown in place of a weight.


def _weight(default: str) -> Callable[[FC], FC]:
    return click.option(
        "--weight",
        type=WEIGHT,
        metavar="W",
        help=(f"Share of partitions relative to other nodes.  [default: {default}]"),
    )


YES: Final = click.option(
    "--yes", is_flag=True, help=("With --force: do it. Without this, the command only says what may be lost.")
)


def _force(of: str) -> Callable[[FC], FC]:
    return click.option(
        "--force", is_flag=True, help=(f"Treat {of} as lost: do not wait for records that only {of} has.")
    )


class TablesNode(Record):
    """A node on which tables are laid, or were."""

    node: str
    uuid: str
    isolation_group: str | None
    weight: int | None
    alive: bool
    member: bool


class PlacementReport(Record):
    """The placement, or its change."""

    nodes: tuple[TablesNode, ...]
    waits_for: tuple[str, ...]  # Nodes that are down.
    decides_on: tuple[str, ...]  # Registers of which the removed node is still an acceptor.
    groups: tuple[tuple[str, ...], ...]
    changed: bool = True


class PlannedMove(Record):
    """A move that has not begun."""

    from_: str
    to: str
    bytes_: int | None
    why: str = ""


class PlanReport(Record):
    """An entry of `plan`."""

    table: str
    warning: str | None
    moves: tuple[PlannedMove, ...]
    moves_count: int
    bytes_: int
    unknown: int  # Moves of unknown size.
    splits: tuple[NotedPartition, ...]  # Ranges to divide.
    splits_count: int
    resting: tuple[dict[str, int], ...]  # Replicas that moved lately, with the seconds for which they rest.


@click.group(cls=CommandGroup, no_args_is_help=False, context_settings={"help_option_names": ["-h", "--help"]})
def node() -> None:
    """Choose the nodes that hold tables, and their shares."""


@node.command()
@click.argument("name", metavar="NODE")
@ISOLATION_GROUP
@_weight("its settings")
@DECISION
@JSON
def add(name: str, nodes: AskedNodes, *, isolation_group: str | None, weight: int | None, as_json: bool) -> None:
    """Let NODE hold tables.

    If NODE was added before, only the given options are changed.
    """
    with nodes.connect() as client:
        answer = decided(
            client, "add_node", name, _options(nodes.timeout_ms, isolation_group=isolation_group, weight=weight)
        )
    _tell(answer, f"{name}: {_place(answer, name)}", as_json=as_json)


@node.command()
@click.argument("name", metavar="NODE")
@_force("NODE")
@YES
@DECISION
@JSON
def remove(name: str, nodes: AskedNodes, *, force: bool, yes: bool, as_json: bool) -> int:
    """Remove NODE from the nodes that hold tables.

    Its partitions move to other nodes. If NODE is down, they wait for its records, unless --force is given. A node
    that is no longer a member is named by its uuid from `node list`.
    """
    if force and not yes:
        return _warn(name)
    with nodes.connect() as client:
        answer = decided(client, "remove_node", name, _options(nodes.timeout_ms, force=force or None))
    how = "lost for good; no node waits for its records" if force else "its partitions move to other nodes"
    _tell(answer, f"{name}: {how}", as_json=as_json)
    return 0


@node.command()
@click.argument("old")
@click.argument("new")
@_force("OLD")
@YES
@ISOLATION_GROUP
@_weight("that of OLD")
@DECISION
@JSON
def replace(
    old: str,
    new: str,
    nodes: AskedNodes,
    *,
    isolation_group: str | None,
    weight: int | None,
    force: bool,
    yes: bool,
    as_json: bool,
) -> int:
    """Replace the node OLD by the node NEW.

    NEW gets the share of OLD, unless --weight is given. If a node lost its disk, name it twice.
    """
    if force and not yes:
        return _warn(old)
    options = _options(nodes.timeout_ms, force=force or None, isolation_group=isolation_group, weight=weight)
    with nodes.connect() as client:
        answer = decided(client, "replace_node", old, new, options)
    _tell(answer, f"{new}: replaces {old}; {_place(answer, new)}", as_json=as_json)
    return 0


@node.command()
@click.argument("name", metavar="NODE")
@click.argument("share", metavar="W", type=WEIGHT)
@DECISION
@JSON
def weight(name: str, share: int, nodes: AskedNodes, *, as_json: bool) -> None:
    """Change the weight of NODE to W: nodes hold partitions in proportion to their weights."""
    with nodes.connect() as client:
        answer = decided(client, "set_weight", name, share, _options(nodes.timeout_ms))
    _tell(answer, f"{name}: {_place(answer, name)}", as_json=as_json)


@node.command(name="list")
@NODES
@JSON
def list_(nodes: AskedNodes, *, as_json: bool) -> None:
    """List the nodes that hold tables, and those that were removed or are lost."""
    with nodes.connect() as client:
        answer = ask_map(client, "placement_nodes")
    placement = decode(PlacementReport, answer)
    nothing = "no nodes: the catalogue of tables is empty"
    write_table(answer, _nodes_table(placement.nodes), nothing, as_json=as_json)
    _note_waiting(placement)


def _nodes_table(nodes: Iterable[TablesNode]) -> Table:
    made = columns("node", "uuid", "isolation group", "weight", "alive", kept=("uuid", "alive"), right=("weight",))
    for node in sorted(nodes, key=lambda node: (node.node, node.uuid)):
        uuid = "" if node.member else node.uuid  # A node that is no member is named by its uuid.
        share = TAKEN_OUT.get(node.weight) or plain(node.weight)
        add_row(made, node.node, uuid, node.isolation_group or "-", share, "yes" if node.alive else "no")
    return made


# Commands of `table` about placement


@click.command(cls=Command)
@click.argument("name", metavar="[TABLE]", required=False)
@PLAN
@JSON
def plan(name: str | None, nodes: AskedNodes, *, as_json: bool) -> None:
    """Show the moves of TABLE, or of all tables, that are planned and have not begun.

    `status` shows the moves under way. For range tables, the output has the reasons, and the ranges to split.
    """
    with nodes.connect() as client:
        answer = ask_maps(client, "plan", name)
    plans = decode_list(PlanReport, answer)
    if as_json:
        print_json([*answer])
    else:
        if any(found.moves for found in plans):
            draw(_moves_table(plans))
        if any(found.splits for found in plans):
            draw(_splits_table(plans))
        for found in plans:
            click.echo(f"{found.table}: {_sum(found)}")
    if not plans:
        note("no tables")
    for found in plans:
        if found.warning is not None:
            note(f"gossipkv: {found.table}: {found.warning}")


def _moves_table(plans: Iterable[PlanReport]) -> Table:
    """Return a table of the sizes of moves by table, source, target and reason."""
    moves: dict[tuple[str, str, str, str], list[int | None]] = defaultdict(list)
    for found in plans:
        for move in found.moves:
            moves[found.table, move.from_, move.to, move.why].append(move.bytes_)
    reasons = ["why"] if any(why for *_, why in moves) else []
    made = columns("table", "from", "to", "moves", "size", *reasons, kept=("size",), right=("moves", "size"))
    for (*ends, why), sizes in sorted(moves.items()):
        reported = [size for size in sizes if size is not None]
        size = size_text(sum(reported)) if reported else "-"
        add_row(made, *ends, f"{len(sizes):,}", size, *[why for _ in reasons])
    return made


def _splits_table(plans: Iterable[PlanReport]) -> Table:
    made = columns("table", "range to split", "why", right=("range to split",))
    for found in plans:
        for split in found.splits:
            add_row(made, found.table, split.partition, split.why)
    return made


def _sum(found: PlanReport) -> str:
    count, divisions = found.moves_count, found.splits_count
    divided = f"; {divisions:,} split{'s' if divisions > 1 else ''}" if divisions else ""
    if resting := [replica.get("for_s", 0) for replica in found.resting]:
        what = "replica was" if len(resting) == 1 else "replicas were"
        divided += f"; {len(resting):,} {what} moved lately and may not move again yet, the last for {max(resting)} s"
    if not count:
        return "nothing more to move" + divided
    text = f"{count:,} move{'s' if count > 1 else ''}, {size_text(found.bytes_)}"
    if found.unknown:
        text += f" and {found.unknown:,} of unknown size"
    if count > (listed := len(found.moves)):
        text += f"; the first {listed:,} are listed"
    return text + divided


@click.command(cls=Command)
@click.argument("name")
@click.argument("groups", type=click.IntRange(0, MAX_SHARDS))
@DECISION
@JSON
def reshard(name: str, groups: int, nodes: AskedNodes, *, as_json: bool) -> None:
    """Divide the nodes into GROUPS groups, and keep each shard of the table NAME in one group.

    Shard s belongs to group s modulo GROUPS. 0: no groups.
    """
    with nodes.connect() as client:
        answer = decided(client, "reshard", name, groups, _options(nodes.timeout_ms))
    if as_json:
        print_json(answer)
        return
    placement = decode(PlacementReport, answer)
    if placement.groups:
        made = columns("group", "nodes", right=("group",))
        for number, group in enumerate(placement.groups):
            add_row(made, str(number), " ".join(sorted(group)))
        draw(made)
    else:
        click.echo(f"{name}: no groups: each shard may be on any node")
    _note_unchanged(placement)


# Helpers


def _options(timeout_ms: int, **given: Value) -> dict[str, Value]:
    return {name: value for name, value in given.items() if value is not None} | allowed(timeout_ms)


def _warn(gone: str) -> int:
    return unconfirmed(
        f"{gone} would count as lost for good, with its disk, so records that only {gone} has would "
        "be lost, even if they were acknowledged. If the node is only down, start it again instead"
    )


def _place(answer: dict[str, Value], name: str) -> str:
    """Return the weight and the group of a node after a change; of two of that name, those of the member."""
    nodes = decode(PlacementReport, answer).nodes
    for node in sorted(nodes, key=lambda node: not node.member):
        if name in {node.node, node.uuid}:
            group = f", isolation group {node.isolation_group}" if node.isolation_group else ""
            return f"weight {plain(node.weight)}{group}"
    return "in use"


def _tell(answer: dict[str, Value], line: str, *, as_json: bool) -> None:
    placement = decode(PlacementReport, answer)
    tell(answer, line, as_json=as_json)
    if not as_json:
        _note_unchanged(placement)
    _note_waiting(placement)


def _note_unchanged(placement: PlacementReport) -> None:
    if not placement.changed:
        note("nothing to do: no change was needed")


def _note_waiting(placement: PlacementReport) -> None:
    """Name the registers and the nodes that are waited for, and the remedy if such a node is lost."""
    if registers := placement.decides_on:
        note(
            f"gossipkv: the removed node is still an acceptor of {some_text(registers)}. If it runs, stop it only when "
            "`gossipkv metadata status` names it no more"
        )
    if waits := placement.waits_for:
        note(
            f"gossipkv: {names_text(waits)} {'is' if len(waits) == 1 else 'are'} down, and partitions "
            "wait for records there. Start the node again. If a node is lost for good, `gossipkv node "
            "remove NODE --force` says what may be lost"
        )
