r"""The catalogue: which tables there are, and which nodes they are laid on.

An entry's key is a table's name, which is as a database's may be; its record:

    [1, table id (16 bytes), kind, [[node's uuid, store id], ...], config id]

Or its key is `\0` and the uuid of a node of tables (M3's placement); its record:

    [1, name, isolation group, weight]      weight 0: it is to hold nothing; nil: it is gone for good, with its disk

Who holds a partition of a table at its creation is put in; nobody else, and nobody is taken out, but by the word of
people: a node that is dead keeps its place.  Who was taken out stays named, so that no later table is laid on it.

Of the id the first half is drawn at random; the other is of what was wanted under which operation's id (`catalogue`).

The acceptors are those of the table's register at its creation, who know which took their place; the config id is that
of its first map.  An id belongs to one table for ever, so a dropped and recreated table is another one.  There is no
meta, and no state: a table is named here once it is whole, and no more when it is gone (its register was ended first,
which whoever finds it finishes here).

Operations, their arguments, and how each knows that it is done:

    add_table 1     [name, table id, kind, [acceptor, ...], config id]    the name has that id
    remove_table 1  [name, table id]                                      the name has another id, or is not there
    set_node 1      [uuid, name, isolation group, weight, nil or [uuid whose place it takes, is gone], nodes that stay]
                                                                          it stands so, and the other is taken out
    remove_node 1   [uuid, is gone, nodes that stay]                      it is taken out

Of nodes that have a weight at least so many stay, or the operation is refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from gossipkv.errors import ProtocolError
from gossipkv.register.configuration import UUID_BYTES, AcceptorId, members_of
from gossipkv.register.metadata.operations import Edits, Refusal
from gossipkv.register.metadata.pages import MOST_RECORD_BYTES, is_whole, pack, unpack
from gossipkv.register.metadata.partitions import HASH, INVALID, RANGE, TABLE_ID_BYTES
from gossipkv.register.metadata.tree import Kind
from gossipkv.settings.databases import MAX_NAME_CHARACTERS, NAMES, is_name
from gossipkv.settings.tables import MOST_WEIGHT

if TYPE_CHECKING:
    from collections.abc import Container

    from gossipkv.register.metadata.operations import Functions, View

FORMAT: Final = 1

EXISTS: Final = "EXISTS"  # Why an operation was refused: another table has the name.
TOO_FEW: Final = "TOO_FEW"  # Likewise: tables would have fewer nodes than replicas.

NODE: Final = b"\0"  # Begins the key of a node; no table's name has it, and all of them are behind.
END_OF_NODES: Final = b"\1"
_REPLACED: Final = "nil or [uuid whose place it takes, is gone]"


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


class NamedNode(NamedTuple):
    """A node of tables as the catalogue knows it."""

    name: str  # As it was when it was put in.
    isolation_group: str  # Empty: one of its own.
    weight: int | None  # 0: it is to hold nothing; None: it is gone for good.

    def encode(self) -> bytes:
        """The record."""
        return pack((FORMAT, *self))


def decode_node(record: bytes) -> NamedNode:
    """Read the record of a node.

    Raises:
        ProtocolError: it does not have that form.
    """
    match unpack(record, MOST_RECORD_BYTES):
        case (format_, str(name), str(group), weight) if (
            is_whole(format_) and format_ == FORMAT and len(name) <= MAX_NAME_CHARACTERS
            and len(group) <= MAX_NAME_CHARACTERS and (weight is None or is_whole(weight, MOST_WEIGHT))
        ):  # fmt: skip
            return NamedNode(name, group, weight)
    raise ProtocolError("a node of tables is [1, name, isolation group, weight]", {"got": repr(record)[:80]})


class _Rules:
    """The rules of the catalogue's entries."""

    def check_entry(self, key: bytes, record: bytes) -> None:
        if _is_node(key):
            decode_node(record)
            return
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


def _is_node(key: bytes) -> bool:
    return key.startswith(NODE) and len(key) == len(NODE) + UUID_BYTES


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


def _set_node(view: View, argument: object) -> Edits:
    replaced: bytes | None = None
    is_gone = False
    match argument:
        case (bytes(node), name, group, weight, None, stay):
            pass
        case (bytes(node), name, group, weight, (bytes(replaced), bool(is_gone)), stay):
            pass
        case _:
            raise Refusal(
                INVALID, f"set_node takes [uuid, name, isolation group, weight, {_REPLACED}, nodes that stay]"
            )
    key, record = NODE + node, pack((FORMAT, name, group, weight))
    try:
        wanted = decode_node(record)
    except ProtocolError as error:
        raise Refusal(INVALID, error.message) from error
    if not _is_node(key) or node == replaced or not wanted.weight or not is_whole(stay):
        raise Refusal(INVALID, "a node has a uuid of 16 bytes, and a weight, and does not take its own place")
    entry = view.get(key)
    puts: dict[bytes, bytes | None] = {} if entry is not None and entry.record == record else {key: record}
    if replaced is not None and (edits := _taken_out(view, replaced, is_gone=is_gone)):
        puts |= edits
        _check_enough(view, {node, replaced}, stay - 1)
    return Edits(puts)


def _remove_node(view: View, argument: object) -> Edits:
    match argument:
        case (bytes(node), bool(is_gone), stay) if is_whole(stay):
            puts = _taken_out(view, node, is_gone=is_gone)
        case _:
            raise Refusal(INVALID, "remove_node takes [uuid, is gone, nodes that stay]")
    if puts:
        _check_enough(view, {node}, stay)
    return Edits(puts)


def _taken_out(view: View, node: bytes, *, is_gone: bool) -> dict[bytes, bytes | None]:
    """What takes a node out, if it is not: who is gone for good does not come back by being taken out gently."""
    key = NODE + node
    entry = view.get(key) if _is_node(key) else None
    stands = None if entry is None else decode_node(entry.record)
    if stands is None or stands.weight is None or (stands.weight == 0 and not is_gone):
        return {}
    return {key: stands._replace(weight=None if is_gone else 0).encode()}


def _check_enough(view: View, but: Container[bytes], stay: int) -> None:
    """Raise Refusal where too few others have a weight.

    All are looked at: of two changes at once the second is judged anew.
    """
    left, key = 0, view.next_key(b"")
    while key is not None and key.startswith(NODE):
        entry = view.get(key)
        assert entry is not None, key
        left += bool(decode_node(entry.record).weight) and key[len(NODE) :] not in but
        key = view.next_key(key)
    if left < stay:
        raise Refusal(TOO_FEW, f"{left} other nodes have a weight, and tables need {stay} of them")


OPERATIONS: Final[Functions] = {
    ("add_table", 1): _add_table,
    ("remove_table", 1): _remove_table,
    ("set_node", 1): _set_node,
    ("remove_node", 1): _remove_node,
}
