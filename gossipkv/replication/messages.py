"""Clocks and records as they stand in the messages between nodes: what `replicas` says of rows and entries."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgpack

from gossipkv.errors import ProtocolError
from gossipkv.replication import clock, record
from gossipkv.replication.peer import Stand

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gossipkv.wire.rpc import Raw, Value


def unpacked(answer: Value) -> Value:
    """What an answer says, which is packed in bytes of its own.  Raises ProtocolError."""
    if not isinstance(answer, bytes):
        raise ProtocolError("an answer to a copy's node is packed in bytes")
    try:
        value: Value = msgpack.unpackb(answer)
    except (ValueError, msgpack.UnpackException) as error:
        raise ProtocolError(f"an answer to a copy's node cannot be decoded: {error}") from error
    return value


def clock_of(ids: Sequence[int], counters: Sequence[object]) -> bytes:
    """A clock from its counters.  Raises ProtocolError."""
    whole = [count for count in counters if isinstance(count, int) and 0 <= count < 1 << 64]
    if len(whole) != len(counters) or len(ids) != len(counters):
        raise ProtocolError(f"a clock has {len(ids)} counters here, not {len(counters)}")
    return clock.of(zip(ids, whole, strict=True))


def ids_of(ids: Sequence[Raw]) -> tuple[int, ...]:
    """The assignments of a clock.  Raises ProtocolError."""
    whole = tuple(id_ for id_ in ids if isinstance(id_, int) and 0 <= id_ < 1 << 64)
    if len({*whole}) != len(ids):
        raise ProtocolError("the assignments of a clock are ids, each there once")
    return whole


def stand_of(rest: Sequence[Value]) -> Stand | None:
    """What a row of an answer says beside its counters; None: nothing.  Raises ProtocolError."""
    match rest:
        case []:
            return None
        case [int(assignment), int(config), bool(can)]:
            return Stand(assignment, config, can)
    raise ProtocolError("a row of an answer is [number, counters, assignment, config, can take]")


def behind(begins: bytes, records: Sequence[tuple[bytes, bytes]]) -> bytes:
    """The clock after records of one origin.  Raises ProtocolError: they do not follow it, each the one before."""
    ends = begins
    for _, data in records:
        ((origin, count),) = clock.entries(record.dot(data))
        if count != clock.counter(ends, origin) + 1:
            raise ProtocolError(f"record {count} of {origin} does not follow {clock.counter(ends, origin)}")
        ends = clock.merge(ends, record.dot(data))
    return ends


def counters_of(of: bytes, ids: Sequence[int]) -> list[Value]:
    """The counters of a clock, in the order of those assignments."""
    return [clock.counter(of, id_) for id_ in ids]


def records_of(flat: Sequence[Raw]) -> tuple[tuple[bytes, bytes], ...]:
    """Keys and records.  Raises ProtocolError."""
    records: list[tuple[bytes, bytes]] = []
    for key, data in zip(flat[::2], flat[1::2], strict=True):
        if not isinstance(key, bytes) or not isinstance(data, bytes):
            raise ProtocolError("keys and records are bytes")
        record.check(data)
        records.append((key, data))
    return tuple(records)
