"""What `status` says of databases that several nodes have: who has what, and what is wrong with that."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from rich.text import Text

from gossipkv.cli.output import plain
from gossipkv.cli.screen import add_row, columns

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from rich.table import Table

    from gossipkv.wire.rpc import Value

FEW_RUNS: Final = 8  # Of partitions in a line.
DIGEST_DIGITS: Final = 8  # Of a digest in a line: enough to tell two of them apart.
STYLES: Final = {"alive": "green", "suspect": "yellow", "dead": "bold red"}


class Line(NamedTuple):
    """Something to be told below the tables."""

    text: str
    is_trouble: bool  # Else it only deserves attention.


def unowned(told: Mapping[str, Value]) -> bool:
    """Whether a partition of an active version has no live owner."""
    for entry in told.values():
        active = _maps(_map(entry).get("versions")).get(str(_map(entry).get("active")))
        if active is not None and _count(active.get("missing")):
            return True
    return False


def table(told: Mapping[str, Value]) -> Table | None:
    """Draw who has what of each version; None: no node is known but the one that was asked."""
    numbers = "ready", "building"
    made = columns("database", "version", "node", "member", *numbers, "partitions", kept=("member",), right=numbers)
    for database, entry in sorted(told.items()):
        if len(_list(_map(entry).get("nodes"))) > 1:
            _add_database(made, database, _maps(_map(entry).get("versions")))
    return made if made.row_count else None


def _add_database(made: Table, database: str, versions: Mapping[str, Mapping[str, Value]]) -> None:
    for name, version in sorted(versions.items()):
        shown = name
        for owner in map(_map, _list(version.get("owners"))):
            state, ready, building = plain(owner.get("state")), _map(owner.get("ready")), _map(owner.get("building"))
            add_row(
                made,
                database,
                shown,
                plain(owner.get("node")),
                Text(state, STYLES.get(state, "")),
                f"{_count(ready):,}",
                f"{_count(building):,}" if _count(building) else "",
                _few(ready) or _few(building),
            )
            database = shown = ""  # Said once.
        if more := version.get("owners_not_named"):
            add_row(made, "", "", f"and {plain(more)} more", *[""] * 4)


def lines(told: Mapping[str, Value]) -> Iterator[Line]:
    """Tell what an operator has to see at once."""
    for database, entry in sorted(told.items()):
        is_shared = len(_list(_map(entry).get("nodes"))) > 1
        if is_shared and (differing := _differing(_map(entry))):
            yield Line(f"{database}: {differing}", is_trouble=False)
        for name, version in sorted(_maps(_map(entry).get("versions")).items()):
            for line in _of_version(version, _map(entry), is_active=name == _map(entry).get("active")):
                if is_shared or line.is_trouble:
                    yield line._replace(text=f"{database} {name}: {line.text}")


def _of_version(version: Mapping[str, Value], entry: Mapping[str, Value], *, is_active: bool) -> Iterator[Line]:
    missing, few = _map(version.get("missing")), _map(version.get("under_replicated"))
    if is_active and _count(missing):
        yield Line(f"{_counted(missing, version)} without a live owner: {_few(missing)}", is_trouble=True)
    if is_active and _count(few) > _count(missing):
        fewer = f"on fewer than {plain(entry.get('replication'))} live nodes"
        yield Line(f"{_counted(few, version)} {fewer}: {_few(few)}", is_trouble=False)
    for text in (*_conflicts(version), *_disputes(version)):
        yield Line(text, is_trouble=True)
    if version.get("unpublished") is True:
        yield Line(
            "the tree has no room for what this node has of it, so others do not ask it for that", is_trouble=True
        )
    if version.get("waits_until") is not None:
        yield Line(f"waits until {plain(version['waits_until'])}", is_trouble=False)
    if kept_by := _list(version.get("kept_by")):
        yield Line(f"kept for {_names(kept_by)}, which may still need it", is_trouble=False)


def _conflicts(version: Mapping[str, Value]) -> Iterator[str]:
    contents = [_map(each) for each in _list(version.get("conflicts"))]
    if contents:
        told = (
            f"{plain(each.get('partition_count'))} partitions by {plain(each.get('function'))}"
            f"{', regrouped' if each.get('regrouped') is True else ''}, "
            f"digest {plain(each.get('digest'))[:DIGEST_DIGITS]}, on {_names(_list(each.get('nodes')))}"
            for each in contents
        )
        yield f"different contents by one name: {'; '.join(told)}"


def _disputes(version: Mapping[str, Value]) -> Iterator[str]:
    for dispute in map(_map, _list(version.get("disputes"))):
        nodes, partitions = _names(_list(dispute.get("nodes"))), _map(dispute.get("partitions"))
        yield f"the files of {nodes} differ for {_counted(partitions, version)}: {_few(partitions)}"


def _differing(entry: Mapping[str, Value]) -> str | None:
    """Which version is active where, if it is not the same on all nodes that live."""
    places: dict[str, list[Value]] = {}
    for node in map(_map, _list(entry.get("nodes"))):
        if node.get("state") != "dead":
            active = "" if node.get("active") is None else plain(node["active"])
            places.setdefault(active, []).append(node.get("node"))
    told = [f"{version or 'none'} on {_names(nodes)}" for version, nodes in sorted(places.items(), reverse=True)]
    return f"active are {', '.join(told)}" if len(told) > 1 else None


def _counted(some: Mapping[str, Value], version: Mapping[str, Value]) -> str:
    return f"{_count(some):,} of {_whole(version.get('partition_count')):,} partitions"


def _few(some: Mapping[str, Value]) -> str:
    """The first runs of a set of partitions."""
    runs = plain(some.get("runs")).split(",") if some.get("runs") else []
    return ",".join([*runs[:FEW_RUNS], *(["..."] if len(runs) > FEW_RUNS else [])])


def _names(nodes: list[Value]) -> str:
    *first, last = map(plain, nodes)
    return f"{', '.join(first)} and {last}" if first else last


def _count(some: Value | Mapping[str, Value]) -> int:
    return _whole(some.get("count")) if isinstance(some, dict) else 0


def _whole(value: Value) -> int:
    return value if isinstance(value, int) else 0


def _list(value: Value) -> list[Value]:
    return value if isinstance(value, list) else []


def _map(value: Value) -> dict[str, Value]:
    return value if isinstance(value, dict) else {}


def _maps(value: Value) -> dict[str, dict[str, Value]]:
    return {name: _map(each) for name, each in _map(value).items()}
