r"""The catalogue: the existing tables, and the nodes that hold them.

    name           [1, table id (16 bytes), kind, [[node's uuid, store id], ...], config id]
    `.` and name   the same, of a *hidden* table: a backup is being restored into it, and clients do not see it
    `\0` and uuid  [1, name, isolation group, weight]     weight 0: it is to hold nothing; nil: it is lost with its disk

The first half of a table id is random, the other half marks the request (`catalogue`). A dropped and re-created table
has another id. The acceptors are those at creation, and know their successors; the config id is that of the first map.
A table is named once it is whole; its register is ended before the name is removed, and a node that finds an ended one
finishes the drop. Nodes are named when they first hold a partition, and are removed by operators alone; a removed node
stays named, so that no later table uses it.

The meta is a random secret, from which the key of clients' tokens derives if there is no key ring.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from gossipkv.errors import ProtocolError
from gossipkv.register.configuration import UUID_BYTES, AcceptorId, members_of
from gossipkv.register.metadata.operations import MAX_RECORD_BYTES, Edits, OperationRefusal
from gossipkv.register.metadata.packing import is_whole, pack, unpack
from gossipkv.register.metadata.partitions import HASH, INVALID, NOT_FOUND, RANGE, TABLE_ID_BYTES
from gossipkv.settings.databases import HIDDEN, MAX_NAME_CHARACTERS, NAMES, is_table_name
from gossipkv.settings.tables import MAX_WEIGHT

if TYPE_CHECKING:
    from collections.abc import Container

    from gossipkv.register.metadata.operations import Functions, OperationView

FORMAT: Final = 1
SECRET_BYTES: Final = 32  # A key of a key ring has as many.

EXISTS: Final = "EXISTS"  # Another table has the name.
TOO_FEW: Final = "TOO_FEW"  # Tables would have fewer nodes than replicas.

NODE: Final = b"\0"  # Begins the key of a node; names of tables sort after all of them.
END_OF_NODES: Final = b"\1"
_REPLACED: Final = "nil or [uuid of the replaced node, is gone]"


class NamedTable(NamedTuple):
    """A table in the catalogue."""

    id: bytes
    kind: str
    acceptors: tuple[AcceptorId, ...]  # Sorted, without duplicates.
    config: int

    def encode(self) -> bytes:
        """Return the record."""
        return pack((FORMAT, *self))


def decode_named(record: bytes) -> NamedTable:
    """Read a record.

    Raises:
        ProtocolError: the record does not have the form of a table's.
    """
    match unpack(record, MAX_RECORD_BYTES):
        case (format_, bytes(id_), str(kind), tuple(acceptors), config) if (
            is_whole(format_) and format_ == FORMAT
            and len(id_) == TABLE_ID_BYTES and kind in {HASH, RANGE} and is_whole(config)
        ):  # fmt: skip
            return NamedTable(id_, kind, members_of(acceptors), config)
    raise ProtocolError("a table must be [1, id of 16 bytes, kind, acceptors, config id]", {"got": repr(record)[:80]})


class NamedNode(NamedTuple):
    """A node of tables in the catalogue."""

    name: str  # The name when the node was added.
    isolation_group: str  # Empty for a group of its own.
    weight: int | None  # 0: the node is to hold nothing. None: the node is lost for good.

    def encode(self) -> bytes:
        """Return the record."""
        return pack((FORMAT, *self))


def decode_node(record: bytes) -> NamedNode:
    """Read the record of a node.

    Raises:
        ProtocolError: the record does not have that form.
    """
    match unpack(record, MAX_RECORD_BYTES):
        case (format_, str(name), str(group), weight) if (
            is_whole(format_) and format_ == FORMAT and len(name) <= MAX_NAME_CHARACTERS
            and len(group) <= MAX_NAME_CHARACTERS and (weight is None or is_whole(weight, MAX_WEIGHT))
        ):  # fmt: skip
            return NamedNode(name, group, weight)
    raise ProtocolError("a node of tables must be [1, name, isolation group, weight]", {"got": repr(record)[:80]})


def _is_node(key: bytes) -> bool:
    return key.startswith(NODE) and len(key) == len(NODE) + UUID_BYTES


def _is_key(key: bytes) -> bool:
    return is_table_name(key.decode("ascii", "replace"))


def _add_table(view: OperationView, argument: object) -> Edits:
    match argument:
        case (bytes(key), *fields) if _is_key(key):
            pass
        case _:
            raise OperationRefusal(INVALID, f"add_table takes [name, table id, kind, acceptors, config id]; {NAMES}")
    record = pack((FORMAT, *fields))
    try:
        wanted = decode_named(record)
    except ProtocolError as error:
        raise OperationRefusal(INVALID, error.message) from error
    for taken in (key, _counterpart(key)):
        entry = view.get(taken)
        if entry is not None and decode_named(entry.record).id != wanted.id:
            raise OperationRefusal(EXISTS, f"the table {taken.decode()} already exists")
        if entry is not None:
            return Edits()
    return Edits({key: record})


def _counterpart(key: bytes) -> bytes:
    """Return the hidden name of a table, or the name of a hidden one: only one of the two is in the catalogue."""
    hidden = HIDDEN.encode()
    return key[len(hidden) :] if key.startswith(hidden) else hidden + key


def _show_table(view: OperationView, argument: object) -> Edits:
    match argument:
        case (bytes(key), bytes(id_)) if _is_key(key) and not key.startswith(HIDDEN.encode()):
            shown, hidden = view.get(key), view.get(_counterpart(key))
        case _:
            raise OperationRefusal(INVALID, "show_table takes [name, table id]")
    if shown is not None and decode_named(shown.record).id == id_:
        return Edits()
    if shown is not None or hidden is None or decode_named(hidden.record).id != id_:
        raise OperationRefusal(NOT_FOUND, f"the catalogue has no hidden table {key.decode()} of this id")
    return Edits({_counterpart(key): None, key: hidden.record})


def _remove_table(view: OperationView, argument: object) -> Edits:
    match argument:
        case (bytes(key), bytes(id_)):
            entry = view.get(key)
            return Edits({key: None} if entry is not None and decode_named(entry.record).id == id_ else {})
    raise OperationRefusal(INVALID, "remove_table takes [name, table id]")


def _set_node(view: OperationView, argument: object) -> Edits:
    replaced: bytes | None = None
    is_gone = False
    match argument:
        case (bytes(node), name, group, weight, None, stay):
            pass
        case (bytes(node), name, group, weight, (bytes(replaced), bool(is_gone)), stay):
            pass
        case _:
            raise OperationRefusal(
                INVALID, f"set_node takes [uuid, name, isolation group, weight, {_REPLACED}, nodes that stay]"
            )
    key, record = NODE + node, pack((FORMAT, name, group, weight))
    try:
        wanted = decode_node(record)
    except ProtocolError as error:
        raise OperationRefusal(INVALID, error.message) from error
    if not _is_node(key) or node == replaced or not wanted.weight or not is_whole(stay):
        raise OperationRefusal(INVALID, "a node must have a uuid of 16 bytes and a weight, and cannot replace itself")
    entry = view.get(key)
    puts: dict[bytes, bytes | None] = {} if entry is not None and entry.record == record else {key: record}
    if replaced is not None and (edits := _taken_out(view, replaced, is_gone=is_gone)):
        puts |= edits
        _check_enough(view, {node, replaced}, stay - 1)
    return Edits(puts)


def _remove_node(view: OperationView, argument: object) -> Edits:
    match argument:
        case (bytes(node), bool(is_gone), stay) if is_whole(stay):
            puts = _taken_out(view, node, is_gone=is_gone)
        case _:
            raise OperationRefusal(INVALID, "remove_node takes [uuid, is gone, nodes that stay]")
    if puts:
        _check_enough(view, {node}, stay)
    return Edits(puts)


def _taken_out(view: OperationView, node: bytes, *, is_gone: bool) -> dict[bytes, bytes | None]:
    """Return the edits that remove a node, if any: removing a lost node normally does not bring it back."""
    key = NODE + node
    entry = view.get(key) if _is_node(key) else None
    current = None if entry is None else decode_node(entry.record)
    if current is None or current.weight is None or (current.weight == 0 and not is_gone):
        return {}
    return {key: current._replace(weight=None if is_gone else 0).encode()}


def _check_enough(view: OperationView, but: Container[bytes], stay: int) -> None:
    """Raise OperationRefusal if fewer than `stay` nodes outside `but` have a weight.

    The operation reads all nodes, so a concurrent change of any node makes it a conflict.
    """
    left, key = 0, view.next_key(b"")
    while key is not None and key.startswith(NODE):
        entry = view.get(key)
        assert entry is not None, key
        left += bool(decode_node(entry.record).weight) and key[len(NODE) :] not in but
        key = view.next_key(key)
    if left < stay:
        raise OperationRefusal(TOO_FEW, f"{left} other nodes have a weight, and the tables need {stay}")


OPERATIONS: Final[Functions] = {
    ("add_table", 1): _add_table,
    ("remove_table", 1): _remove_table,
    ("show_table", 1): _show_table,
    ("set_node", 1): _set_node,
    ("remove_node", 1): _remove_node,
}
