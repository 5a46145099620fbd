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

from gossipkv.replication._replication import OpenShare, join_shares, new_shares, own_entries, put_states
from gossipkv.storage.engine.shell import Batch

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from gossipkv.replication._replication import LogEntry
    from gossipkv.replication.ports import ReplicationPorts
    from gossipkv.replication.replica.hlc import ClockSkew
    from gossipkv.replication.replica.record import RecordWrite
    from gossipkv.replication.replica.replica import Replica

    Writes = Mapping[Replica, Sequence[RecordWrite]]


@final
@dataclass(slots=True, eq=False)
class OpenBatch:
    """A batch of local writes, which grows until it is handed out."""

    batch: Batch
    position: int = 0
    shares: dict[Replica, OpenShare] = field(default_factory=dict)


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
        batch, into = Batch(), self._last
        shares = new_shares(batch, writes, self._skew.time_ms)
        self._declare(batch, writes)
        begins, opened = into.batch.size_bytes, into.shares if into.batch.is_open else {}
        put_states(batch, [share for share in shares if share.replica not in opened])
        if not into.batch.is_open or not self._outside.extend(into.batch, batch):
            put_states(batch, [share for share in shares if share.replica in opened])
            begins, into = 0, OpenBatch(batch)
            into.position = self._outside.append(batch, partial(self._synced, into))
            self._last = into
        return join_shares(into.batch, into.shares, shares, begins)

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
        self._on_synced(own_entries(own.shares, own.position))
        if own is self._last:
            self._last = OpenBatch(Batch())
