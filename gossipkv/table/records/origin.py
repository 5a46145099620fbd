"""A write to one partition, at the replica that originates it.

here       find the local replicas of its keys, and wait until they are ready for the session
apply      check that they may originate and that the level can be reached
originate  write to their store
reached    answer once the level is reached, or UNKNOWN at the deadline, or when too few hosts live for the level
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar, final

import msgpack

from gossipkv.errors import (
    GossipKVError,
    LimitExceeded,
    NotReady,
    NotServed,
    ProtocolError,
    StorageError,
    TooLarge,
    Unavailable,
    Unknown,
)
from gossipkv.replication.replica import clock
from gossipkv.replication.replica.acks import slots_needed
from gossipkv.replication.replica.hlc import check_left
from gossipkv.replication.replica.smeared import sift
from gossipkv.table.records.forward import LOOK_S, HostRequest, held
from gossipkv.table.session.token import TableSeen, decode_body, only, size
from gossipkv.wire.arguments import ROW_BYTES, fits_message

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gossipkv.replication.deadlines import ParkedRequest
    from gossipkv.replication.replica.record import RecordWrite
    from gossipkv.replication.replica.replica import Replica
    from gossipkv.replication.replica_set import ReplicaSet
    from gossipkv.table.records.forward import RecordRequest
    from gossipkv.table.session.token import Token
    from gossipkv.wire.rpc import Value

    Writes = Mapping[Replica, list[RecordWrite]]

T = TypeVar("T")


class OriginWrite(HostRequest[T]):
    """Writes that the local replicas originate, or those of another host."""

    is_write = True

    def __init__(self, request: RecordRequest[T], partition: int, level: str, nodes: tuple[bytes, ...] = ()) -> None:
        super().__init__(request, nodes)
        self.partition, self.level = partition, level
        self._parked: ParkedRequest
        self._origins: Writes
        self._seen: Token
        self._unreached = 0  # Replicas, or origins of records that win over smeared puts, below the level.

    def _what(self) -> str:
        return f"partition {self.partition}"

    @abstractmethod
    def _by_replica(self) -> Writes:
        """Return the writes of this moment by local replica. Raises GossipKVError: this node lacks one of them."""

    @abstractmethod
    def _result(self, seen: Token) -> T:
        """Return the result; `seen`: the token of a session that has seen the writes."""

    def _here(self) -> None:
        """Write to the local replicas once they are ready. Raises GossipKVError: nothing was applied."""
        by_replica = self._by_replica()
        for replica in by_replica:
            if not replica.originates:
                words = "the partition leaves this node: other nodes take its writes"
                raise NotServed(words, {"partition": self.partition})
        if (wanted := self.request.wanted).token:
            wanted = replace(wanted, until=min(wanted.until, self.request.deadline))
            self.request.services.readiness.begin([*by_replica], wanted, self._apply_later, self.here_done)
        else:
            self._apply(by_replica)

    def _apply_later(self) -> None:
        self._apply(self._by_replica())

    def _apply(self, by_replica: Writes) -> None:
        """Write, as the origin. Raises GossipKVError: nothing was applied."""
        request, replicas = self.request, self.request.replication.replicas
        check_left(request.deadline - request.replication.now())
        for replica, writes in by_replica.items():
            check_originates(replicas, replica)
            check_level(replicas, replica, self.level)
            replica.requests += len(writes)
        self._originate(by_replica)

    def _originate(self, by_replica: Writes) -> None:
        request, replication, level = self.request, self.request.replication, self.level
        replicas = replication.replicas
        lost_to: dict[Replica, set[int]] = {}
        until = min(request.looks_at, request.deadline)
        self._parked = replication.waiting.begin(until, self.size_bytes, self._late, request.wanted.waits)
        self._origins = by_replica
        try:
            by_replica, lost_to = self._sifted(by_replica)
            counters = replicas.originate(by_replica) if by_replica else {}
        except GossipKVError as error:
            replication.waiting.end(self._parked)
            match error:
                case StorageError():
                    raise Unavailable(f"the node's store refuses writes: {error.message}") from error
                case LimitExceeded():
                    words = f"the write is too large for the node's log: {error.message}"
                    raise TooLarge(words, error.details) from error
            raise
        config = max(replica.config for replica in (*by_replica, *lost_to))
        self._seen = {self.table: TableSeen(config, clock.of(counters.items()))}
        for writes in by_replica.values():
            request.services.service.note(self.table, writes)
        self._unreached = len(by_replica) + sum(map(len, lost_to.values()))
        for replica in by_replica:
            replicas.acks[replica].wait(level, counters[replica.assignment], self._reached)
        for replica, origins in lost_to.items():
            acks = replicas.acks[replica]
            for origin in origins:
                acks.wait(level, clock.counter(replica.appended, origin), self._reached, origin=origin)
            acks.look()  # The level may have been reached long before.

    def _sifted(self, by_replica: Writes) -> tuple[Writes, dict[Replica, set[int]]]:
        """Return the writes as they are to be originated; and the origins of records that win over others."""
        if self.request.wanted.token:
            by_replica = {replica: self._depending(replica, writes) for replica, writes in by_replica.items()}
        return by_replica, {}

    def _depending(self, replica: Replica, writes: list[RecordWrite]) -> list[RecordWrite]:
        """Add the session's token to the writes, as their dependencies.

        Entries of the replica's own present assignments are omitted: the order of its log implies them.
        """
        token, own = self.request.wanted.token, self.table
        needed = only(token, lambda table, origin, _: table != own or origin not in replica.assigned)
        body = self.request.services.tokens.kept(needed)
        return [write._replace(dependencies=body) for write in writes]

    def _reached(self) -> None:
        self._unreached -= 1
        if not self._unreached and self._parked.on_late is not None:
            self.request.replication.waiting.end(self._parked)
            self.here_done(self._result(self._seen))

    def _late(self) -> None:
        request, replicas, waiting = self.request, self.request.replication.replicas, self.request.replication.waiting
        is_late = (now := request.replication.now()) >= request.deadline
        if is_late or not all(may_reach(replicas, replica, self.level) for replica in self._origins):
            self.here_done(not_reached(self.level, self.partition, is_late=is_late))
            return
        until = min(now + LOOK_S, request.deadline)  # The memory was free a moment before.
        self._parked = waiting.begin(until, self.size_bytes, self._late, request.wanted.waits)


@final
class PartitionWrite(OriginWrite["Token"]):
    """A batch of writes to one partition; its result is the token of a session that has seen them."""

    def __init__(
        self, request: RecordRequest[Token], partition: int, level: str, nodes: tuple[bytes, ...] = ()
    ) -> None:
        super().__init__(request, partition, level, nodes)
        self.writes: list[RecordWrite] = []
        self.is_accepted = False  # True of smeared puts, which keep the time of their acceptance.
        self._token_bytes = size(request.wanted.token) if request.wanted.token else 0

    def add(self, write: RecordWrite) -> None:
        """Add a write; one with a time is a smeared put, which another node accepted then."""
        self.writes.append(write)
        self.is_accepted = write.time > 0
        self.size_bytes += self._bytes_of(write)

    def has_room(self, write: RecordWrite) -> bool:
        """Return True if this write fits, for the log and for a message to another node."""
        return fits_message(len(self.writes) + 1, self.size_bytes + self._bytes_of(write))

    def _bytes_of(self, write: RecordWrite) -> int:
        return len(write.key) + len(write.value or b"") + self._token_bytes + ROW_BYTES

    # -- as a request to hosts -----------------------------------------------------------------------------------------

    @property
    def method(self) -> str:  # type: ignore[override]  # Two methods have the same way.
        """The method of other hosts."""
        return "table_accepted" if self.is_accepted else "table_write"

    def _params(self) -> list[Value]:
        if self.is_accepted:
            timed = [part for write in self.writes for part in (write.key, value_of(write), write.time)]
            return [self.table, self.partition, msgpack.packb(timed)]
        flat = [part for write in self.writes for part in (write.key, value_of(write))]
        return [self.table, self.partition, self.level, msgpack.packb(flat)]

    def _parsed(self, answer: Value) -> Token:
        if not isinstance(answer, bytes):
            raise Unknown("the answer of a node to a write is malformed")
        return token_of_host(answer)

    def encoded(self, result: Token) -> Value:
        """Return the body of the token."""
        return self.request.services.tokens.to_node(result)

    def _latest_hosts(self) -> tuple[bytes, ...]:
        return self.request.services.routing.route_of(self.table).place(self.writes[0].key).hosts

    # -- here ----------------------------------------------------------------------------------------------------------

    def _by_replica(self) -> Writes:
        """Return the local replicas of the keys: several, if the sender has not heard of a split of their range.

        Raises:
            NotServed: this node lacks one of them.
        """
        replicas = self.request.replication.replicas
        found: dict[Replica, list[RecordWrite]] = {}
        for write in self.writes:
            for replica in found:
                if replica.bounds.has(write.key):
                    break
            else:
                replica = held(replicas, self.table, self.partition, write.key)
            found.setdefault(replica, []).append(write)
        return found

    def _result(self, seen: Token) -> Token:
        return seen

    def _sifted(self, by_replica: Writes) -> tuple[Writes, dict[Replica, set[int]]]:
        """Return the smeared puts that are to be written, or all other writes."""
        if not self.is_accepted:
            return super()._sifted(by_replica)
        replication = self.request.replication
        now_ms, most_ahead_ms = replication.now_ms(), replication.replicas.skew.most_ms
        sifted = {
            replica: sift(replica, puts, replication.get, now_ms, most_ahead_ms) for replica, puts in by_replica.items()
        }
        written = {replica: puts for replica, (puts, _) in sifted.items() if puts}
        return written, {replica: origins for replica, (_, origins) in sifted.items() if origins}


def value_of(write: RecordWrite) -> Value:
    """Return the value of a write for other nodes, with its expiry if it has one; nil of a delete."""
    return [write.value, write.expiry] if write.expiry and write.value is not None else write.value


def token_of_host(body: bytes) -> Token:
    """Return the token of a host's answer to a write. Raises Unknown: it is malformed."""
    try:
        return decode_body(body)
    except ProtocolError as damaged:
        raise Unknown(f"the token in a node's answer is malformed: {damaged.message}") from damaged


def not_reached(level: str, partition: int, *, is_late: bool) -> Unknown:
    """Return the error of a write that is applied and has not reached its level: it is late, or too few hosts live."""
    why = "in time" if is_late else "since too few replicas are alive"
    words = f"the write was applied, but did not reach the level {level} {why}, and may become visible"
    return Unknown(words, {"level": level, "partition": partition})


def may_reach(replicas: ReplicaSet, replica: Replica, level: str) -> bool:
    """Return True if enough slots for the level have hosts that are not dead; also for a replica that was divided."""
    acks = replicas.acks.get(replica)
    return acks is None or acks.confirming(replicas.is_up) >= slots_needed(level, replica.quorum.slots)


def check_originates(replicas: ReplicaSet, replica: Replica) -> None:
    """Raise Unavailable if the replica may never originate, or NotReady if it may not yet."""
    if not replicas.may_originate(replica):
        if (why := replicas.refusal(replica)) is not None:
            raise Unavailable(why)
        raise NotReady("the replica has just started and compares its records with other replicas, or ends a bulk load")


def check_level(replicas: ReplicaSet, replica: Replica, level: str) -> None:
    """Raise Unavailable if a write cannot reach the level, or NotReady if only clocks of linked nodes are missing."""
    levels = replicas.acks[replica]
    needed = slots_needed(level, replica.quorum.slots)
    if needed > 1 and (there := levels.confirming(replicas.confirms)) < needed:
        words = f"level {level} needs {needed} slots of the partition, and {there} can confirm"
        details = {"partition": replica.identity.partition, "connected": there, "needed": needed}
        linked = {node for node, peer in replicas.peers.items() if peer.link or peer.restart_at is not None}
        is_soon = levels.confirming(lambda node: node in linked and replicas.is_up(node)) >= needed
        raise (NotReady if is_soon else Unavailable)(words, {**details})
