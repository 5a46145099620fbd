"""The rights, and those that each method, command and path needs.

    read:PATTERN, write:PATTERN   records of the databases whose names fit the pattern
    operate                       tables, nodes, deciding nodes, the source, holds, backups
    see                           reports of nodes on themselves and on each other

No right includes another: `write:carts` does not allow reading, and `operate` does not include `see`. Methods between
nodes need `PEER`, which cannot be granted; a proven node may call every method, and is not checked here.

A request needs *one* of the rights in its line, for the database that it names, if it names one. A method without a
line needs `PEER`: a new method that is forgotten here is refused to clients, and a test fails.
"""

from __future__ import annotations

import re
from enum import Flag, auto
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from gossipkv.settings.databases import MAX_NAME_CHARACTERS

if TYPE_CHECKING:
    from collections.abc import Mapping

_PATTERN: Final = re.compile(rf"[-_a-zA-Z0-9*]{{1,{MAX_NAME_CHARACTERS}}}")


class Right(Flag):
    """One right, or several of which one is enough; NONE: no right is needed."""

    NONE = 0
    READ = auto()
    WRITE = auto()
    OPERATE = auto()
    SEE = auto()
    PEER = auto()


OF_A_DATABASE: Final = Right.READ | Right.WRITE
_GRANTED: Final = {"read": Right.READ, "write": Right.WRITE, "operate": Right.OPERATE, "see": Right.SEE}


class Grant(NamedTuple):
    """A granted right."""

    right: Right
    pattern: str = ""  # Matches names of databases; empty: the right concerns none.

    def __str__(self) -> str:
        """Return the form for people: `read:geo*`, `see`."""
        word = next(word for word, right in _GRANTED.items() if right == self.right)
        return f"{word}:{self.pattern}" if self.pattern else word

    def holds(self, database: str | None) -> bool:
        """Return True if the grant covers a request for this database, or for none."""
        return not self.pattern or (database is not None and fnmatchcase(database, self.pattern))


def parse_grant(text: str) -> Grant:
    """Parse a grant: `read:geo*`, `write:carts`, `operate`, `see`.

    Raises:
        ValueError: names the error, and the valid forms.
    """
    word, colon, pattern = text.partition(":")
    right = _GRANTED.get(word)
    if right is None:
        raise ValueError(f"{text!r}: unknown right; the rights are read:PATTERN, write:PATTERN, operate and see")
    if right not in OF_A_DATABASE:
        if colon:
            raise ValueError(f"{text!r}: {word} takes no pattern: write only {word}")
        return Grant(right)
    if not pattern:
        raise ValueError(f"{text!r}: {word} needs a pattern: {word}:NAME, {word}:PREFIX*, or {word}:* for all")
    if _PATTERN.fullmatch(pattern) is None:
        raise ValueError(f"{text!r}: a pattern must be the name of a database; * in it stands for any characters")
    return Grant(right, pattern)


def _lines(table: Mapping[Right, str]) -> Mapping[bytes, Right]:
    named = [(name.encode(), right) for right, names in table.items() for name in names.split()]
    lines = MappingProxyType(dict(named))
    assert len(lines) == len(named), "a name stands twice"
    return lines


# Methods of the wire. For READ and WRITE, the first parameter names the database or the table.
METHODS: Final = _lines({
    # A node proves its identity by `hello`; a `gossip` is checked by its seal, like a datagram.
    Right.NONE: "ping auth cancel hello gossip",
    Right.READ: "get get_many scan changes",
    Right.WRITE: "put delete put_many delete_many delete_range",
    Right.READ | Right.WRITE | Right.SEE: "partition_map",  # Clients find a key's owner by it.
    Right.SEE: "info databases status verdict members children entries metadata_status plan placement_nodes "
    "partitions quarantine_list",
    # `verify_table` changes nothing, but makes all hosts read a whole partition.
    Right.OPERATE: "refresh hold release backup restore backup_list backup_verify backup_expire "
    "create_table drop_table add_node remove_node replace_node set_weight reshard split join leave force_join "
    "verify_table quarantine_drop metadata_join metadata_leave metadata_replace metadata_force",
    Right.PEER: "report whose serves within register map_changes map_page metadata_transact metadata_look "
    "metadata_invite metadata_describe table_sizes table_kept "
    "table_divide table_write table_accepted table_delete_range table_get table_scan table_settled table_digest "
    "table_changes table_changed replica_tell replica_feed replica_load replica_report replica_digest "
    "resp",  # Checked by its command; without that check nobody is allowed.
})  # fmt: skip

# Operations: methods that change more than single records. Each is logged with its caller (`node.audit`).
OPERATIONS: Final = frozenset(
    {method for method, right in METHODS.items() if right == Right.OPERATE}
    - {b"backup_list", b"backup_verify", b"verify_table"}
    | {b"delete_range"}
)

# Commands of RESP. Without a selected database, `scan` and `dbsize` cover all that the user may read.
COMMANDS: Final = _lines({
    Right.NONE: "auth hello ping echo select client command reset quit multi exec discard watch unwatch",
    Right.READ: "get mget exists strlen getrange substr type ttl pttl expiretime pexpiretime scan dbsize",
    Right.WRITE: "set setex psetex mset expire pexpire expireat pexpireat persist del unlink getdel",
    Right.SEE: "info",
})  # fmt: skip

# HTTP paths that need no right: the node's health, and the form for a token.
HEALTH: Final = frozenset({b"/healthz", b"/livez", b"/readyz"})
LOGIN: Final = b"/login"

# Refusals are the same everywhere, and reveal neither users nor missing rights.
NOT_ANONYMOUS: Final = "not allowed without a token"
NOT_THIS_USER: Final = "not allowed to this user"
REFUSAL_PAUSE_S: Final = 1.0  # Pause between two log lines for one address.


def of_method(method: bytes, command: bytes = b"") -> Right:
    """Return the right that a request of the wire needs; `command` is the first word of a `resp`."""
    if method == b"resp":
        return COMMANDS.get(command.lower(), Right.PEER)
    return METHODS.get(method, Right.PEER)


def of_path(path: bytes, key: bytes | None, *, is_asset: bool = False, writes: bool = False) -> Right:
    """Return the right that an HTTP request needs, by its raw path, and the key behind the database, if any.

    `is_asset`: the path is a part of the page; `writes`: the request would write there. The gateway's own paths take
    precedence, as they do when answered.
    """
    if path in HEALTH or path == LOGIN:
        return Right.NONE
    is_own = path in {b"/metrics", b"/debug/vars"}
    of_key = Right.WRITE if writes else Right.READ
    return of_key if key and not is_own and not is_asset else Right.SEE
