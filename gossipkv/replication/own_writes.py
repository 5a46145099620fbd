"""Local writes: those that wait for the same sync share a batch, with one STATE and one log entry for each replica.

The last batch that was appended is open until the store hands it out to be written. Meanwhile further local writes
extend it, and overwrite the STATE of their replicas in place: the clocks keep their names, since a replica that adopts
a placement, loads or is split appends another batch. So a reader of the log gets one entry for each replica, as if all
its writes had come in one request.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, final

from gossipkv.replication._replication import LogEntry
from gossipkv.replication.replica import clock
from gossipkv.replication.replica.keys import encode_state
from gossipkv.storage.engine.shell import Batch

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from gossipkv.replication.ports import ReplicationPorts
    from gossipkv.replication.replica.hlc import ClockSkew
    from gossipkv.replication.replica.record import RecordWrite
    from gossipkv.replication.replica.replica import Replica

    Records = list[tuple[bytes, bytes]]  # Keys and records.
    Writes = Mapping[Replica, Sequence[RecordWrite]]


@final
@dataclass(slots=True, eq=False)
class OpenShare:
    """The writes of one replica in an open batch."""

    before: bytes  # Packed clocks.
    after: bytes
    state_at: int  # Offset of the replica's STATE in the batch.
    records: Records


@final
@dataclass(slots=True, eq=False)
class OpenBatch:
    """A batch of local writes, which grows until it is handed out."""

    batch: Batch
    position: int = 0
    shares: dict[Replica, OpenShare] = field(default_factory=dict)

    def add(self, replica: Replica, records: Records, after: bytes, state_at: int) -> None:
        """Add writes whose records, and whose replica's first STATE, are in the batch."""
        share = self.shares.get(replica)
        if share is None:
            self.shares[replica] = OpenShare(replica.appended, after, state_at, records)
        else:
            share.records += records
            share.after = after
            state = encode_state(replica.time, replica.config, after, share.before)
            self.batch.overwrite(share.state_at, state)
        replica.appends(records, after)

    def entries(self) -> Sequence[LogEntry]:
        """Return the log entries of the batch, once it is synced."""
        return [
            LogEntry(replica, tuple(share.records), share.before, share.after, is_own=True, position=self.position)
            for replica, share in self.shares.items()
        ]


@final
class OwnWrites:
    """The writes that a node originates, in the order of their counters."""

    def __init__(
        self, outside: ReplicationPorts, skew: ClockSkew, on_synced: Callable[[Sequence[LogEntry]], object]
    ) -> None:
        """`on_synced` gets the entries of each batch."""
        self._outside, self._skew, self._on_synced = outside, skew, on_synced
        self._last = OpenBatch(Batch())

    def originate(self, writes: Writes) -> Mapping[int, int]:
        """Write to local replicas in one batch; return counters by assignment. Raises as `ReplicationPorts.append`.

        Requires: each of them may originate.
        """
        batch, into, added = Batch(), self._last, []
        times_ms: dict[tuple[bytes, ...], int] = {}
        for replica, group in writes.items():
            time_ms = times_ms.get(replica.sharers) or self._skew.time_ms(replica.sharers)
            times_ms[replica.sharers] = time_ms
            added.append((replica, *replica.originate(batch, group, time_ms)))
        self._declare(batch, writes)
        begins, shares = into.batch.size_bytes, into.shares if into.batch.is_open else {}
        states = {}  # Offsets in `batch`.
        for replica, _, after in added:
            if replica not in shares:
                states[replica] = replica.put_state(batch, after, replica.appended)
        if not into.batch.is_open or not self._outside.extend(into.batch, batch):
            for replica, _, after in added:
                if replica in shares:
                    states[replica] = replica.put_state(batch, after, replica.appended)
            begins, into = 0, OpenBatch(batch)
            into.position = self._outside.append(batch, partial(self._synced, into))
            self._last = into
        counters = {}
        for replica, records, after in added:
            into.add(replica, records, after, begins + states.get(replica, 0))
            counters[replica.assignment] = clock.counter(after, replica.assignment)
        return counters

    def _declare(self, batch: Batch, writes: Writes) -> None:
        """Let a batch of deletes use room that is kept for deletes."""
        relieves = True
        for replica, group in writes.items():
            for write in group:
                if write.value is not None:
                    return
                # A tombstone without an older record frees nothing; such deletes must not use up the reserve.
                relieves = relieves and replica.order_of(write.key, self._outside.get) is not None
        batch.may_fill, batch.relieves = True, relieves

    def _synced(self, own: OpenBatch) -> None:
        self._on_synced(own.entries())
        if own is self._last:
            self._last = OpenBatch(Batch())
