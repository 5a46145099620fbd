"""The plain writes that a serving loop has gathered: they make one batch, and those of a replica wait together.

What `write` and `origin` do for each request is done once for each replica here. Nothing is refused here: the loop lets
`TableWrites` answer the writes that are not begun, which finds the reason, or other hosts, for each.
"""

from __future__ import annotations

from functools import partial
from math import inf
from typing import TYPE_CHECKING, final

from gossipkv.errors import GossipKVError, Overloaded
from gossipkv.replication.replica.acks import count_beginning
from gossipkv.table.records.forward import LOOK_S
from gossipkv.table.records.origin import may_reach, not_reached

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gossipkv.replication.deadlines import ParkedRequest
    from gossipkv.replication.replica_set import ReplicaSet
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
    # A split may have left a key to a later replica: all writes behind one that may not begin come after it.
    if may_begin := gathered[: _count_beginning(replication.replicas, gathered)]:
        _BegunWrites(replication, may_begin, refuse).begin()
    return True


def _count_beginning(replicas: ReplicaSet, gathered: Sequence[GatheredWrites]) -> int:
    """Return how many of the writes, from the first one on, may begin."""
    if replicas.skew.refusal() is not None:
        return 0
    confirms = {node: replicas.confirms(node) for node in replicas.peers}
    return count_beginning(gathered, replicas.acks, confirms.get, replicas.may_originate)


@final
class _BegunWrites:
    """Gathered writes, from their batch to the last answer."""

    def __init__(self, replication: Replication, gathered: Sequence[GatheredWrites], refuse: Refuse) -> None:
        self._replication, self._refuse = replication, refuse
        self._waiting = dict.fromkeys(gathered)  # Those with a write that is not answered.
        self._parked: ParkedRequest

    def begin(self) -> None:
        """Write, if there is memory to await the levels and the store accepts the batch."""
        replicas, now = self._replication.replicas, self._replication.now()
        try:
            self._park(now + min(writes.shortest_s for writes in self._waiting))
        except Overloaded:
            return
        try:
            counters = replicas.originate({writes.replica: writes.writes for writes in self._waiting})
        except GossipKVError:
            self._replication.waiting.end(self._parked)
            return
        for writes in self._waiting:
            replica, rows = writes.replica, len(writes.writes)
            last = counters[replica.assignment]
            writes.begin(last, now)
            replica.requests += rows
            for level, up_to in writes.levels.items():
                replicas.acks[replica].wait(level, last - rows + up_to, partial(self._reached, writes, level))

    def _park(self, due: float) -> None:
        """Take memory for the waiting writes, until the next look at them. Raises Overloaded."""
        size_bytes = sum(writes.size_bytes for writes in self._waiting)
        until = min(due, self._replication.now() + LOOK_S)
        self._parked = self._replication.waiting.begin(until, size_bytes, self._late)

    def _reached(self, writes: GatheredWrites, level: str) -> None:
        writes.reached(level)
        if not writes.waiting and writes in self._waiting:
            del self._waiting[writes]
            if not self._waiting:
                self._replication.waiting.end(self._parked)

    def _late(self) -> None:
        now = self._replication.now()
        for writes in [*self._waiting]:
            late = writes.late_levels(now)
            for level in writes.late_levels(inf):
                is_late = may_reach(self._replication.replicas, writes.replica, level)
                if level in late or not is_late:
                    error = not_reached(level, writes.replica.partition[1], is_late=is_late)
                    writes.refuse_late(level, now if is_late else inf, self._refuse(error))
            if not writes.waiting:
                del self._waiting[writes]
        if self._waiting:
            self._park(min(writes.due for writes in self._waiting))  # The memory was free a moment before.
