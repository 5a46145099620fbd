"""Clocks and records as they stand in the messages between nodes: what `replicas` says of rows and entries."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgpack

from gossipkv.errors import ProtocolError
from gossipkv.replication._entry import clock_of, counters_of, ends_of, records_of
from gossipkv.replication.peer import Stand

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gossipkv.wire.rpc import Raw, Value

__all__ = ["clock_of", "counters_of", "ends_of", "ids_of", "records_of", "stand_of", "unpacked"]


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


def stand_of(rest: Sequence[Value]) -> Stand | None:
    """What a row of an answer says beside its counters; None: nothing.  Raises ProtocolError."""
    match rest:
        case []:
            return None
        case [int(assignment), int(config), bool(can)]:
            return Stand(assignment, config, can)
    raise ProtocolError("a row of an answer is [number, counters, assignment, config, can take]")
