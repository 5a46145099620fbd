"""The wire form of clocks, records and rows in messages between hosts of replicas.

    first row of a replica on a link    [number, table, partition, assignment, config, [id, ...], [counter, ...], can
                                        take, is below], where the ids are the clock's assignments
    later rows                          [number, config, [counter, ...], can take, is below]
    row of an answer                    [number, [counter, ...], assignment, config, can take]; assignment 0: no replica
    entry                               [number, clock before or nil, clock after or nil, [key, record, ...]]

The number stands for the replica on that link. A replica of the receiver is *below* if the sender's log does not reach
back to it (`snapshot.transfer`). Later rows are answered only if the receiver's status was not reported yet. Answers
use the asker's numbers and counter order; to a feed they omit everything behind the counters that is as in the last
answer. An answer to a status report begins with the time of day in milliseconds. A row of an incomplete replica
(`replica.bootstrap`) ends with its span of the receiver's entries: two lists of counters, empty without a span. Nil
clocks follow from the previous entry or the records. Rows, entries and answers are packed as single byte strings,
since a frame has few elements.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgpack

from gossipkv.errors import GossipKVError, ProtocolError
from gossipkv.replication._replication import clock_of, counters_of
from gossipkv.replication.replica.intern import shared
from gossipkv.replication.replica.status import NOTHING, SpanEnds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gossipkv.replication.replica.replica import Replica
    from gossipkv.wire.rpc import Raw, Value


class ReplicaState(NamedTuple):
    """The part of a replica's status that seldom changes."""

    assignment: int
    config: int
    can_take: bool

    def shared_with(self, replica: Replica) -> ReplicaState:
        """Return the same state of objects that are kept here already."""
        return ReplicaState(replica.id_here(self.assignment), shared(self.config), self.can_take)


def unpacked(answer: Value | GossipKVError) -> Value:
    """Unpack an answer. Raises ProtocolError, also for an error in its place."""
    if not isinstance(answer, bytes):
        raise ProtocolError("the answer of a replica's node must be packed in bytes")
    try:
        value: Value = msgpack.unpackb(answer)
    except (ValueError, msgpack.UnpackException) as error:
        raise ProtocolError(f"the answer of a replica's node cannot be decoded: {error}") from error
    return value


def ids_of(ids: Sequence[Raw]) -> tuple[int, ...]:
    """Return the assignments of a clock. Raises ProtocolError."""
    whole = tuple(id_ for id_ in ids if isinstance(id_, int) and 0 <= id_ < 1 << 64)
    if len({*whole}) != len(ids):
        raise ProtocolError("the assignments of a clock must be distinct ids")
    return whole


def state_of(rest: Sequence[Value]) -> ReplicaState:
    """Read a row's part behind the counters. Raises ProtocolError."""
    match rest:
        case [int(assignment), int(config), bool(can), *_]:
            return ReplicaState(assignment, config, can)
    raise ProtocolError("a row of an answer must be [number, counters, assignment, config, can take]")


def ends_of_span(ids: tuple[int, ...], rest: Sequence[Raw] | Sequence[Value]) -> SpanEnds | None:
    """Read the span at the end of a row; None: the replica is complete. Raises ProtocolError."""
    match rest:
        case []:
            return None
        case [list(), []]:
            return NOTHING
        case [list(before), list(after)]:
            return SpanEnds(clock_of(ids, before), clock_of(ids, after))
    raise ProtocolError("a span of merged entries must be [counter, ...], [counter, ...]")


def span_row(replica: Replica, source: int, ids: tuple[int, ...]) -> list[Value]:
    """Return the end of a row: empty, or an incomplete replica's span of the source's entries."""
    if replica.synced_joining is None:
        return []
    span = replica.synced_joining.span(source)
    return [[], []] if span is None else [counters_of(span.before, ids), counters_of(span.after, ids)]


class StatusRow(NamedTuple):
    """A row of a status report."""

    number: int
    # In a first row: partition, assignment, ids of the clock.
    whole: tuple[tuple[bytes, int], int, tuple[int, ...]] | None
    config: int
    counters: list[Raw]
    can_take: bool
    is_below: bool
    span: list[Raw]


def status_row_of(row: Raw) -> StatusRow:
    """Read a row of a status report. Raises ProtocolError."""
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
    form = "[number, table, partition, assignment, config, ids, counters, can take, below, ...]"
    raise ProtocolError(f"a row of a report must be {form}")
