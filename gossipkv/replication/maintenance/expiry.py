"""Rows for merges: they say which expired records the disk needs no more.

An expired record leaves the disk when a tombstone would be collected (`tombstone_gc`): every assigned replica has it,
and nothing older can arrive. Besides, it must have expired by the clocks of all hosts, `max_clock_skew` allowed for. A
host whose clock is fast would drop a record that others still show.

The child of a merge decides for each record (`ExpiryFilter`). What is settled now stays settled, so it may finish much
later.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import msgpack

from gossipkv.replication._replication import ExpiryFilter
from gossipkv.replication.maintenance.tombstone_gc import collectable
from gossipkv.replication.replica import clock
from gossipkv.replication.replica.smeared import KEEPS_MS
from gossipkv.storage.engine.merge import ExpiryRule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gossipkv.replication.ports import ReplicationPorts
    from gossipkv.replication.replica.replica import Replica
    from gossipkv.replication.replica_set import ReplicaSet


def expiry_rule(replicas: ReplicaSet, outside: ReplicationPorts) -> ExpiryRule:
    """Return the rule by which a node's store drops expired records."""
    rows = partial(rows_of, replicas)
    return ExpiryRule(ExpiryFilter.__module__, ExpiryFilter.__name__, outside.now_ms, rows)


def rows_of(replicas: ReplicaSet, keys: tuple[bytes, bytes] | None) -> Iterator[bytes]:
    """Yield the rows for a merge of these keys of the store; None: nothing may go."""
    yield msgpack.packb((b"", b"", b"", None, replicas.skew.past_ms(())))
    if keys is not None:
        for replica in [*replicas.by_partition.values()]:
            yield _row_of(replicas, replica, keys)


def _row_of(replicas: ReplicaSet, replica: Replica, keys: tuple[bytes, bytes]) -> bytes:
    space = replica.space.to_bytes(4, "big")
    first, end = (space + bound for bound in replica.bounds.records)
    if keys[1] < first or end <= keys[0] or replica not in replicas.acks or replica in replicas.loader.loads:
        return b""
    if replica.config != replica.synced_config:
        return b""  # A power loss would bring back the old config, whose hosts have not all confirmed the clock.
    past_ms = replicas.skew.past_ms(replica.sharers)
    settled, has_ended, _ = collectable(replicas, replica)
    if not past_ms or not (settled or has_ended):
        return b""
    replica.take_config()
    horizon_ms = max(0, past_ms - KEEPS_MS * replica.rules.smears)
    named = clock.named(b"", replica.named) if has_ended else None
    packed: bytes = msgpack.packb((first, end, settled, named, horizon_ms))
    return packed
