"""A table's map: its partitions, and the nodes that hold each.

An entry's key is the partition's first key. In a hash table, that is the shard's number in 4 bytes, big-endian. In a
range table, it is the first user's key, `b""` for the lowest, so ranges always tile the key space. `TableMeta.encode`
shows the meta, `encode_partition` a record, and `OPERATIONS` the operations.

A range table has 0 shards. Partitions and assignments have ids of 64 random bits, which are never used again. With
groups, shard s lies only on nodes of group s modulo the number of groups. Shards are never re-cut, since a key's shard
is its hash modulo their number.

Every record that is made or received keeps the invariants of a partition (`placement/partition.py`).
"""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

from gossipkv.errors import ProtocolError
from gossipkv.keyspace.time_key import TimeKey, time_key_of
from gossipkv.placement.partition import (
    MAX_ENDS,
    MAX_FORMER,
    MAX_REPLICATION,
    MAX_TO_MOVE,
    Assignment,
    AssignmentState,
    ForcedEnd,
    Partition,
    fault_of,
    least_of_group,
)
from gossipkv.register.configuration import UUID_BYTES
from gossipkv.register.metadata.known import ENTRY, META, stamped
from gossipkv.register.metadata.operations import (
    MAX_KEY_BYTES,
    MAX_META_BYTES,
    MAX_RECORD_BYTES,
    Edits,
    OperationRefusal,
)
from gossipkv.register.metadata.packing import is_whole, pack, unpack
from gossipkv.settings.databases import is_name
from gossipkv.settings.tables import MAX_TTL_MS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from gossipkv.register.edits import Edit
    from gossipkv.register.metadata.known import MapView
    from gossipkv.register.metadata.operations import Functions, OperationView

FORMAT: Final = 1
HASH: Final = "hash"
RANGE: Final = "range"
MURMUR3: Final = "murmur3"
SHA1: Final = "sha1"
PARTITIONERS: Final = (MURMUR3, SHA1)

TABLE_ID_BYTES: Final = 16
SHARD_BYTES: Final = 4
MAX_DECODED: Final = 4096  # Partitions that stay decoded; each takes about 1 KB.
MAX_SHARDS: Final = 1 << 17  # A map has room for this many with three replicas.
MAX_CHILDREN: Final = 64

# Codes of refusals.
INVALID: Final = "INVALID"  # The argument is malformed, or would break an invariant.
NOT_FOUND: Final = "NOT_FOUND"  # The partition or the assignment does not exist.


# Assignments in these states may have records of their own.
_ORIGINATED: Final = frozenset({AssignmentState.AVAILABLE, AssignmentState.LEAVING})
_STATES: Final = {state.value: state for state in AssignmentState}  # Looked up for each decoded assignment.


class TableMeta(NamedTuple):
    """A table as described by the meta of its map, with the rules of the map's entries."""

    id: bytes
    name: str
    kind: str
    replication: int
    shards: int  # 0 for a range table.
    partitioner: str = MURMUR3  # A key's shard is the remainder of this hash.
    groups: tuple[tuple[bytes, ...], ...] = ()  # Uuids of nodes: shard s lies in group s modulo the number of groups.
    time_key: TimeKey | None = None  # Position of the time in each key.
    smears: bool = False  # Other nodes may buffer puts, and forward them later.
    ttl_ms: int = 0  # Default lifetime of a record; 0: records never expire.
    retention_ms: int = 0  # Age of times from which whole ranges are retired; 0: they stay.

    def encode(self) -> bytes:
        """Return the meta.

        [1, table id (16 bytes), name, kind, replication, shards,
         partitioner, [concatenated uuids of a group's nodes, ...],
         [offset, width, unit] of its time key, or nil; True if it smears, ttl_ms, retention_ms]
        """
        groups = [b"".join(group) for group in self.groups]
        return pack((FORMAT, *self[:6], groups, *self[7:]))

    def is_over(self, bounds: tuple[bytes, bytes | None], now_ms: int) -> bool:
        """Return True if all times of a range, from one key to before another, are older than the retention."""
        if self.time_key is None or not self.retention_ms:
            return False
        return self.time_key.is_over(*bounds, now_ms - self.retention_ms)

    def check_entry(self, key: bytes, record: bytes) -> None:
        """Raise ProtocolError if a record may not stand at that key."""
        if self.kind == HASH and (len(key) != SHARD_BYTES or int.from_bytes(key, "big") >= self.shards):
            raise ProtocolError(f"a table of {self.shards} shards has no shard at {key[:40]!r}")
        if fault := fault_of(decode_partition(record), self.replication):
            raise ProtocolError(f"the partition at {key[:40]!r}: {fault}")

    def check_whole(self, entries: int, first: bytes | None) -> None:
        """Raise ProtocolError if the partitions do not tile the key space."""
        if self.kind == RANGE and first != b"":
            raise ProtocolError(f"the first range begins at {first!r}, not at the lowest key")
        if self.kind == HASH and entries != self.shards:
            raise ProtocolError(f"the map has {entries} partitions, and the table has {self.shards} shards")


@lru_cache(maxsize=MAX_DECODED)  # Each operation and each look at a map reads its table.
def decode_table(meta: bytes) -> TableMeta:
    """Read the meta of a map.

    Raises:
        ProtocolError: the meta describes no table.
    """
    match unpack(meta, MAX_META_BYTES):
        case (
            format_, bytes(id_), str(name), str(kind), replication, shards, partitioner, tuple(groups), time_key,
            bool(smears), ttl_ms, retention_ms,
        ) if (
            is_whole(format_) and format_ == FORMAT and len(id_) == TABLE_ID_BYTES and is_name(name)
            and is_whole(replication, MAX_REPLICATION) and replication > 0
            and is_whole(shards, MAX_SHARDS) and kind == (HASH if shards else RANGE)
            and partitioner in (PARTITIONERS if shards else (MURMUR3,))
            and is_whole(ttl_ms, MAX_TTL_MS) and is_whole(retention_ms, MAX_TTL_MS if time_key else 0)
        ):  # fmt: skip
            assert isinstance(partitioner, str)
            table = TableMeta(id_, name, kind, replication, shards, partitioner, _groups_of(groups))
            table = table if (time_key, smears) == (None, False) else _timed(table, time_key, smears=smears)
            return table._replace(ttl_ms=ttl_ms, retention_ms=retention_ms)
    raise ProtocolError(
        "a table must be [1, id of 16 bytes, name, kind, replication, shards, partitioner, groups, time key or nil, "
        "smears, ttl_ms, retention_ms (0 without a time key)]",
        {"got": repr(meta)[:80]},
    )


def _timed(table: TableMeta, time_key: object, *, smears: bool) -> TableMeta:
    """Return a table with its time key. Raises ProtocolError: the table can have none, or not this one."""
    if table.kind != RANGE or table.groups or not isinstance(time_key, tuple):
        raise ProtocolError("only a range table can have a time key, and smear")
    return table._replace(time_key=time_key_of([*time_key]), smears=smears)


def _groups_of(value: object) -> tuple[tuple[bytes, ...], ...]:
    groups = tuple(map(_uuids_of, value)) if isinstance(value, tuple) else ((),)
    nodes = [node for group in groups for node in group]
    if not all(groups) or len(nodes) != len({*nodes}):
        raise ProtocolError("a group must be one or more uuids of 16 bytes, and a uuid must be in only one group")
    return groups


def _uuids_of(value: object) -> tuple[bytes, ...]:
    if not isinstance(value, bytes) or len(value) % UUID_BYTES:
        return ()
    return tuple(value[at : at + UUID_BYTES] for at in range(0, len(value), UUID_BYTES))


def encode_partition(partition: Partition) -> bytes:
    """Return a partition's record.

    [1, partition id, [[assignment id, node's uuid (16 bytes), slot, state], ...],    ordered by slots and ids
     [former assignment's id, ...], [[assignment id, end or nil], ...],
     assignment id of the copy from which it was re-created, or 0]
    """
    rows = [
        (assignment.id, assignment.node, assignment.slot, assignment.state.value)
        for assignment in partition.assignments
    ]
    return pack((FORMAT, partition.id, rows, *partition[2:]))


@lru_cache(maxsize=MAX_DECODED)  # Several controllers and the router read each new map.
def decode_partition(record: bytes) -> Partition:
    """Read a partition's record.

    Raises:
        ProtocolError: the record does not have that form.
    """
    match unpack(record, MAX_RECORD_BYTES):
        case (format_, id_, tuple(rows), tuple(former), tuple(ends), kept) if (
            is_whole(format_) and format_ == FORMAT and is_whole(id_) and all(map(is_whole, former))
            and len(ends) <= MAX_ENDS and is_whole(kept)
        ):  # fmt: skip
            return Partition(id_, tuple(map(_assignment_of, rows)), former, tuple(map(_end_of, ends)), kept)
    raise ProtocolError(
        "a partition must be [1, id, [assignment, ...], [former, ...], [end, ...], kept]", {"got": repr(record)[:80]}
    )


def shard_key(number: int) -> bytes:
    """Return the key of a hash table's shard."""
    return number.to_bytes(SHARD_BYTES, "big")


def range_of(view: MapView, key: bytes) -> tuple[bytes, Partition]:
    """Return the first key of the range that has a key, and the range, by the map of a range table."""
    entry = view.floor(key)
    assert entry is not None, key  # The first range begins at the lowest key.
    return entry.key, decode_partition(entry.record)


def range_before(view: MapView, first: bytes) -> tuple[bytes, Partition] | None:
    """Return the first key of the range before the one that begins at `first`, and the range; None: there is none."""
    entry = view.before(first)
    return None if entry is None else (entry.key, decode_partition(entry.record))


def first_edits(table: TableMeta, partitions: Mapping[bytes, Partition], config: int) -> list[Edit]:
    """Return the edits that make the first map of a table, in order.

    Raises:
        ProtocolError: a partition breaks an invariant, or the partitions do not tile the key space.
    """
    decode_table(table.encode())
    edits: list[Edit] = []
    for key, partition in sorted(partitions.items()):
        if partition.moves:
            raise ProtocolError(f"the new partition at {key[:40]!r} has a move")
        record = encode_partition(partition)
        table.check_entry(key, record)
        edits.append((ENTRY + key, stamped(config, record)))
    table.check_whole(len(partitions), min(partitions, default=None))
    if len({partition.id for partition in partitions.values()}) < len(partitions):
        raise ProtocolError("two partitions have the same id")
    return [*edits, (META, stamped(config, table.encode()))]


def _assignment_of(value: object) -> Assignment:
    match value:
        case (id_, bytes(node), slot, state) if (
            is_whole(id_) and len(node) == UUID_BYTES and is_whole(slot) and is_whole(state) and state in _STATES
        ):
            return Assignment(id_, node, slot, _STATES[state])
    raise ProtocolError("an assignment must be [id, uuid, slot, state]", {"got": repr(value)[:80]})


def _end_of(value: object) -> ForcedEnd:
    match value:
        case (assignment, counter) if is_whole(assignment) and (counter is None or is_whole(counter)):
            return ForcedEnd(assignment, counter)
    raise ProtocolError("an end must be [assignment, counter or nil]", {"got": repr(value)[:80]})


# Operations, their arguments, and the test by which each finds that it is done. All refuse if the partition has another
# id:
#
#     assign 1    [key, partition, assignment, node, slot]            the assignment exists
#     advance 1   [key, partition, assignment, state]                 it has that state, or a later one
#     unassign 1  [key, partition, assignment]                        it does not exist
#     unassign 2  [key, partition, assignment]                        as above, by force
#     end 1       [key, partition, [[assignment, end], ...]]          each of them has an end, or needs none
#     settle 1    [key, partition, [[assignment, counter], ...]]      none of them is former
#     divide 1    [key, partition, [[first key, partition, [assignment, ...]], ...]]   the first child is at the key
#     retire 1    [key, [partition, ...], new, [assignment, ...]]    the new partition is at the key
#     refound 1   [key, partition, new, assignment, node, [[assignment, counter], ...], kept]   the new partition exists
#     set_groups 1  [uuids of a group's nodes, ...]                     the meta has these groups
#
# `unassign` cancels or ends a move. An AVAILABLE assignment leaves only by a move, or by force (2) if another slot has
# one; it is former afterwards. After a force, this assignment and all former ones have an end, beyond which records are
# lost. `end` sets the ends once the hosts that have adopted the removal report their counters: before, a host could
# still confirm a record beyond an end.
#
# `settle` drops former assignments of which all copies report the same counter, which is also their end, if they have
# one. `divide` replaces a range by children on the parent's nodes, so no records travel. Each assignment of a child
# replaces one of the parent's, in order. The parent's assignments and former ones are former in each child, with their
# ends: clocks and tokens name them until the child has settled them itself.
#
# `retire` replaces neighbouring ranges, from the key on, by an empty one on the last one's nodes. The map forgets their
# assignments, so their hosts drop the replicas unread, and tokens omit them.
#
# `refound` re-creates a partition whose hosts are all gone, with one assignment. All earlier ones are forced out, with
# the counters of the new node's copy as their ends; `kept` is the assignment of that copy, or 0. No assignment is
# former, so another copy that comes back belongs to no partition.


def _assign(view: OperationView, argument: object) -> Edits:
    match argument:
        case (bytes(key), partition, assignment, bytes(node), slot):
            pass
        case _:
            raise OperationRefusal(INVALID, "assign takes [key, partition, assignment, node, slot]")
    found = _partition_at(view, key, partition)
    if not is_whole(assignment) or not is_whole(slot) or len(node) != UUID_BYTES:
        raise OperationRefusal(INVALID, "assign takes an id, a uuid of 16 bytes and a slot")
    current = found.assignment(assignment)
    if current is not None and (current.node, current.slot) == (node, slot):
        return Edits()
    if assignment in found.former or len(found.former) >= MAX_TO_MOVE:
        raise OperationRefusal(
            INVALID, f"the partition at {key[:40]!r} has {len(found.former)} former assignments that are not settled"
        )
    return _changed(
        view, key, found, [*found.assignments, Assignment(assignment, node, slot, AssignmentState.PROPOSED)]
    )


def _advance(view: OperationView, argument: object) -> Edits:
    match argument:
        case (bytes(key), partition, assignment_id, int(state)) if (
            AssignmentState.INITIALIZING <= state <= AssignmentState.AVAILABLE
        ):
            pass
        case _:
            raise OperationRefusal(INVALID, "advance takes [key, partition, assignment, 2 or 3]")
    found, current = _assignment_at(view, key, partition, assignment_id)
    if current is None:
        raise OperationRefusal(NOT_FOUND, f"the partition at {key[:40]!r} has no assignment {assignment_id}")
    if current.state >= state:
        return Edits()
    if current.state + 1 != state:
        raise OperationRefusal(INVALID, f"assignment {assignment_id} is still {current.state.name}")
    after = []
    for assignment in found.assignments:
        if assignment is current:
            after.append(assignment._replace(state=AssignmentState(state)))
        elif assignment.slot == current.slot and state == AssignmentState.AVAILABLE:
            after.append(assignment._replace(state=AssignmentState.LEAVING))
        else:
            after.append(assignment)
    return _changed(view, key, found, after)


def _unassign(view: OperationView, argument: object) -> Edits:
    key, found, current = _unassigned(view, argument)
    if current is None:
        return Edits()
    if current.state == AssignmentState.AVAILABLE:
        raise OperationRefusal(INVALID, f"assignment {current.id} is AVAILABLE: assign its slot to another node first")
    return _without(view, key, found, current)


def _unassign_by_force(view: OperationView, argument: object) -> Edits:
    key, found, current = _unassigned(view, argument)
    if current is None:
        return Edits()
    if current.state not in _ORIGINATED:
        return _without(view, key, found, current)
    ended = dict(found.ends)
    ends = (*found.ends, *(ForcedEnd(id_, None) for id_ in (*found.former, current.id) if id_ not in ended))
    return _without(view, key, found._replace(ends=ends[-MAX_ENDS:]), current)


def _unassigned(view: OperationView, argument: object) -> tuple[bytes, Partition, Assignment | None]:
    match argument:
        case (bytes(key), partition, assignment):
            return key, *_assignment_at(view, key, partition, assignment)
    raise OperationRefusal(INVALID, "unassign takes [key, partition, assignment]")


def _without(view: OperationView, key: bytes, found: Partition, removed: Assignment) -> Edits:
    former = found.former
    if removed.state in _ORIGINATED:
        former = tuple(sorted((*former, removed.id)))
    # The replica that it replaced still has the records.
    replaced = (removed.slot, AssignmentState.LEAVING) if removed.state is AssignmentState.AVAILABLE else None
    rest = [
        assignment._replace(state=AssignmentState.AVAILABLE)
        if (assignment.slot, assignment.state) == replaced
        else assignment
        for assignment in found.assignments
        if assignment is not removed
    ]
    return _changed(view, key, found._replace(former=former), rest)


def _end(view: OperationView, argument: object) -> Edits:
    key, found, counters = _counted(view, "end", argument)
    ends = tuple(ForcedEnd(id_, counters.get(id_) if end is None else end) for id_, end in found.ends)
    return _changed(view, key, found._replace(ends=ends), found.assignments) if ends != found.ends else Edits()


def _settle(view: OperationView, argument: object) -> Edits:
    key, found, counters = _counted(view, "settle", argument)
    former = tuple(id_ for id_ in found.former if id_ not in counters)
    if former == found.former:
        return Edits()
    settled = {id_: counter for id_, counter in counters.items() if id_ in found.former}
    # Any host with a larger counter was removed by force as well.
    ends = tuple(ForcedEnd(id_, settled.get(id_, end)) for id_, end in found.ends)
    return _changed(view, key, found._replace(former=former, ends=ends), found.assignments)


def _counted(view: OperationView, operation: str, argument: object) -> tuple[bytes, Partition, dict[int, int]]:
    """Return the partition and the counters in an argument, one for each assignment."""
    match argument:
        case (bytes(key), partition, tuple(rows)) if rows and all(map(_is_counted, rows)):
            counters = dict(rows)
            if len(counters) == len(rows):
                return key, _partition_at(view, key, partition), counters
    raise OperationRefusal(INVALID, f"{operation} takes [key, partition, [[assignment, counter], ...]], each once")


def _is_counted(row: object) -> bool:
    match row:
        case (assignment, counter):
            return is_whole(assignment) and is_whole(counter)
    return False


def _divide(view: OperationView, argument: object) -> Edits:
    match argument:
        case (bytes(key), partition, tuple(rows)) if 1 < len(rows) <= MAX_CHILDREN:
            children = [_child_of(row) for row in rows]
        case _:
            raise OperationRefusal(INVALID, f"divide takes [key, partition, children], 2 to {MAX_CHILDREN}")
    if decode_table(view.meta).kind != RANGE:
        raise OperationRefusal(INVALID, "a hash table cannot be divided")
    entry, first = view.get(key), children[0]
    if entry is not None and decode_partition(entry.record).id == first.partition != partition and first.first == key:
        return Edits()
    found = _partition_at(view, key, partition)
    if fault := _fault_of_children(found, children, key, view.next_key(key)):
        raise OperationRefusal(INVALID, f"the partition at {key[:40]!r}: {fault}")
    puts: dict[bytes, bytes | None] = {}
    for child in children:
        held = zip(found.assignments, child.assignments, strict=True)
        after = Partition(child.partition, (), found.named, found.ends, found.kept)
        puts |= _changed(view, child.first, after, [assignment._replace(id=id_) for assignment, id_ in held]).puts
    return Edits(puts)


def _retire(view: OperationView, argument: object) -> Edits:
    match argument:
        case (bytes(key), tuple(partitions), new, tuple(ids)) if (
            0 < len(partitions) <= MAX_CHILDREN and is_whole(new) and all(map(is_whole, ids))
        ):
            pass
        case _:
            raise OperationRefusal(INVALID, f"retire takes [key, partitions, new, assignments], 1 to {MAX_CHILDREN}")
    if not decode_table(view.meta).retention_ms:
        raise OperationRefusal(INVALID, "ranges are retired from tables with a retention only")
    entry = view.get(key)
    if entry is not None and decode_partition(entry.record).id == new:
        return Edits()
    at, puts, used = key, dict[bytes, bytes | None](), set[int]()
    for id_ in partitions:
        last = _partition_at(view, at, id_)
        puts[at], used = None, used | {*last.recorded}
        if last.moves:
            raise OperationRefusal(INVALID, f"the partition at {at[:40]!r} moves")
        at = view.next_key(at) or b""
    if new in partitions or len(last.assignments) != len(ids) or len({*ids} - used) < len(ids):
        raise OperationRefusal(INVALID, "the new range has a new id, and a new assignment for each of the last one's")
    held = zip(last.assignments, ids, strict=True)
    after = Partition(new, (), (), (), 0)
    return Edits({**puts, **_changed(view, key, after, [assignment._replace(id=id_) for assignment, id_ in held]).puts})


def _refound(view: OperationView, argument: object) -> Edits:
    match argument:
        case (bytes(key), partition, new, assignment, bytes(node), tuple(rows), kept) if (
            is_whole(new) and is_whole(assignment) and is_whole(kept) and len(node) == UUID_BYTES
            and all(map(_is_counted, rows))
        ):  # fmt: skip
            counters: dict[int, int] = dict(rows)
        case _:
            raise OperationRefusal(
                INVALID, "refound takes [key, partition, new partition, assignment, node, ends, kept]"
            )
    entry = view.get(key)
    if entry is not None and decode_partition(entry.record).id == new != partition:
        return Edits()
    found = _partition_at(view, key, partition)
    if not counters.keys() >= {*found.recorded}:
        raise OperationRefusal(INVALID, f"the partition at {key[:40]!r}: each of its assignments must have an end")
    if new == found.id or assignment in counters:
        raise OperationRefusal(INVALID, f"the partition at {key[:40]!r}: a new id is already used")
    # If there are too many, drop ends without kept records first.
    ends = tuple(ForcedEnd(id_, counters[id_]) for id_ in sorted(counters, key=lambda id_: (counters[id_] > 0, id_)))
    after = Partition(new, (), (), ends[-MAX_ENDS:], kept)
    return _changed(view, key, after, [Assignment(assignment, node, 0, AssignmentState.AVAILABLE)])


def _fault_of_children(parent: Partition, children: Sequence[ChildRange], key: bytes, after: bytes | None) -> str:
    """Return the reason why a partition, from `key` to before `after`, may not be divided so; empty if it may."""
    firsts = [child.first for child in children]
    partitions = [parent.id, *(child.partition for child in children)]
    assignments = [id_ for child in children for id_ in child.assignments]
    bounds = firsts if after is None else [*firsts, after]
    tiles = firsts[0] == key and all(low < high for low, high in pairwise(bounds))
    count = len(parent.named)
    too_many = f"its children would have {count} former assignments, at most {MAX_FORMER} may be unsettled"
    broken = (
        (parent.moves, "a move is under way"),
        (parent.has_too_many_former, too_many),
        (not tiles, "the children do not cover it exactly"),
        (max(map(len, firsts)) > MAX_KEY_BYTES, f"a child's first key must have at most {MAX_KEY_BYTES} bytes"),
        (len({*partitions}) < len(partitions), "a partition's id is already used"),
        (len({*assignments}.difference(parent.recorded)) < len(assignments), "an assignment's id is already used"),
        (
            any(len(child.assignments) != len(parent.assignments) for child in children),
            "a child must have an assignment for each of its parent's",
        ),
    )
    return next((words for is_broken, words in broken if is_broken), "")


def _set_groups(view: OperationView, argument: object) -> Edits:
    table = decode_table(view.meta)
    try:
        wanted = table._replace(groups=_groups_of(argument))
    except ProtocolError as error:
        raise OperationRefusal(INVALID, error.message) from error
    if table.kind != HASH:
        raise OperationRefusal(INVALID, "only shards of a hash table have groups, and this table has ranges")
    if any(len(group) < least_of_group(table.replication) for group in wanted.groups):
        raise OperationRefusal(INVALID, f"a group must have at least {least_of_group(table.replication)} nodes")
    return Edits() if wanted == table else Edits(meta=wanted.encode())


OPERATIONS: Final[Functions] = {
    ("assign", 1): _assign,
    ("advance", 1): _advance,
    ("unassign", 1): _unassign,
    ("unassign", 2): _unassign_by_force,
    ("end", 1): _end,
    ("settle", 1): _settle,
    ("divide", 1): _divide,
    ("retire", 1): _retire,
    ("refound", 1): _refound,
    ("set_groups", 1): _set_groups,
}


class ChildRange(NamedTuple):
    """A range that replaces, with others, a divided one."""

    first: bytes
    partition: int
    assignments: tuple[int, ...]  # One for each of the parent's, in their order.


def _child_of(value: object) -> ChildRange:
    match value:
        case (bytes(first), partition, tuple(assignments)) if is_whole(partition) and all(map(is_whole, assignments)):
            return ChildRange(first, partition, assignments)
    raise OperationRefusal(INVALID, "a child must be [first key, partition, [assignment, ...]]")


def _partition_at(view: OperationView, key: bytes, partition: object) -> Partition:
    entry = view.get(key)
    found = None if entry is None else decode_partition(entry.record)
    if found is None or found.id != partition:
        raise OperationRefusal(NOT_FOUND, f"the map has no partition {partition} at {key[:40]!r}")
    return found


def _assignment_at(
    view: OperationView, key: bytes, partition: object, assignment: object
) -> tuple[Partition, Assignment | None]:
    """Return the partition at a key, and its assignment of that id, if any."""
    found = _partition_at(view, key, partition)
    return found, found.assignment(assignment) if is_whole(assignment) else None


def _changed(view: OperationView, key: bytes, partition: Partition, assignments: Iterable[Assignment]) -> Edits:
    """Return the edit that gives a partition these assignments, if they break no invariant."""
    after = partition._replace(assignments=Partition.of(partition.id, assignments).assignments)
    if fault := fault_of(after, decode_table(view.meta).replication):
        raise OperationRefusal(INVALID, f"the partition at {key[:40]!r}: {fault}")
    return Edits({key: encode_partition(after)})
