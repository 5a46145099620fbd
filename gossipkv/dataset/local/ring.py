"""Whose ids the ring was made of last: one document, so that a restart need not wait until it knows who is there.

RING    kind RING, format 1: `claims`: [name of a node, its shard id] for each that had one
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gossipkv.errors import Corrupt

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gossipkv.storage.document import Body, Json

KIND: Final = "RING"


def to_body(claims: Mapping[str, str]) -> Body:
    """The document as JSON."""
    rows: list[Json] = [[name, shard_id] for name, shard_id in claims.items()]
    return {"claims": rows}


def from_body(body: Body, name: str) -> dict[str, str]:
    """The document from JSON; `name` is what errors call it.

    Raises:
        Corrupt: it is of another form.
    """
    rows = body.get("claims")
    if not isinstance(rows, list):
        raise Corrupt(name, 0, "'claims' should be a list")
    return dict(_row(row, name) for row in rows)


def _row(row: Json, name: str) -> tuple[str, str]:
    match row:
        case [str(node), str(shard_id)]:
            return node, shard_id
    raise Corrupt(name, 0, "'claims' has one that is no name with a shard id")
