"""What there is to be allowed, and what each method, command and path needs of it.

    read:PATTERN, write:PATTERN   records of the databases whose names fit the pattern
    operate                       tables, nodes, who decides, the source, holds, backups
    see                           what nodes tell of themselves and of each other

None of them is in another: who may write `carts` may not read it, and who operates does not see unless both are given.
Methods between nodes need `PEER`, which nobody can be given: whoever has proved to be a node may call every method, and
is not looked up here.

A request needs *one* of the rights in its line, of the database that it names, if it names one.  What has no line needs
`PEER`: a method that is added and forgotten here is refused to clients, and a test fails.

Rejected: rights by prefix of a key (a batch or a scan would be judged key by key), and a denial beside the grants (then
their order would count).
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
    """One right, or several of which one is enough; none: nothing is needed."""

    NONE = 0
    READ = auto()
    WRITE = auto()
    OPERATE = auto()
    SEE = auto()
    PEER = auto()


OF_A_DATABASE: Final = Right.READ | Right.WRITE
_GRANTED: Final = {"read": Right.READ, "write": Right.WRITE, "operate": Right.OPERATE, "see": Right.SEE}


class Grant(NamedTuple):
    """A right that somebody was given."""

    right: Right
    pattern: str = ""  # Of names of databases; empty: it is about none.

    def __str__(self) -> str:
        """Return how people write it: `read:geo*`, `see`."""
        word = next(word for word, right in _GRANTED.items() if right == self.right)
        return f"{word}:{self.pattern}" if self.pattern else word

    def holds(self, database: str | None) -> bool:
        """Whether it holds for what names this database, or names none."""
        return not self.pattern or (database is not None and fnmatchcase(database, self.pattern))


def parse_grant(text: str) -> Grant:
    """`read:geo*`, `write:carts`, `operate`, `see`.

    Raises:
        ValueError: what is wrong, and what there is.
    """
    word, colon, pattern = text.partition(":")
    right = _GRANTED.get(word)
    if right is None:
        raise ValueError(f"{text!r}: no such right; there are read:PATTERN, write:PATTERN, operate and see")
    if right not in OF_A_DATABASE:
        if colon:
            raise ValueError(f"{text!r}: {word} is about no database: write {word} alone")
        return Grant(right)
    if not pattern:
        raise ValueError(f"{text!r}: of which databases? {word}:NAME, {word}:PREFIX*, or {word}:* for all")
    if _PATTERN.fullmatch(pattern) is None:
        raise ValueError(f"{text!r}: a pattern is the name of a database, with * for any characters, or none")
    return Grant(right, pattern)


def _lines(table: Mapping[Right, str]) -> Mapping[bytes, Right]:
    named = [(name.encode(), right) for right, names in table.items() for name in names.split()]
    lines = MappingProxyType(dict(named))
    assert len(lines) == len(named), "a name stands twice"
    return lines


# Of the wire.  The first parameter names the database or the table, where it is READ or WRITE that is needed.
METHODS: Final = _lines({
    # `hello` is how a node says who it is, and proves it; a `gossip` is judged by its seal, as a datagram is.
    Right.NONE: "ping auth hello gossip",
    Right.READ: "get get_many scan",
    Right.WRITE: "put delete put_many",
    Right.READ | Right.WRITE | Right.SEE: "partition_map",  # By which clients find the owner of a key.
    Right.SEE: "info databases status verdict members children entries metadata_status plan placement_nodes "
    "partitions quarantine_list",
    # `verify_table` changes nothing, but has all hosts read all of a partition.
    Right.OPERATE: "refresh hold release backup create_table drop_table add_node remove_node replace_node set_weight "
    "reshard split join leave force_join verify_table quarantine_drop metadata_join metadata_leave metadata_replace "
    "metadata_force",
    Right.PEER: "report whose serves within register metadata_hold metadata_pages metadata_transact metadata_outcome "
    "metadata_known metadata_head metadata_invite metadata_describe metadata_discover table_sizes table_kept "
    "table_divide table_write table_accepted table_get table_scan table_settled table_digest replica_tell "
    "replica_feed replica_load replica_report replica_digest "
    "resp",  # By the command in it; who forgets to look there lets nobody through.
})  # fmt: skip

# Of RESP.  `scan` and `dbsize` without a selected database are about all those that the user may read.
COMMANDS: Final = _lines({
    Right.NONE: "auth hello ping echo select client command reset quit",
    Right.READ: "get mget exists strlen getrange substr type ttl pttl scan dbsize",
    Right.WRITE: "set mset del unlink",
    Right.SEE: "info",
})  # fmt: skip

# Of HTTP, what needs none: how the node is, and the form in which a token is shown.
HEALTH: Final = frozenset({b"/healthz", b"/livez", b"/readyz"})
LOGIN: Final = b"/login"

# What a refusal says, whoever says it: neither who there is nor what is lacking.
NOT_ANONYMOUS: Final = "not allowed to whoever has shown no token"
NOT_THIS_USER: Final = "not allowed to this user"
REFUSAL_PAUSE_S: Final = 1.0  # Between two lines of one address in the log.


def of_method(method: bytes, command: bytes = b"") -> Right:
    """What a request of the wire needs; `command` is the first word of a `resp`."""
    if method == b"resp":
        return COMMANDS.get(command.lower(), Right.PEER)
    return METHODS.get(method, Right.PEER)


def of_path(path: bytes, key: bytes | None, *, is_asset: bool = False) -> Right:
    """What a request of HTTP needs: of its path as it was sent, and the key that stands behind the database, if any.

    `is_asset`: what is there is a part of the page.  The gateway's own paths come first, as they do where they are
    answered.
    """
    if path in HEALTH or path == LOGIN:
        return Right.NONE
    is_own = path in {b"/metrics", b"/debug/vars"}
    return Right.READ if key and not is_own and not is_asset else Right.SEE
