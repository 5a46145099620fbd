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
from gossipkv.cli.options import JSON, NODE, TIMEOUT, connect, timeout
from gossipkv.cli.output import note, print_json
from gossipkv.cli.screen import add_row, columns, draw
from gossipkv.register.metadata.partitions import MAX_SHARDS
from gossipkv.settings.tables import MAX_WEIGHT
from gossipkv.status.reading import list_of, map_of, whole_of
from gossipkv.status.words import names_text, plain, size_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from click.decorators import FC
    from rich.table import Table

    from gossipkv.address import Address
    from gossipkv.wire.rpc import Value

    Row = dict[str, Value]

PLAN: Final = timeout("60s", "the plans, which take a second or two of a table with thousands of partitions")
ISOLATION_GROUP: Final = click.option(
    "--isolation-group", metavar="G", help="What fails together with it; `none`: itself.  [default: as its settings]"
)
WEIGHT: Final = click.IntRange(1, MAX_WEIGHT)
TAKEN_OUT: Final = {0: "removed", None: "gone"}  # Shown in place of a weight.


def _weight(default: str) -> Callable[[FC], FC]:
    return click.option(
        "--weight", type=WEIGHT, metavar="W", help=f"Share of partitions beside others'.  [default: {default}]"
    )


YES: Final = click.option("--yes", is_flag=True, help="With --force: do it; without this, only say what may be lost.")


def _force(of: str) -> Callable[[FC], FC]:
    return click.option("--force", is_flag=True, help=f"{of} is gone for good: nobody waits for what it alone has.")


@click.group(cls=CommandGroup, no_args_is_help=False, context_settings={"help_option_names": ["-h", "--help"]})
def node() -> None:
    """Show and change which nodes tables are laid on, and by which shares."""


@node.command()
@click.argument("name", metavar="NODE")
@ISOLATION_GROUP
@_weight("as its settings say")
@NODE
@DECISION
@JSON
def add(
    name: str,
    nodes: tuple[Address, ...],
    timeout_ms: int,
    *,
    isolation_group: str | None,
    weight: int | None,
    as_json: bool,
) -> None:
    """Lay tables on the node named NODE, too.

    Of one that is there already, what is told is changed, and nothing else.
    """
    with connect(nodes, timeout_ms) as client:
        told = decided(client, "add_node", name, _options(timeout_ms, isolation_group=isolation_group, weight=weight))
    _tell(told, f"{name}: {_place(told, name)}", as_json=as_json)


@node.command()
@click.argument("name", metavar="NODE")
@_force("NODE")
@YES
@NODE
@DECISION
@JSON
def remove(name: str, nodes: tuple[Address, ...], timeout_ms: int, *, force: bool, yes: bool, as_json: bool) -> int:
    """Lay tables on NODE no longer.

    Other nodes get its partitions.  One that is no member any more is named by its uuid, as `node list` tells it.
    While it is down, its partitions wait for what it has; with --force they do not.
    """
    if force and not yes:
        return _warn(name)
    with connect(nodes, timeout_ms) as client:
        told = decided(client, "remove_node", name, _options(timeout_ms, force=force or None))
    how = "gone for good; nobody waits for what it alone has" if force else "others get its partitions"
    _tell(told, f"{name}: {how}", as_json=as_json)
    return 0


@node.command()
@click.argument("old")
@click.argument("new")
@_force("OLD")
@YES
@ISOLATION_GROUP
@_weight("that of OLD")
@NODE
@DECISION
@JSON
def replace(
    old: str,
    new: str,
    nodes: tuple[Address, ...],
    timeout_ms: int,
    *,
    isolation_group: str | None,
    weight: int | None,
    force: bool,
    yes: bool,
    as_json: bool,
) -> int:
    """Put NEW in the place of OLD.

    It gets the share of OLD, unless --weight tells another.  The same name twice: a node that has lost its disk takes
    its own place.
    """
    if force and not yes:
        return _warn(old)
    options = _options(timeout_ms, force=force or None, isolation_group=isolation_group, weight=weight)
    with connect(nodes, timeout_ms) as client:
        told = decided(client, "replace_node", old, new, options)
    _tell(told, f"{new}: in the place of {old}; {_place(told, new)}", as_json=as_json)
    return 0


@node.command()
@click.argument("name", metavar="NODE")
@click.argument("share", metavar="W", type=WEIGHT)
@NODE
@DECISION
@JSON
def weight(name: str, share: int, nodes: tuple[Address, ...], timeout_ms: int, *, as_json: bool) -> None:
    """Give NODE another share.

    It is to hold partitions by the weight W, beside the weights of the others.
    """
    with connect(nodes, timeout_ms) as client:
        told = decided(client, "set_weight", name, share, _options(timeout_ms))
    _tell(told, f"{name}: {_place(told, name)}", as_json=as_json)


@node.command(name="list")
@NODE
@TIMEOUT
@JSON
def list_(nodes: tuple[Address, ...], timeout_ms: int, *, as_json: bool) -> None:
    """List the nodes of tables.

    Those that were removed, or are gone for good, are listed, too: no table is laid on them.
    """
    with connect(nodes, timeout_ms) as client:
        told = map_of(client.call("placement_nodes"))
    found = [map_of(each) for each in list_of(told.get("nodes"))]
    if as_json:
        print_json(told)
    elif found:
        draw(_nodes_table(found))
    else:
        note("no nodes: the catalogue of tables names none yet")
    _note_waiting(told)


def _nodes_table(found: list[Row]) -> Table:
    made = columns("node", "uuid", "isolation group", "weight", "alive", kept=("uuid", "alive"), right=("weight",))
    for each in sorted(found, key=lambda each: (plain(each.get("node")), plain(each.get("uuid")))):
        # A node that is no member is named by its uuid.
        uuid = "" if each.get("member") is True else plain(each.get("uuid"))
        share = whole_of(each.get("weight"))
        add_row(
            made,
            plain(each.get("node")),
            uuid,
            plain(each.get("isolation_group")) or "-",
            TAKEN_OUT.get(share) or plain(share),
            "yes" if each.get("alive") is True else "no",
        )
    return made


# Commands of `table` about placement


@click.command()
@click.argument("name", metavar="[TABLE]", required=False)
@NODE
@PLAN
@JSON
def plan(name: str | None, nodes: tuple[Address, ...], timeout_ms: int, *, as_json: bool) -> None:
    """Write what is to be moved, and has not begun.

    Of TABLE, or of all tables; nothing is moved by this.  What is under way `status` tells.  Of range tables it says
    why, and which ranges are to be divided.
    """
    with connect(nodes, timeout_ms) as client:
        told = [map_of(each) for each in list_of(client.call("plan", name))]
    if as_json:
        print_json([*told])
    else:
        if moves := _moves(told):
            draw(_moves_table(moves))
        if splits := _splits(told):
            draw(splits)
        for each in told:
            click.echo(f"{plain(each.get('table'))}: {_sum(each)}")
    if not told:
        note("no tables")
    for each in told:
        if (warning := each.get("warning")) is not None:
            note(f"gossipkv: {plain(each.get('table'))}: {plain(warning)}")


def _moves(told: list[Row]) -> dict[tuple[str, str, str, str], list[int | None]]:
    """Return the sizes of moves by table, source, target and reason."""
    found: dict[tuple[str, str, str, str], list[int | None]] = defaultdict(list)
    for each in told:
        for move in map(map_of, list_of(each.get("moves"))):
            names = plain(each.get("table")), plain(move.get("from")), plain(move.get("to"))
            found[*names, plain(move.get("why") or "")].append(whole_of(move.get("bytes")))
    return found


def _moves_table(moves: dict[tuple[str, str, str, str], list[int | None]]) -> Table:
    reasons = ["why"] if any(why for *_, why in moves) else []
    made = columns("table", "from", "to", "moves", "size", *reasons, kept=("size",), right=("moves", "size"))
    for (*ends, why), sizes in sorted(moves.items()):
        known = [size for size in sizes if size is not None]
        add_row(made, *ends, f"{len(sizes):,}", size_text(sum(known)) if known else "-", *[why for _ in reasons])
    return made


def _splits(told: list[Row]) -> Table | None:
    """Return a table of the ranges to divide; None if there are none."""
    found = [(each, map_of(split)) for each in told for split in list_of(each.get("splits"))]
    made = columns("table", "range to divide", "why", right=("range to divide",))
    for each, split in found:
        add_row(made, plain(each.get("table")), plain(split.get("partition")), plain(split.get("why")))
    return made if found else None


def _sum(told: Row) -> str:
    count, divisions = whole_of(told.get("moves_count")) or 0, whole_of(told.get("splits_count")) or 0
    divided = f"; {divisions:,} division{'s' if divisions > 1 else ''}" if divisions else ""
    if resting := [whole_of(map_of(row).get("for_s")) or 0 for row in list_of(told.get("resting"))]:
        what = "replica was" if len(resting) == 1 else "replicas were"
        divided += f"; {len(resting):,} {what} moved lately and rest, the last for {max(resting)} s"
    if not count:
        return "nothing to move" + divided
    text = f"{count:,} move{'s' if count > 1 else ''}, {size_text(whole_of(told.get('bytes')) or 0)}"
    if unknown := whole_of(told.get("unknown")):
        text += f" and {unknown:,} of which nobody says how large they are"
    if count > (listed := len(list_of(told.get("moves")))):
        text += f"; the first {listed:,} are listed"
    return text + divided


@click.command()
@click.argument("name")
@click.argument("groups", type=click.IntRange(0, MAX_SHARDS))
@NODE
@DECISION
@JSON
def reshard(name: str, groups: int, nodes: tuple[Address, ...], timeout_ms: int, *, as_json: bool) -> None:
    """Put each shard on one group of nodes.

    The nodes are put into GROUPS groups, and shard s of the table NAME lies on nodes of group s modulo GROUPS alone.
    0: no groups.
    """
    with connect(nodes, timeout_ms) as client:
        told = decided(client, "reshard", name, groups, _options(timeout_ms))
    if as_json:
        print_json(told)
        return
    formed = [list_of(group) for group in list_of(told.get("groups"))]
    if formed:
        made = columns("group", "nodes", right=("group",))
        for number, group in enumerate(formed):
            add_row(made, str(number), " ".join(sorted(map(plain, group))))
        draw(made)
    else:
        click.echo(f"{name}: no groups: each shard may lie on any node")
    _note_unchanged(told)


# Helpers


def _options(timeout_ms: int, **told: Value) -> dict[str, Value]:
    return {name: value for name, value in told.items() if value is not None} | allowed(timeout_ms)


def _warn(gone: str) -> int:
    return unconfirmed(
        f"{gone} would count as gone for good, with its disk, and nobody would wait for what it has: records that no "
        "other node has would be lost, also if they were acknowledged.  If it is only down, start it again instead"
    )


def _place(told: Row, name: str) -> str:
    found = [map_of(each) for each in list_of(told.get("nodes"))]
    for each in sorted(found, key=lambda each: each.get("member") is not True):
        if name in {each.get("node"), each.get("uuid")}:
            group = plain(each.get("isolation_group"))
            return f"weight {plain(each.get('weight'))}" + (f", isolation group {group}" if group else "")
    return "put in"


def _tell(told: Row, line: str, *, as_json: bool) -> None:
    if as_json:
        print_json(told)
    else:
        click.echo(line)
        _note_unchanged(told)
    _note_waiting(told)


def _note_unchanged(told: Row) -> None:
    if told.get("changed") is False:
        note("nothing to do: it was so already")


def _note_waiting(told: Row) -> None:
    """Name the nodes that partitions wait for, and the remedy if such a node is lost."""
    if waits := list_of(told.get("waits_for")):
        note(
            f"gossipkv: {names_text(waits)} {'is' if len(waits) == 1 else 'are'} down, and partitions wait for what is "
            "there.  Start it again; of a node that is gone for good, `gossipkv node remove NODE --force` says what "
            "may be lost"
        )
