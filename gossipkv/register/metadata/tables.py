"""The catalogue: which tables there are.

An entry's key is a table's name, which is as a database's may be; its record:

    [1, table id (16 bytes), kind, [[node's uuid, store id], ...], config id]

Of the id the first half is drawn at random; the other is of what was wanted under which operation's id (`catalogue`).

The acceptors are those of the table's register at its creation, who know which took their place; the config id is that
of its first map.  An id belongs to one table for ever, so a dropped and recreated table is another one.  There is no
meta, and no state: a table is named here once it is whole, and no more when it is gone (its register was ended first,
which whoever finds it finishes here).

Operations, their arguments, and how each knows that it is done:

    add_table 1     [name, table id, kind, [acceptor, ...], config id]    the name has that id
    remove_table 1  [name, table id]                                      the name has another id, or is not there
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from gossipkv.errors import ProtocolError
from gossipkv.register.configuration import AcceptorId, members_of
from gossipkv.register.metadata.operations import Edits, Refusal
from gossipkv.register.metadata.pages import MOST_RECORD_BYTES, is_whole, pack, unpack
from gossipkv.register.metadata.partitions import HASH, INVALID, RANGE, TABLE_ID_BYTES
from gossipkv.register.metadata.tree import Kind
from gossipkv.settings.databases import NAMES, is_name

if TYPE_CHECKING:
    from gossipkv.register.metadata.operations import Functions, View

FORMAT: Final = 1

EXISTS: Final = "EXISTS"  # Why an operation was refused: another table has the name.


class NamedTable(NamedTuple):
    """A table as the catalogue knows it."""

    id: bytes
    kind: str
    acceptors: tuple[AcceptorId, ...]  # Sorted, each once.
    config: int

    def encode(self) -> bytes:
        """The record."""
        return pack((FORMAT, *self))


def decode_named(record: bytes) -> NamedTable:
    """Read a record.

    Raises:
        ProtocolError: it does not have the form of a table's record.
    """
    match unpack(record, MOST_RECORD_BYTES):
        case (format_, bytes(id_), str(kind), tuple(acceptors), config) if (
            is_whole(format_) and format_ == FORMAT
            and len(id_) == TABLE_ID_BYTES and kind in {HASH, RANGE} and is_whole(config)
        ):  # fmt: skip
            return NamedTable(id_, kind, members_of(acceptors), config)
    raise ProtocolError("a table is [1, id of 16 bytes, kind, acceptors, config id]", {"got": repr(record)[:80]})


class _Rules:
    """The rules of the catalogue's entries."""

    def check_entry(self, key: bytes, record: bytes) -> None:
        if not _is_key(key):
            raise ProtocolError(f"no table is called {key[:40]!r}: {NAMES}")
        decode_named(record)

    def check_whole(self, entries: int, first: bytes | None) -> None:
        """Any number of tables is right."""


def _rules(meta: bytes) -> _Rules:
    if meta:
        raise ProtocolError("the catalogue has no meta")
    return _Rules()


CATALOGUE: Final = Kind("tables", _rules)


def _is_key(key: bytes) -> bool:
    return is_name(key.decode("ascii", "replace"))


def _add_table(view: View, argument: object) -> Edits:
    match argument:
        case (bytes(key), *fields) if _is_key(key):
            pass
        case _:
            raise Refusal(INVALID, f"add_table takes [name, table id, kind, acceptors, config id]; of names, {NAMES}")
    record = pack((FORMAT, *fields))
    try:
        wanted = decode_named(record)
    except ProtocolError as error:
        raise Refusal(INVALID, error.message) from error
    entry = view.get(key)
    if entry is None:
        return Edits({key: record})
    if decode_named(entry.record).id != wanted.id:
        raise Refusal(EXISTS, f"there is a table {key.decode()} already")
    return Edits()


def _remove_table(view: View, argument: object) -> Edits:
    match argument:
        case (bytes(key), bytes(id_)):
            entry = view.get(key)
            return Edits({key: None} if entry is not None and decode_named(entry.record).id == id_ else {})
    raise Refusal(INVALID, "remove_table takes [name, table id]")


OPERATIONS: Final[Functions] = {("add_table", 1): _add_table, ("remove_table", 1): _remove_table}
