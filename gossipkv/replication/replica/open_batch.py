"""The open batch: local writes that leave in one frame of the log, with one STATE for each replica.

The last batch that was appended is open until the store hands it out to be written. Meanwhile further local writes
extend it, and overwrite the STATE of their replicas in place: the clocks keep their names, since a replica that adopts
a placement, loads or is split appends another batch. So a reader of the log gets one entry for each replica, as if all
its writes had come in one request.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, final

from gossipkv.replication.replica.keys import encode_state
from gossipkv.replication.replica.replica import LogEntry

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gossipkv.replication.replica.replica import Replica
    from gossipkv.storage.engine.shell import Batch

    Records = list[tuple[bytes, bytes]]  # Keys and records.


@final
@dataclass(slots=True, eq=False)
class OpenShare:
    """The writes of one replica in an open batch."""

    replica: Replica
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
            self.shares[replica] = OpenShare(replica, replica.appended, after, state_at, records)
        else:
            share.records += records
            share.after = after
            state = encode_state(replica.time, replica.config, after, share.before)
            self.batch.overwrite(share.state_at, state)
        replica.appends(records, after)

    def entries(self) -> Sequence[LogEntry]:
        """Return the log entries of the batch, once it is synced."""
        return [
            LogEntry(
                share.replica, tuple(share.records), share.before, share.after, is_own=True, position=self.position
            )
            for share in self.shares.values()
        ]
