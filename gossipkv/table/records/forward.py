"""How a request comes to a host of its partition: here, else at the others that the map names, one after the other.

A host is asked in the name of a client once, and never asks further.  A read goes on to the next host when one refuses,
fails, or lets a stage pass, and the first answer counts.  A write goes on only when it was certainly not applied:
refused, or never sent; what was sent and not answered is *unknown*, so none is sent to those that gossip calls dead.
It has a deadline by the host's own clock: a host that was frozen, or cut off, refuses it behind that, so it never
undoes what was written since.

One rule for what has just been made: where a host refused since it does not hold the partition yet, and none has
answered, all are asked again soon, until the request's time is over.
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

    # What becomes of a request: a result and who has answered, or why there is none.
    OnAnswered = Callable[[Value, GossipKVError | None, bytes], object]
    # Has this node answer as a host.  Raises GossipKVError: it does not, and nothing was applied.
    Here = Callable[[OnAnswer], object]

RETRY_S: Final = 0.02  # Until hosts are asked again that do not hold what they will: they adopt a map within 100 ms.
WAIT_PART: Final = 0.9  # Of what is left a host waits so much at most: its answer is to come in time.
EARLY: Final = (NotServed, NotReady)
REFUSED: Final = (*EARLY, Unavailable, Overloaded, TimedOut, UnknownMethod)  # Nothing was applied.


@final
@dataclass(slots=True, eq=False)
class ForwardRequest:
    """A request to the hosts of a partition, or of several that the same hosts have, that is under way."""

    what: str  # For people.
    nodes: tuple[bytes, ...]
    here: Here
    method: str
    params: list[Value]  # Behind them come the deadline of a write, by the host's clock, and what is wanted of a host.
    size_bytes: int  # Of what is held until the answer comes.
    deadline: float
    on_done: OnAnswered
    wanted: WantedClock
    is_write: bool = False
    renewed: Callable[[], tuple[bytes, ...]] | None = None  # The nodes by the map that is known when it begins again.
    local: bool = False  # No other node is asked.
    left: list[bytes] = field(default_factory=list)  # Who is to be asked yet.
    asked: int = 0  # Those that have not answered yet.
    refusals: dict[str, GossipKVError] = field(default_factory=dict)  # By the names of hosts.
    waiter: ParkedRequest | None = None
    is_over: bool = False


@final
class Forwarder:
    """All requests of this node to hosts."""

    def __init__(
        self, routing: Router, replication: Callable[[], Replication], name_of: Callable[[bytes], str], stage_s: float
    ) -> None:
        """`replication`: of the store as it is open now; raises `NotReady`.  `stage_s`: what a read gives a host."""
        self._routing = routing
        self._replication = replication
        self._name_of = name_of
        self._stage_s = stage_s

    def begin(self, request: ForwardRequest) -> None:
        """Have a request answered; its `on_done` is called once."""
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
        others = [node for node in request.nodes if node != me]
        if request.is_write:  # The dead would not answer, and nobody would know what became of it.
            down = self._routing.down(others)
            request.refusals |= dict.fromkeys(down, Unavailable("it is dead, as far as gossip knows"))
            others = [node for node in others if self._name_of(node) not in down]
        request.left = self._routing.hosts(others)
        self._go_on(request)

    def _go_on(self, request: ForwardRequest) -> None:
        """Ask the next host, unless a write is under way; with none left, wait for those that were asked."""
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
        if isinstance(error, TimedOut) and not request.is_over:  # There is time yet, so its clock was set.
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
        if lost is not None:  # Whatever others say.
            self._end(request, None, lost, me)
            return
        said = "; ".join(f"{name}: {error.message}" for name, error in request.refusals.items())
        behind = next(filter(is_behind, request.refusals.values()), None)
        if behind is not None:
            words = f"{request.what}: no replica that was asked is ready: {said}"
            self._end(request, None, NotReady(words, behind.details), me)
            return
        done = "takes the write, and nothing was applied" if request.is_write else "answers"
        kinds = {*map(type, request.refusals.values())}
        kind = next((one for one in (Overloaded, TimedOut) if kinds == {one}), Unavailable)
        self._end(
            request,
            None,
            kind(
                f"{request.what}: no host {done}: {said or 'none has answered in time'}",
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
    """What a host answers, as the result of a question of another node."""
    return lambda result, error: on_result(result if error is None else error)


def held(replicas: ReplicaSet, table: bytes, partition: int, key: bytes | None = None) -> Replica:
    """Find the copy here of a partition, which answers for it.

    With a key that of its range, whatever that is called: who asks and who answers may know another division of it.

    Raises:
        NotServed: there is none.
    """
    copy = replicas.copies.get((table, partition))
    if key is not None and (copy is None or not copy.bounds.has(key)):
        copy = replicas.spaces.at(table, key)
    return serving(copy, partition)


def serving(copy: Replica | None, partition: int) -> Replica:
    """See that a copy that was looked for, of a partition, answers for it.  Raises `NotServed`: it does not."""
    if copy is not None:
        for host in copy.hosts:
            if host.assignment == copy.assignment and host.available:
                return copy
    raise NotServed("it does not hold the partition, or not yet", {"partition": partition})


def _is_early(error: GossipKVError) -> bool:
    """Whether a host may do in a moment what it does not do yet."""
    return isinstance(error, EARLY) and not is_behind(error)


def _may_go_on(error: GossipKVError, request: ForwardRequest) -> bool:
    """Whether another host may be asked after one has answered with an error."""
    if request.local:
        return False
    return isinstance(error, REFUSED) or not (request.is_write or isinstance(error, RequestError))
