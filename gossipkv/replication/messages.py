"""What messages between copies say: clocks by their counters, and records."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gossipkv.errors import ProtocolError
from gossipkv.replication import clock, record

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gossipkv.wire.rpc import Value


def read_clock(ids: Sequence[int], counters: Sequence[object]) -> bytes:
    """A clock from its counters.  Raises ProtocolError."""
    whole = [count for count in counters if isinstance(count, int) and 0 <= count < 1 << 64]
    if len(whole) != len(counters) or len(ids) != len(counters):
        raise ProtocolError(f"a clock has {len(ids)} counters here, not {len(counters)}")
    return clock.of(zip(ids, whole, strict=True))


def clock_behind(begins: bytes, records: Sequence[tuple[bytes, bytes]]) -> bytes:
    """The clock after records of one origin.  Raises ProtocolError: they do not follow it, each the one before."""
    ends = begins
    for _, data in records:
        ((origin, count),) = clock.entries(record.dot(data))
        if count != clock.counter(ends, origin) + 1:
            raise ProtocolError(f"record {count} of {origin} does not follow {clock.counter(ends, origin)}")
        ends = clock.merge(ends, record.dot(data))
    return ends


def counters_of(of: bytes, ids: Sequence[int]) -> list[Value]:
    """The counters of a clock for some assignments, in that order."""
    return [clock.counter(of, id_) for id_ in ids]


def read_records(flat: Sequence[object]) -> tuple[tuple[bytes, bytes], ...]:
    """Keys and records, as they come from another node.  Raises ProtocolError, ValueError: they are none."""
    records: list[tuple[bytes, bytes]] = []
    for key, data in zip(flat[::2], flat[1::2], strict=True):
        if not isinstance(key, bytes) or not isinstance(data, bytes):
            raise ProtocolError("keys and records are bytes")
        record.check(data)
        records.append((key, data))
    return tuple(records)
