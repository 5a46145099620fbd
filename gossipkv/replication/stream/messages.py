"""Clocks, records and rows as they stand in the messages between nodes that hold copies.

A row names a copy by a number for the rest of the link, `[number, table, partition, assignment, config, [assignment
of the clock, ...], [counter, ...], can take, is below]`, and later only `[number, config, [counter, ...], can take,
is below]`, which is answered if what the asked one has was not told yet; below is a copy of the asked one to which
the asker's log does not reach back (`snapshot.transfer`). Answers have rows `[number, [counter, ...], assignment,
config, can take]`, in the asker's numbers and order of counters; in answers to feeds only the first two where the rest
is as it was in the answer before. An answer to what is told begins with the time of day, in milliseconds. Behind each
of these rows of a copy that is not whole (`replica.bootstrap`) stand the ends of the span that it has of the node that
is told: two lists of counters, empty where there is none. An entry is `[number, clock before or nil, clock after or
nil, [key, record, ...]]`, with nil where the one before in the message, or the records, say as much. Rows and entries,
and the answers, are packed by themselves: a frame has few elements, and a node may hold thousands of copies.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgpack

from gossipkv.errors import ProtocolError
from gossipkv.replication._replication import clock_of, counters_of, ends_of, records_of
from gossipkv.replication.replica.status import NOTHING, SpanEnds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gossipkv.replication.replica.replica import Replica
    from gossipkv.wire.rpc import Raw, Value

__all__ = [
    "ReplicaState",
    "clock_of",
    "counters_of",
    "ends_of",
    "ends_of_span",
    "ids_of",
    "records_of",
    "said_of",
    "span_row",
    "stand_of",
    "unpacked",
]


class ReplicaState(NamedTuple):
    """What seldom changes of what is told of a copy."""

    assignment: int
    config: int
    can_take: bool


def unpacked(answer: Value) -> Value:
    """What an answer says, which is packed in bytes of its own.  Raises ProtocolError."""
    if not isinstance(answer, bytes):
        raise ProtocolError("an answer to a copy's node is packed in bytes")
    try:
        value: Value = msgpack.unpackb(answer)
    except (ValueError, msgpack.UnpackException) as error:
        raise ProtocolError(f"an answer to a copy's node cannot be decoded: {error}") from error
    return value


def ids_of(ids: Sequence[Raw]) -> tuple[int, ...]:
    """The assignments of a clock.  Raises ProtocolError."""
    whole = tuple(id_ for id_ in ids if isinstance(id_, int) and 0 <= id_ < 1 << 64)
    if len({*whole}) != len(ids):
        raise ProtocolError("the assignments of a clock are ids, each there once")
    return whole


def stand_of(rest: Sequence[Value]) -> ReplicaState | None:
    """What a row of an answer says beside its counters; None: nothing.  Raises ProtocolError."""
    match rest:
        case []:
            return None
        case [int(assignment), int(config), bool(can), *_]:
            return ReplicaState(assignment, config, can)
    raise ProtocolError("a row of an answer is [number, counters, assignment, config, can take]")


def ends_of_span(ids: tuple[int, ...], rest: Sequence[Raw] | Sequence[Value]) -> SpanEnds | None:
    """The span at the end of a row, of a copy that is not whole; None: it is.  Raises ProtocolError."""
    match rest:
        case []:
            return None
        case [list(), []]:
            return NOTHING
        case [list(before), list(after)]:
            return SpanEnds(clock_of(ids, before), clock_of(ids, after))
    raise ProtocolError("what was merged of a source is [counter, ...], [counter, ...]")


def span_row(copy: Replica, source: int, ids: tuple[int, ...]) -> list[Value]:
    """What stands at the end of a row of a copy that is not whole: what it has of the entries of another one."""
    if copy.synced_joining is None:
        return []
    span = copy.synced_joining.span(source)
    return [[], []] if span is None else [counters_of(span.before, ids), counters_of(span.after, ids)]


class StatusRow(NamedTuple):
    """A row of what a node tells of its copies."""

    number: int
    whole: tuple[tuple[bytes, int], int, tuple[int, ...]] | None  # The first time: partition, assignment, clock's ids.
    config: int
    counters: list[Raw]
    can_take: bool
    is_below: bool
    span: list[Raw]


def said_of(row: Raw) -> StatusRow:
    """Read such a row.  Raises ProtocolError."""
    match row:
        case [int(number), int(config), list(had), can, below, *span]:
            return StatusRow(number, None, config, had, bool(can), bool(below), span)
        case [
            int(number),
            bytes(table),
            int(partition),
            int(id_),
            int(config),
            list(ids),
            list(had),
            can,
            below,
            *span,
        ]:
            return StatusRow(number, ((table, partition), id_, ids_of(ids)), config, had, bool(can), bool(below), span)
    raise ProtocolError("a row is [number, table, partition, assignment, config, ids, counters, can take, below, ...]")
