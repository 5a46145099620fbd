"""What `status` draws of databases that several nodes have: who has what."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rich.text import Text

from gossipkv.cli.screen import add_row, columns
from gossipkv.status.reading import count_of, list_of, map_of, maps_of
from gossipkv.status.sentences import runs_of
from gossipkv.status.words import plain

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.table import Table

    from gossipkv.wire.rpc import Value

STYLES: Final = {"alive": "green", "suspect": "yellow", "dead": "bold red"}


def table(told: Mapping[str, Value]) -> Table | None:
    """Draw who has what of each version; None: no node is known but the one that was asked."""
    numbers = "ready", "building"
    made = columns("database", "version", "node", "member", *numbers, "partitions", kept=("member",), right=numbers)
    for database, entry in sorted(told.items()):
        if len(list_of(map_of(entry).get("nodes"))) > 1:
            _add_database(made, database, maps_of(map_of(entry).get("versions")))
    return made if made.row_count else None


def _add_database(made: Table, database: str, versions: Mapping[str, Mapping[str, Value]]) -> None:
    for name, version in sorted(versions.items()):
        shown = name
        for owner in map(map_of, list_of(version.get("owners"))):
            state = plain(owner.get("state"))
            ready, building = map_of(owner.get("ready")), map_of(owner.get("building"))
            add_row(
                made,
                database,
                shown,
                plain(owner.get("node")),
                Text(state, STYLES.get(state, "")),
                f"{count_of(ready):,}",
                f"{count_of(building):,}" if count_of(building) else "",
                runs_of(ready, version) or runs_of(building, version),
            )
            database = shown = ""  # Said once.
        if more := version.get("owners_not_named"):
            add_row(made, "", "", f"and {plain(more)} more", *[""] * 4)
