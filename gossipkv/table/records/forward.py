"""Requests to the hosts of a partition: this node first, then the other hosts of the map in turn.

A host never forwards a request further. A read goes on to the next host after a refusal, a failure or the stage
timeout; the first answer counts. A write goes on only if it was certainly not applied: refused or never sent. A write
without an answer is *unknown*, so no write is sent to a host that gossip calls dead.

A write has a deadline by the host's own clock. A host that was frozen or cut off refuses the write after the deadline,
so the write cannot undo newer ones.

A new partition may not be on its hosts yet, and connections end. If a host refused a request for the first reason, or
left a read without an answer for the second, and no host has answered, all are asked again until the timeout. The same
holds for a write while the hosts merge what they have: their stores have room again soon.
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Final, Generic, TypeVar, final

from gossipkv.errors import (
    GossipKVError,
    NotReady,
    NotServed,
    Overloaded,
    RequestError,
    TimedOut,
    Unavailable,
    Unknown,
    UnknownMethod,
    WriteLost,
)
from gossipkv.table.session.readiness import WantedClock, is_behind
from gossipkv.table.session.token import NOTHING, encode_body
from gossipkv.wire.results import NotAnswered

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Sequence

    from gossipkv.replication.deadlines import ParkedRequest
    from gossipkv.replication.replica.replica import Replica
    from gossipkv.replication.replica_set import ReplicaSet
    from gossipkv.replication.shell import Replication
    from gossipkv.table.records.router import Router
    from gossipkv.table.records.token_compaction import TokenCompactor
    from gossipkv.table.service import TableService
    from gossipkv.table.session.readiness import ReplicaReadiness
    from gossipkv.wire.results import Completion, Packed
    from gossipkv.wire.rpc import Value

T = TypeVar("T")

UNDER_WAY_BYTES: Final = 1 << 20  # Hosts refuse more parts of a request at once, since the queues to them have limits.
MAX_RETRY_S: Final = 0.5  # The pause doubles up to this while stores have no room.
RETRY_S: Final = 0.02  # Hosts adopt a new map within 100 ms; ask those that lack the partition again at this interval.
LOOK_S: Final = 0.5  # Interval at which a waiting write looks for hosts that have died.
WAIT_PART: Final = 0.9  # A host may wait for this part of the time left, so that its answer arrives in time.
EARLY: Final = (NotServed, NotReady)
REFUSED: Final = (*EARLY, Unavailable, Overloaded, TimedOut, UnknownMethod)  # After these errors nothing was applied.


@final
@dataclass(slots=True, eq=False)
class RecordServices:
    """The tables of this node, the way to the hosts of partitions, the sessions, and the limits of requests."""

    service: TableService
    routing: Router
    readiness: ReplicaReadiness
    tokens: TokenCompactor
    name_of: Callable[[bytes], str]
    stage_s: float  # A read's time for each host.
    most_key: int
    most_value: int
    scan_limit: int
    writes_failed: Counter[str]  # Clients' failed writes, by the code of the error.


class RecordRequest(ABC, Generic[T]):
    """A request about records: of a client, of another node, or of this node itself. Its parts go to hosts."""

    services: RecordServices
    replication: Replication  # The replicas of the store that was open when the request began.
    table: bytes  # The table's id.
    wanted: WantedClock  # The token that a replica must cover to answer.
    deadline: float
    looks_at: float  # When writes first look for hosts that have died.
    local: bool  # True: ask no other node.
    # Parts that are still to begin, the first one last.
    waiting_parts: list[HostRequest[T]] | tuple[()] = ()
    _under_way_bytes = 0
    _begins = False

    def begin_parts(self, parts: Sequence[HostRequest[T]]) -> None:
        """Begin the parts of the request, later ones after the ends of earlier ones if they are large."""
        *self.waiting_parts, first = parts[::-1]
        self._under_way_bytes = first.size_bytes
        first.begin()
        if self.waiting_parts:
            self.begin_more()

    def begin_more(self, ended_bytes: int = 0) -> None:
        """Begin further parts, after the end of one of that size."""
        self._under_way_bytes -= ended_bytes
        if self._begins:  # A part has ended at once, in the loop below.
            return
        self._begins = True
        while self.waiting_parts and self._under_way_bytes < UNDER_WAY_BYTES:
            part = self.waiting_parts.pop()
            self._under_way_bytes += part.size_bytes
            part.begin()
        self._begins = False

    def leave(self) -> None:
        """End all waits as at the deadline, because the client has left; writes that were sent go on."""
        self.deadline = self.wanted.until = self.replication.now()
        self.waiting_parts = []
        for parked in [*self.wanted.waits]:
            self.replication.waiting.hurry(parked)

    @abstractmethod
    def part_done(self, part: HostRequest[T], result: T | GossipKVError) -> None:
        """Take the result of a part; `part.node` is the node that answered."""


@final
class NodeRequest(RecordRequest[T]):
    """A request of another node to this host."""

    def __init__(self, services: RecordServices, table: bytes) -> None:
        """Begin; the request's part is to be set."""
        self.services, self.replication, self.table = services, services.service.replicating(), table
        self.deadline, self.local = self.replication.now(), True
        self.looks_at = self.deadline + LOOK_S
        self.wanted = WantedClock(NOTHING, self.deadline)
        self.part: HostRequest[T]
        self._complete: Completion[Value | Packed]

    def begin(self, complete: Completion[Value | Packed]) -> Callable[[], None]:
        """Answer the request; return a function that ends its waits."""
        self._complete = complete
        self.part.begin()
        return self.leave

    def part_done(self, part: HostRequest[T], result: T | GossipKVError) -> None:
        """Answer the other node."""
        self._complete(result if isinstance(result, GossipKVError) else part.encoded(result))


class HostRequest(ABC, Generic[T]):
    """The part of a request that the hosts of one partition answer, or of several partitions with the same hosts."""

    method: ClassVar[str]
    is_write: ClassVar[bool] = False

    def __init__(self, request: RecordRequest[T], nodes: tuple[bytes, ...] = ()) -> None:
        """`nodes`: the hosts; they are not asked if the request is `local`."""
        self.request, self.table, self.nodes = request, request.table, nodes
        self.size_bytes = 0  # The memory that the part holds until it is answered.
        self.node = b""  # The node that answered.
        self._is_over = False
        self._waiter: ParkedRequest | None = None
        self._left: list[bytes] = []  # Hosts that are still to be asked.
        self._asked = 0  # Hosts that were asked and have not answered.
        self._pause_s = RETRY_S
        self._refusals: dict[str, GossipKVError] = {}  # By host name.

    @abstractmethod
    def _here(self) -> None:
        """Answer as a host, by `here_done`. Raises GossipKVError if this node cannot; then nothing was applied."""

    @abstractmethod
    def _what(self) -> str:
        """Return the target, in words for error messages."""

    @abstractmethod
    def _params(self) -> list[Value]:
        """Return the parameters for another host, without those that all methods have at their end."""

    @abstractmethod
    def _parsed(self, answer: Value) -> T:
        """Read another host's answer. Raises GossipKVError, for the request, if it is malformed."""

    @abstractmethod
    def encoded(self, result: T) -> Value | Packed:
        """Return the result for another node, which `_parsed` reads."""

    def _latest_hosts(self) -> tuple[bytes, ...]:
        """Return the hosts for a retry. Raises GossipKVError if they are not known now."""
        return self.nodes

    # -- the way through the hosts -------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Begin; the request gets one result."""
        try:
            self._here()
        except GossipKVError as error:
            self.here_done(error)

    def here_done(self, result: T | GossipKVError) -> None:
        """Take the local answer; after a refusal, go on to the other hosts."""
        me = self.request.replication.replicas.me
        if not isinstance(result, GossipKVError) or not self._may_go_on(result):
            self._end(result, me)
            return
        is_host = me in self.nodes or not isinstance(result, NotServed)
        name_of, routing = self.request.services.name_of, self.request.services.routing
        self._refusals = {name_of(me): result} if is_host else {}
        remaining = [node for node in self.nodes if node != me]
        if self.is_write:  # A dead host would leave the outcome unknown.
            down = routing.down(remaining)
            self._refusals |= dict.fromkeys(down, Unavailable("the node is dead according to gossip"))
            remaining = [node for node in remaining if name_of(node) not in down]
        self._left = routing.hosts(remaining)
        self._go_on()

    def _again(self) -> None:
        self._waiter = None
        with contextlib.suppress(GossipKVError):
            self.nodes = self._latest_hosts()
        self.begin()

    def _go_on(self) -> None:
        """Ask the next host, unless a write is pending; if no host is left, wait for the hosts that were asked."""
        if self._is_over:
            return
        request, replication = self.request, self.request.replication
        self._wait_no_more()
        now, deadline = replication.now(), request.deadline
        is_late = now >= deadline
        may_ask = not is_late and not (self.is_write and self._asked)
        host = self._left.pop(0) if self._left and may_ask else None
        do, until = self._go_on, deadline
        if host is None and (is_late or not self._asked):
            until = now + self._pause_s
            if any(map(has_no_room, self._refusals.values())):
                self._pause_s = min(2 * self._pause_s, MAX_RETRY_S)
                until = min(until, max(now + RETRY_S, deadline - RETRY_S))  # A last attempt, shortly before the end.
            if until >= deadline or not any(map(self._is_early, self._refusals.values())):
                self._end(self._failure(), replication.replicas.me)
                return
            do = self._again
        elif self._left:
            until = min(until, now + request.services.stage_s)
        try:
            self._waiter = replication.waiting.begin(until, self.size_bytes, do, request.wanted.waits)
        except Overloaded as error:
            self._end(error, replication.replicas.me)
            return
        if host is not None:
            self._asked += 1
            left_s = deadline - now
            wait_s = max(0.0, min(left_s * WAIT_PART, request.wanted.until - now))
            params = self._params()
            params += [replication.replicas.skew.deadline(host, left_s)] if self.is_write else []
            params += encode_body(request.wanted.token), int(wait_s * 1000)
            replication.ask(host, self.method, params, partial(self._answered, host), left_s)

    def _answered(self, host: bytes, answer: Value | GossipKVError) -> None:
        self._asked -= 1
        if not isinstance(answer, GossipKVError):
            result: T | GossipKVError
            try:
                result = self._parsed(answer)
            except GossipKVError as malformed:
                result = malformed
            self._end(result, host)
            return
        # The deadline has not passed here, so the host's clock was stepped: forget its offset.
        if isinstance(answer, TimedOut) and not self._is_over:
            self.request.replication.replicas.skew.forget(host)
        name = self.request.services.name_of(host)
        if self._may_go_on(answer):
            self._refusals[name] = answer
            self._go_on()
        elif isinstance(answer, RequestError | Unknown | WriteLost):
            self._end(answer, host)
        else:
            self._end(Unknown(f"{name}: {answer.message}", answer.details), host)

    def _failure(self) -> GossipKVError:
        """Return the error after all hosts have refused, or the time is over."""
        refusals = self._refusals
        if self.is_write and self._asked:
            return Unknown(f"{self._what()}: the write was sent, and no node answered in time")
        lost = next((error for error in refusals.values() if isinstance(error, WriteLost)), None)
        if lost is not None:  # A lost write outweighs all other refusals.
            return lost
        reasons = "; ".join(f"{name}: {error.message}" for name, error in refusals.items())
        behind = next(filter(is_behind, refusals.values()), None)
        if behind is not None:
            return NotReady(f"{self._what()}: no asked replica is ready: {reasons}", behind.details)
        done = "takes the write, and nothing was applied" if self.is_write else "answers"
        kinds = {*map(type, refusals.values())}
        kind = next((refusal for refusal in (Overloaded, TimedOut) if kinds == {refusal}), Unavailable)
        return kind(
            f"{self._what()}: no host {done}: {reasons or 'no host answered in time'}",
            {"asked": {name: error.message for name, error in refusals.items()}},
        )

    def _end(self, result: T | GossipKVError, node: bytes) -> None:
        if not self._is_over:
            self._is_over, self.node = True, node
            if self._waiter is not None:
                self._wait_no_more()
            self.request.part_done(self, result)
            if self.request.waiting_parts:
                self.request.begin_more(self.size_bytes)

    def _wait_no_more(self) -> None:
        if self._waiter is not None:
            self.request.replication.waiting.end(self._waiter)
            self._waiter = None

    def _may_go_on(self, error: GossipKVError) -> bool:
        """Return True if another host may be asked after this error."""
        if self.request.local:
            return False
        return isinstance(error, REFUSED) or not (self.is_write or isinstance(error, RequestError))

    def _is_early(self, error: GossipKVError) -> bool:
        """Return True if the host may accept the request soon, without a wait for a session."""
        if isinstance(error, NotAnswered):  # The connection to the host ended; another one begins soon.
            return not self.is_write
        return (isinstance(error, EARLY) and not is_behind(error)) or has_no_room(error)


def has_no_room(error: GossipKVError) -> bool:
    """Return True if a host's store has refused a write for now, and merges to make room."""
    return isinstance(error, Overloaded) and error.details.get("passes") is True


def held(replicas: ReplicaSet, table: bytes, partition: int, key: bytes | None = None) -> Replica:
    """Find the local replica that answers for a partition.

    With a key, the replica of the key's range is returned, even under another id: the two nodes may know different
    splits of the range.

    Raises:
        NotServed: this node has no such replica.
    """
    replica = replicas.by_partition.get((table, partition))
    if key is not None:
        first, end = (b"", b"") if replica is None else replica.bounds
        if key < first or (end is not None and key >= end):
            replica = replicas.spaces.at(table, key)
    return serving(replica, partition)


def serving(replica: Replica | None, partition: int) -> Replica:
    """Return the replica if it answers for its partition. Raises `NotServed` if it does not, or is None."""
    if replica is not None and replica.role is not None and replica.role.available:
        return replica
    raise NotServed("the node does not hold the partition, or not yet", {"partition": partition})
