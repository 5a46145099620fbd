"""The plain writes that a serving loop has gathered: they make one batch, and those of a replica wait together.

What `write` and `origin` do for each request is done once for each replica here. Nothing is refused here: the loop lets
`TableWrites` answer the writes that are not begun, which finds the reason, or other hosts, for each.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, final

from gossipkv.errors import GossipKVError
from gossipkv.table.records.origin import check_level, check_originates, not_in_time

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gossipkv.replication.deadlines import ParkedRequest
    from gossipkv.replication.shell import Replication
    from gossipkv.table.ports import GatheredWrites, Refuse
    from gossipkv.table.records.forward import RecordServices


def begin_writes(
    services: RecordServices, gathered: Sequence[GatheredWrites], refuse: Refuse, *, may_wait: bool
) -> bool:
    """Begin gathered writes, if their replicas may originate now; `refuse` packs the errors of those that are late.

    Return False if they are to be gathered further, until the store has written the group under way.
    """
    replication = services.service.replicating()
    if may_wait and replication.is_writing:
        services.service.hold_writes()
        return False
    may_begin = [_BegunWrites(replication, writes, refuse) for writes in gathered if _may_begin(replication, writes)]
    parked = [begun for begun in may_begin if begun.park()]
    if not parked:
        return True
    try:
        counters = replication.replicas.originate({begun.writes.replica: begun.writes.writes for begun in parked})
    except GossipKVError:
        for begun in parked:
            begun.end()
        return True
    for begun in parked:
        begun.begin(counters[begun.writes.replica.assignment])
    return True


def _may_begin(replication: Replication, writes: GatheredWrites) -> bool:
    replicas, replica = replication.replicas, writes.replica
    try:
        check_originates(replicas, replica)
        for level in writes.levels:
            check_level(replicas, replica, level)
    except GossipKVError:
        return False
    return True


@final
class _BegunWrites:
    """Gathered writes of a replica, from their batch to the last answer."""

    def __init__(self, replication: Replication, writes: GatheredWrites, refuse: Refuse) -> None:
        self.writes = writes
        self._replication, self._refuse = replication, refuse
        self._parked: ParkedRequest

    def park(self) -> bool:
        """Take memory for the writes, until the first deadline; return False if there is none."""
        replication, writes = self._replication, self.writes
        due = writes.due if writes.has_begun else replication.now() + writes.shortest_s
        try:
            self._parked = replication.waiting.begin(due, writes.size_bytes, self._late)
        except GossipKVError:
            return False
        return True

    def end(self) -> None:
        """Free the memory."""
        self._replication.waiting.end(self._parked)

    def begin(self, last_counter: int) -> None:
        """Await the levels of the writes, which are in the open batch; the last one has that counter."""
        writes, replica = self.writes, self.writes.replica
        writes.begin(last_counter, self._replication.now())
        replica.requests += len(writes.writes)
        acks, before = self._replication.replicas.acks[replica], last_counter - len(writes.writes)
        for level, rows in writes.levels.items():
            acks.wait(level, before + rows, partial(self._reached, level))

    def _reached(self, level: str) -> None:
        self.writes.reached(level)
        if not self.writes.waiting:
            self.end()

    def _late(self) -> None:
        writes, now = self.writes, self._replication.now()
        for level in writes.late_levels(now):
            writes.refuse_late(level, now, self._refuse(not_in_time(level, writes.replica.partition[1])))
        if writes.waiting:
            is_parked = self.park()
            assert is_parked, "the memory was free a moment before"
