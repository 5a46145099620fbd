"""Readiness of a replica for a session: the replica has all writes that the session has seen of its partition.

Reads and writes use one comparison. The replica's synced clock must cover every token entry whose assignment, present
or former, the record of the partition names. All other entries belong to other partitions, or have ended. Only a map at
least as new as the token tells those apart, so for a newer token the node reads the register first.

An entry beyond the end of an assignment in a force-join, and beyond the replica's clock, is a lost write. The request
fails with WriteLost and does not wait. A replica whose assignment has gone is ready for sessions with no newer map.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple, Never, final

from gossipkv.errors import BadRequest, GossipKVError, NotReady, NotServed, ProtocolError, WriteLost
from gossipkv.placement.partition import HAD, LEFT_OUT
from gossipkv.replication.replica import clock
from gossipkv.table.session.token import NOTHING, TableSeen, decode_body
from gossipkv.wire.arguments import MAX_TIMEOUT_MS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gossipkv.replication.deadlines import ParkedRequest, Waits
    from gossipkv.replication.replica.replica import Replica
    from gossipkv.replication.shell import Replication
    from gossipkv.table.ports import LookAt
    from gossipkv.table.session.token import Token
    from gossipkv.wire.arguments import Arguments
    from gossipkv.wire.results import Completion

BEHIND: Final = "waits_for"  # A key in the details of NotReady: the kind of state that the replica lacks.
UNSEEN: Final = TableSeen(0, b"")


@final
@dataclass(slots=True, eq=False)
class WantedClock:
    """The token that a replica must cover to answer a request, and the time to wait for that."""

    token: Token
    until: float  # The end of the wait.
    waits: Waits = field(default_factory=dict)  # All waits of the request, also for other reasons.


class _ParkedOnReplica(NamedTuple):
    replicas: Sequence[Replica]
    token: Token
    do: Callable[[], object]
    complete: Completion[Never]
    waiter: ParkedRequest


@final
class ReplicaReadiness:
    """Parks requests until local replicas are ready for them."""

    def __init__(self, replication: Callable[[], Replication], look_at: LookAt) -> None:
        """`replication` returns the open store's; `look_at` starts a read of a table's register."""
        self._replication = replication
        self._look_at = look_at
        self._waiting: dict[Replica, list[_ParkedOnReplica]] = {}  # By the replica that is not ready.

    def is_ready(self, replica: Replica, token: Token) -> bool:
        """Return True if a local replica may answer at once."""
        return not token or self._unready(self._replication(), [replica], token) is None

    def begin(
        self, replicas: Sequence[Replica], wanted: WantedClock, do: Callable[[], object], complete: Completion[Never]
    ) -> None:
        """Call `do`, which answers, once these replicas are ready; if they stay unready, complete with the reason.

        Raises:
            NotReady: a replica is not ready, and the request does not wait.
            WriteLost: a replica never will be ready.
            GossipKVError: raised by `do`.
        """
        replication = self._replication()
        unready = self._unready(replication, replicas, wanted.token)
        if unready is None:
            do()
            return
        replica, why = unready
        if wanted.until <= replication.now() or replica in replication.departed:  # A departed one gets no more records.
            raise why

        def late() -> None:
            try:
                found = self._unready(replication, replicas, wanted.token)
            except (WriteLost, NotServed) as gone:
                complete(gone)
            else:
                complete(why if found is None else found[1])

        size_bytes = sum(len(seen.clock) for seen in wanted.token.values())
        waiter = replication.waiting.begin(wanted.until, size_bytes, late, wanted.waits)
        self._wait(replica, _ParkedOnReplica(replicas, wanted.token, do, complete, waiter))

    def _unready(
        self, replication: Replication, replicas: Sequence[Replica], token: Token
    ) -> tuple[Replica, NotReady] | None:
        """Return the first replica that is not ready, and the reason.

        Raises:
            WriteLost: a replica never will be ready.
            NotServed: a replica was dropped, or its range was split.
        """
        if token:
            for replica in replicas:
                if replica not in replication.replicas.acks:
                    raise NotServed("the node no longer holds the partition", {"partition": replica.identity.partition})
                seen = token.get(replica.identity.table, UNSEEN)
                if seen.config > replication.maps.get(replica.identity.table, 0):
                    self._look_at(replica.identity.table, config=seen.config)
                    return replica, _behind(replica, "the session has seen a newer map of the table", "map")
                if replica in replication.replicas.loader.unplaced:
                    return replica, _behind(replica, "this replica uses a newer map once its bulk load is done", "map")
                if replica in replication.departed and seen.config > replica.config:
                    return replica, _behind(replica, "this node no longer holds the partition", "map")
                if replica.rules.ends and not _ends_are_known(replica, seen):
                    return replica, _behind(replica, "the writes kept of a lost node are not known yet", "ends")
                if not clock.covers(replica.synced, clock.named(seen.clock, replica.named)):
                    return replica, _behind(
                        replica, "this replica does not yet have the writes that the session has seen", "records"
                    )
        return None

    def _wait(self, replica: Replica, waits: _ParkedOnReplica) -> None:
        replicas = self._replication().replicas
        if (watcher := (self._moved, self._waiting)) not in replicas.watchers:
            replicas.watchers.append(watcher)
        waiting = [parked for parked in self._waiting.get(replica, ()) if parked.waiter.on_late is not None]
        self._waiting[replica] = [*waiting, waits]

    def _moved(self, replica: Replica) -> None:
        """Check parked requests again: the replica has synced records, or goes by a newer map."""
        waiting = self._waiting.pop(replica, ())
        replication = self._replication()
        for parked in waiting:
            if parked.waiter.on_late is None:
                continue
            try:
                unready = self._unready(replication, parked.replicas, parked.token)
                if unready is not None and unready[0] not in replication.departed:
                    self._wait(unready[0], parked)
                    continue
                if unready is not None:
                    raise unready[1]
                replication.waiting.end(parked.waiter)
                parked.do()
            except GossipKVError as error:
                replication.waiting.end(parked.waiter)
                parked.complete(error)


def wanted_of(arguments: Arguments, now: float) -> WantedClock:
    """Parse the last arguments of a request between hosts: `token body, wait_ms`, or nothing.

    Raises:
        BadRequest: they are malformed.
    """
    if arguments.is_over:
        return WantedClock(NOTHING, now)
    body, wait_ms = arguments.blob("session token"), arguments.whole("wait_ms", MAX_TIMEOUT_MS)
    arguments.end()
    try:
        return WantedClock(decode_body(body), now + wait_ms / 1000)
    except ProtocolError as error:
        raise BadRequest(f"{arguments.method}: {error.message}") from error


def is_behind(error: GossipKVError) -> bool:
    """Return True if the error says that a replica is not ready for a session; another replica may be."""
    return isinstance(error, NotReady) and BEHIND in error.details


def _ends_are_known(replica: Replica, seen: TableSeen) -> bool:
    """Return True if the ends of all assignments with seen but missing writes are known. Raises WriteLost."""
    ends, synced = dict(replica.rules.ends), replica.synced
    lacked = [end for end in replica.rules.ends if clock.counter(seen.clock, end[0]) > clock.counter(synced, end[0])]
    for assignment, end in lacked:
        if assignment == LEFT_OUT and seen.config <= (ends.get(HAD) or 0):
            continue
        if end is not None and clock.counter(seen.clock, assignment) > end:
            raise WriteLost(
                "the range was force-joined since the session began: writes that the session has seen may be lost"
                if assignment == LEFT_OUT
                else (
                    "the session has seen a write that was only on a node lost for good, and its range was force-joined"
                ),
                {"partition": replica.identity.partition, "assignment": f"{assignment:016x}", "kept": end},
            )
    return all(end is not None for _, end in lacked)


def _behind(replica: Replica, why: str, what: str) -> NotReady:
    return NotReady(why, {BEHIND: what, "partition": replica.identity.partition})
