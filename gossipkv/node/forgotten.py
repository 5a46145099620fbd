"""Forgotten tables: the store of the node that this node was before, set aside whole.

A store that has lost any of its past must not go on under its old uuid. Others remember what that node said, and it
would say other things under the same numbers. So a node that forgets its tables becomes another node, and the store
belongs to nobody: `tables` becomes `tables-forgotten-1`, or a higher number, by one rename. The rename comes before
NODE has the new uuid. After a crash between the two the old node is there without its store; it stays closed, and can
forget its tables again. In the other order the new node could take the old node's store for its own.

The store is never removed here: it may hold the only copy of some records.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import PurePath

    from gossipkv.environment.seam import Files

TABLES: Final = "tables"
FORGOTTEN: Final = "tables-forgotten-"

_FORGOTTEN: Final = re.compile(re.escape(FORGOTTEN) + r"([1-9][0-9]{0,17})")


def is_forgotten(name: str) -> bool:
    """Return True if that name in a data directory is a store that was set aside."""
    return _FORGOTTEN.fullmatch(name) is not None


def has_tables(files: Files, path: PurePath) -> bool:
    """Return True if the data directory `path` has a store of tables. Raises OSError."""
    try:
        files.stat(path / TABLES)
    except FileNotFoundError:
        return False
    return True


def set_aside(files: Files, path: PurePath) -> PurePath | None:
    """Set the store in the data directory `path` aside, durably; return its new place, or None if there was none.

    Raises:
        OSError: the system refused; the store is whole, in its old place or in the new one.
    """
    if not has_tables(files, path):
        return None
    matches = [_FORGOTTEN.fullmatch(entry.name) for entry in files.list_directory(path)]
    number = 1 + max((int(match[1]) for match in matches if match is not None), default=0)
    aside = path / f"{FORGOTTEN}{number}"
    files.rename(path / TABLES, aside)
    files.sync_directory(path)
    return aside
