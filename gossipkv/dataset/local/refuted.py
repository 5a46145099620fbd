"""Which partition functions strays have refuted: a document by database, so that no later start relies on them.

refuted/<database>    kind REFUTED, format 1: `database`; `refuted`: [digest, [function, ...]] for each digest of a
source, in the order in which they were noted
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gossipkv.errors import Corrupt
from gossipkv.storage.document import text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gossipkv.storage.document import Body, Json

KIND: Final = "REFUTED"

Refuted = dict[str, tuple[str, ...]]  # By digest, each sorted.


def to_body(database: str, refuted: Mapping[str, tuple[str, ...]]) -> Body:
    """The document as JSON."""
    rows: list[Json] = [[digest, list(functions)] for digest, functions in refuted.items()]
    return {"database": database, "refuted": rows}


def from_body(database: str, body: Body, name: str) -> Refuted:
    """The document from JSON; `name` is what errors call it.

    Raises:
        Corrupt: it is of another database, or of another form.
    """
    if text(body, "database", name) != database:
        raise Corrupt(name, 0, f"the document is not about {database}")
    rows = body.get("refuted")
    if not isinstance(rows, list):
        raise Corrupt(name, 0, "'refuted' should be a list")
    return dict(_row(row, name) for row in rows)


def _row(row: Json, name: str) -> tuple[str, tuple[str, ...]]:
    match row:
        case [str(digest), [*told]]:
            functions = tuple(function for function in told if isinstance(function, str))
            if len(functions) == len(told):
                return digest, functions
    raise Corrupt(name, 0, "'refuted' has one that is no digest with names of functions")
