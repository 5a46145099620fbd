"""Tables that a node has forgotten: the store of another node, which was this one's before, set aside whole.

A store whose past is lost, in part or wholly, must not go on under the uuid that it had: others remember what that node
said, and it would say other things under the same numbers.  So who forgets its tables is another node from then on, and
what is left of them is nobody's: `tables` becomes `tables-forgotten-1`, or a higher number, by one rename.  That comes
before NODE has the new uuid.  After a crash between the two the old node is there, whose store is missing; it stays
closed, and can be forgotten again.  The other way round the new node would find the old one's store, and might take it
for its own.

Nobody removes it here: it may hold the only copy of something.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import PurePath

    from gossipkv.environment.seam import Files

TABLES: Final = "tables"
FORGOTTEN: Final = "tables-forgotten-"
RESTORING: Final = "tables-restoring"  # What a backup is put back in, before it is moved to its place.

_FORGOTTEN: Final = re.compile(re.escape(FORGOTTEN) + r"([1-9][0-9]{0,17})")


def is_forgotten(name: str) -> bool:
    """Whether something of that name in a data directory is a store that was set aside."""
    return _FORGOTTEN.fullmatch(name) is not None


def has_tables(files: Files, path: PurePath) -> bool:
    """Whether there is anything in the place of the store in the data directory `path`.  Raises OSError."""
    try:
        files.stat(path / TABLES)
    except FileNotFoundError:
        return False
    return True


def set_aside(files: Files, path: PurePath) -> PurePath | None:
    """Set the store in the data directory `path` aside, durably; where it is, or None: there was none.

    Raises:
        OSError: the system refused; it is where it was, or aside, whole.
    """
    if not has_tables(files, path):
        return None
    known = [_FORGOTTEN.fullmatch(entry.name) for entry in files.list_directory(path)]
    number = 1 + max((int(match[1]) for match in known if match is not None), default=0)
    aside = path / f"{FORGOTTEN}{number}"
    files.rename(path / TABLES, aside)
    files.sync_directory(path)
    return aside
