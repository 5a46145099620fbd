"""Forwarding of a request to a host of its partition: this node first, then the other hosts of the map in turn.

A host never forwards a request further. A read goes on to the next host after a refusal, a failure or the stage
timeout; the first answer counts. A write goes on only if it was certainly not applied: refused or never sent. A write
without an answer is *unknown*, so no write is sent to a host that gossip calls dead.

A write has a deadline by the host's own clock. A host that was frozen or cut off refuses the write after the deadline,
so the write cannot undo newer ones.

A new partition may not be on its hosts yet. If a host refused for that reason and no host has answered, all hosts are
asked again until the request times out.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final, final

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
from gossipkv.table.session.readiness import is_behind
from gossipkv.table.session.token import encode_body

if TYPE_CHECKING:
    from collections.abc import Callable

    from gossipkv.replication.deadlines import ParkedRequest
    from gossipkv.replication.replica.replica import Replica
    from gossipkv.replication.replica_set import ReplicaSet
    from gossipkv.replication.shell import OnAnswer, Replication
    from gossipkv.table.records.router import Router
    from gossipkv.table.session.readiness import WantedClock
    from gossipkv.wire.results import OnResult
    from gossipkv.wire.rpc import Value

    # Takes the result or the error of a request, and the node that answered.
    OnAnswered = Callable[[Value, GossipKVError | None, bytes], object]
    # Answers on this node as a host. Raises GossipKVError if this node cannot; then nothing was applied.
    Here = Callable[[OnAnswer], object]

RETRY_S: Final = 0.02  # Hosts adopt a new map within 100 ms; ask those that lack the partition again at this interval.
WAIT_PART: Final = 0.9  # A host may wait for this part of the time left, so that its answer arrives in time.
EARLY: Final = (NotServed, NotReady)
REFUSED: Final = (*EARLY, Unavailable, Overloaded, TimedOut, UnknownMethod)  # After these errors nothing was applied.


@final
@dataclass(slots=True, eq=False)
class ForwardRequest:
    """A pending request to the hosts of one partition, or of several partitions with the same hosts."""

    what: str  # Names the target in error messages.
    nodes: tuple[bytes, ...]
    here: Here
    method: str
    params: list[Value]  # `_go_on` appends a write's deadline by the host's clock, the token and `wait_ms`.
    size_bytes: int  # The memory that the request holds until it is answered.
    deadline: float
    on_done: OnAnswered
    wanted: WantedClock
    is_write: bool = False
    renewed: Callable[[], tuple[bytes, ...]] | None = None  # Returns the hosts by the latest map, for a retry.
    local: bool = False  # True: ask no other node.
    left: list[bytes] = field(default_factory=list)  # Hosts that are still to be asked.
    asked: int = 0  # Hosts that were asked and have not answered.
    refusals: dict[str, GossipKVError] = field(default_factory=dict)  # By host name.
    waiter: ParkedRequest | None = None
    is_over: bool = False


@final
class Forwarder:
    """Forwards the requests of this node to hosts."""

    def __init__(
        self, routing: Router, replication: Callable[[], Replication], name_of: Callable[[bytes], str], stage_s: float
    ) -> None:
        """`replication` returns the open store's, or raises `NotReady`; `stage_s`: a read's time for each host."""
        self._routing = routing
        self._replication = replication
        self._name_of = name_of
        self._stage_s = stage_s

    def begin(self, request: ForwardRequest) -> None:
        """Start or restart a request; `on_done` is called once."""
        request.waiter = None
        if request.refusals and request.renewed is not None:
            with contextlib.suppress(GossipKVError):
                request.nodes = request.renewed()
        try:
            request.here(partial(self._answered_here, request))
        except GossipKVError as error:
            self._answered_here(request, None, error)

    def _answered_here(self, request: ForwardRequest, result: Value, error: GossipKVError | None) -> None:
        me = self._replication().replicas.me
        if error is None or not _may_go_on(error, request):
            self._end(request, result, error, me)
            return
        is_host = me in request.nodes or not isinstance(error, NotServed)
        request.refusals = {self._name_of(me): error} if is_host else {}
        remaining = [node for node in request.nodes if node != me]
        if request.is_write:  # A dead host would leave the outcome unknown.
            down = self._routing.down(remaining)
            request.refusals |= dict.fromkeys(down, Unavailable("it is dead, as far as gossip knows"))
            remaining = [node for node in remaining if self._name_of(node) not in down]
        request.left = self._routing.hosts(remaining)
        self._go_on(request)

    def _go_on(self, request: ForwardRequest) -> None:
        """Ask the next host, unless a write is pending; if no host is left, wait for the hosts that were asked."""
        if request.is_over:
            return
        replication = self._replication()
        self._wait_no_more(request)
        now = replication.now()
        is_late = now >= request.deadline
        may_ask = not is_late and not (request.is_write and request.asked)
        host = request.left.pop(0) if request.left and may_ask else None
        do, until = self._go_on, request.deadline
        if host is None and (is_late or not request.asked):
            until = now + RETRY_S
            if until >= request.deadline or not any(map(_is_early, request.refusals.values())):
                self._fail(request)
                return
            do = self.begin
        elif request.left:
            until = min(until, now + self._stage_s)
        try:
            request.waiter = replication.waiting.begin(until, request.size_bytes, partial(do, request))
        except Overloaded as error:
            self._end(request, None, error, replication.replicas.me)
            return
        if host is not None:
            request.asked += 1
            left_s = request.deadline - now
            wait_s = max(0.0, min(left_s * WAIT_PART, request.wanted.until - now))
            is_write, params = request.is_write, [*request.params]
            params += [replication.replicas.skew.deadline(host, left_s)] if is_write else []
            params += encode_body(request.wanted.token), int(wait_s * 1000)
            replication.ask_whole(host, request.method, params, left_s, partial(self._answered, request, host))

    def _answered(self, request: ForwardRequest, host: bytes, result: Value, error: GossipKVError | None) -> None:
        request.asked -= 1
        # The deadline has not passed here, so the host's clock was stepped: forget its offset.
        if isinstance(error, TimedOut) and not request.is_over:
            self._replication().replicas.skew.forget(host)
        if error is not None and _may_go_on(error, request):
            request.refusals[self._name_of(host)] = error
            self._go_on(request)
            return
        if error is not None and not isinstance(error, RequestError | Unknown | WriteLost):
            error = Unknown(f"{self._name_of(host)}: {error.message}", error.details)
        self._end(request, result, error, host)

    def _fail(self, request: ForwardRequest) -> None:
        me = self._replication().replicas.me
        if request.is_write and request.asked:
            self._end(request, None, Unknown(f"{request.what}: the write was sent, and no answer came in time"), me)
            return
        lost = next((error for error in request.refusals.values() if isinstance(error, WriteLost)), None)
        if lost is not None:  # A lost write outweighs all other refusals.
            self._end(request, None, lost, me)
            return
        reasons = "; ".join(f"{name}: {error.message}" for name, error in request.refusals.items())
        behind = next(filter(is_behind, request.refusals.values()), None)
        if behind is not None:
            words = f"{request.what}: no replica that was asked is ready: {reasons}"
            self._end(request, None, NotReady(words, behind.details), me)
            return
        done = "takes the write, and nothing was applied" if request.is_write else "answers"
        kinds = {*map(type, request.refusals.values())}
        kind = next((refusal for refusal in (Overloaded, TimedOut) if kinds == {refusal}), Unavailable)
        self._end(
            request,
            None,
            kind(
                f"{request.what}: no host {done}: {reasons or 'none has answered in time'}",
                {"asked": {name: error.message for name, error in request.refusals.items()}},
            ),
            me,
        )

    def _end(self, request: ForwardRequest, result: Value, error: GossipKVError | None, node: bytes) -> None:
        if not request.is_over:
            request.is_over = True
            self._wait_no_more(request)
            request.on_done(result, error, node)

    def _wait_no_more(self, request: ForwardRequest) -> None:
        if request.waiter is not None:
            self._replication().waiting.end(request.waiter)
            request.waiter = None


def answering(on_result: OnResult) -> OnAnswer:
    """Adapt `on_result` of a request from another node to the answer of a host."""
    return lambda result, error: on_result(result if error is None else error)


def held(replicas: ReplicaSet, table: bytes, partition: int, key: bytes | None = None) -> Replica:
    """Find the local replica that answers for a partition.

    With a key, the replica of the key's range is returned, even under another id: the two nodes may know different
    splits of the range.

    Raises:
        NotServed: this node has no such replica.
    """
    replica = replicas.by_partition.get((table, partition))
    if key is not None and (replica is None or not replica.bounds.has(key)):
        replica = replicas.spaces.at(table, key)
    return serving(replica, partition)


def serving(replica: Replica | None, partition: int) -> Replica:
    """Return the replica if it answers for its partition. Raises `NotServed` if it does not, or is None."""
    if replica is not None and (role := replica.role) is not None and role.available:
        return replica
    raise NotServed("it does not hold the partition, or not yet", {"partition": partition})


def _is_early(error: GossipKVError) -> bool:
    """Return True if the host may accept the request soon, without a wait for a session."""
    return isinstance(error, EARLY) and not is_behind(error)


def _may_go_on(error: GossipKVError, request: ForwardRequest) -> bool:
    """Return True if another host may be asked after this error."""
    if request.local:
        return False
    return isinstance(error, REFUSED) or not (request.is_write or isinstance(error, RequestError))
