"""`databases` and `rollback`: the version of a dataset that clients get, even if there are newer ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from gossipkv.cli import CommandGroup
from gossipkv.cli.help import Command
from gossipkv.cli.options import JSON, AskedNodes, ask_map, ask_within, kinds_of
from gossipkv.cli.output import tell
from gossipkv.errors import BadRequest, UnknownVersion
from gossipkv.status.reports import status_report
from gossipkv.status.words import plain

if TYPE_CHECKING:
    from gossipkv.client.blocking import Client

LOCAL: Final = click.option("--local", is_flag=True, help="Change only the asked node, not the cluster.")
NODES: Final = ask_within("10s", "one request")


@click.group(cls=CommandGroup)
def databases() -> None:
    """Hold or release a version of a dataset."""


@databases.command()
@click.argument("name", metavar="NAME")
@click.argument("version", metavar="VERSION")
@LOCAL
@NODES
@JSON
def hold(name: str, version: str, nodes: AskedNodes, *, local: bool, as_json: bool) -> None:
    """Make all nodes serve VERSION of the dataset NAME until `databases release`.

    The order survives restarts, and nodes that join later follow it. At a node whose settings file has `hold`, that
    setting takes precedence. `gossipkv status --wait` returns when VERSION serves.
    """
    with nodes.connect() as client:
        _order(client, "hold", name, version, local=local, as_json=as_json)


@databases.command()
@click.argument("name", metavar="NAME")
@LOCAL
@NODES
@JSON
def release(name: str, nodes: AskedNodes, *, local: bool, as_json: bool) -> None:
    """Release the held version of the dataset NAME: the newest version serves again.

    With --local, the asked node follows the other nodes again.
    """
    with nodes.connect() as client:
        _order(client, "release", name, local=local, as_json=as_json)


@click.command(cls=Command)
@click.argument("name", metavar="DB")
@click.argument("version", metavar="[VERSION]", required=False)
@NODES
@JSON
def rollback(name: str, version: str | None, nodes: AskedNodes, *, as_json: bool) -> None:
    """Return to VERSION of DB on all nodes, and hold it until `gossipkv databases release DB`.

    Without VERSION, return to the newest version before the active one that the node knows. Before you release, remove
    the bad version from the source, or publish a newer version.
    """
    with nodes.connect() as client:
        if kinds_of(client).get(name, "dataset") != "dataset":
            raise BadRequest(
                f"{name} is a table, which has no versions to return to; `gossipkv restore` brings back the records "
                "of a backup"
            )
        _order(client, "hold", name, version or _before(client, name), local=False, as_json=as_json)


def _before(client: Client, name: str) -> str:
    """Return the newest version before the active one.  Raises UnknownVersion if there is none."""
    entry = status_report(client.status(name)).datasets.get(name)
    active = None if entry is None else entry.active
    seen = ask_map(client, "refresh", name).get(name)
    versions = [*(entry.versions if entry is not None else ()), *(seen if isinstance(seen, list) else ())]
    older = [version for version in versions if isinstance(version, str) and active is not None and version < active]
    if not older:
        raise UnknownVersion(f"no version of {name} before {plain(active)} is known; name the version to return to")
    return max(older)


def _order(client: Client, method: str, name: str, *version: str, local: bool, as_json: bool) -> None:
    answer = ask_map(client, method, name, *version, {"local": local})
    where = "this node" if local else "all nodes"
    held, before = answer.get("hold"), answer.get("before")
    was = "" if before is None else f"; {plain(before)} was held before"
    now = f"{where} hold{'s' if local else ''} {plain(held)} until it is released" if held else "no version is held"
    tell(answer, f"{name}: {now}{was}", as_json=as_json)
