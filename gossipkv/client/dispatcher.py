"""Distribution of any number of tasks' requests over connections, and their outcome; without any I/O.

A request is in one of these places, and leaves with an answer or an error:

    line        waits for a connection, or for room on it; first come, first served
    in flight   on a link, also on a former one, which only finishes requests that may not be repeated
    pause       waits for its next attempt: a node still builds its data

There are several lanes, each with a line and a link: the main lane, whose link is to the preferred address; the second
lane, to any other address, for what the first has not answered; and one for each address that requests name.  Lanes
share the links.

Requests that may be repeated (reads) are repeated within their own time: if a link breaks or falls silent, an address
cannot be reached or speaks another protocol, or a node answers that it is going or coming.  Any other request is sent
once; if any of it was sent, and there is no answer, its outcome is unknown.  A read that is in flight for
`stage_s` is asked at a second address as well (hedging), the first answer counts, and a budget bounds such repetitions
to a tenth of the answers.  The session bounds unsent and open requests, the number of tasks bounds the lines, and a
cancelled request leaves its line at once.  So a slow node cannot make a client grow.

A link that is silent from the sending of a request until its deadline, or until the second address has answered it, is
left, even if the task was cancelled before: callers with short cancel scopes must not stay with a frozen node for ever.
"""

from __future__ import annotations

from collections import OrderedDict
from contextlib import suppress
from copy import copy
from heapq import heappop, heappush
from math import inf
from typing import TYPE_CHECKING, Final, Protocol, final

from gossipkv.address import parse_address
from gossipkv.client._client import Deadlines, call_request
from gossipkv.client.patience import pause_s
from gossipkv.client.route import ClientClosed, Failures, no_answer, too_late, unknown, unreachable
from gossipkv.errors import GossipKVError, NotReady, ProtocolError, TimedOut, Unavailable

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gossipkv.address import Address
    from gossipkv.client._client import Request, Session
    from gossipkv.client.backoff import Backoff
    from gossipkv.client.route import AddressRoute
    from gossipkv.wire.rpc import Value

HEDGE_SHARE: Final = 0.1  # Hedges per answer: they never double the load of a slow cluster.
HEDGES: Final = 10.0  # Hedges at once after a quiet time: enough to notice that a node is frozen.
IDLE_S: Final = 30.0  # Shorter than the patience of firewalls, which forget connections without a word.
LEARN_AFTER_S: Final = 1.0  # A script that asks a few things and ends learns nothing.
LEARN_EVERY_S: Final = 30.0
LIVE: Final = ("alive", "suspect")
DIAL_SHARE: Final = 0.95  # So the reason of the last address is known at the deadline.
ROUNDS: Final = 8  # All addresses fail nine times in about two seconds; most restarts take less.
MIN_DIAL_S: Final = 0.15  # A request in a hurry says nothing of an address.


class Link(Protocol):
    """A connection, as the dispatcher sees it."""

    @property
    def address(self) -> Address: ...
    @property
    def session(self) -> Session: ...

    def send(self, request: Request[object]) -> None:
        """Put the request into the session, and make its bytes go out."""

    def close(self) -> None:
        """End the connection, without a call of `Dispatcher.on_broken`."""


class DispatcherShell(Protocol):
    """The services that the dispatcher needs."""

    def now(self) -> float:
        """Return the time by the clock of the deadlines."""
        ...

    def wake(self, owner: object) -> None:
        """Wake the owner of a request that is done."""

    def want_link(self) -> None:
        """Call `Dispatcher.target` soon: it may name addresses."""

    def set_alarm(self, at: float) -> None:
        """Call `Dispatcher.on_time` at that time, not later."""


@final
class RequestHistory:
    """The earlier attempts of a request."""

    __slots__ = ("breaks", "failures", "odd", "original", "refusal", "rounds", "since", "tried", "twin")

    def __init__(self) -> None:
        self.failures: Failures = {}  # Why each address failed it.
        self.tried: set[Address] = set()  # Addresses that failed it in this round.
        self.breaks = 0  # Number of links that broke under it: it may be what breaks them.
        self.rounds = 0  # Number of times that all addresses have failed it.
        self.odd: ProtocolError | None = None  # The words of an address with another protocol.
        self.refusal: GossipKVError | None = None  # The last answer of a node that is going or coming.
        self.since = 0.0  # The time of the first such answer.
        self.twin: Request[object] | None = None  # The same request at a second address.
        self.original: Request[object] | None = None  # The request that this one is the twin of.


@final
class LinkLane:
    """Requests that go over one link."""

    __slots__ = ("address", "line", "link")

    def __init__(self, address: Address | None = None) -> None:
        self.address = address  # The address that its requests name.
        self.line: OrderedDict[Request[object], None] = OrderedDict()
        self.link: Link | None = None


@final
class Dispatcher:
    """The requests of one client, and its links."""

    def __init__(
        self,
        route: AddressRoute,
        backoff: Backoff,
        shell: DispatcherShell,
        *,
        stage_s: float | None = None,
        stays: bool = False,
        follows: bool = True,
    ) -> None:
        """Begin without a link.

        `stage_s`: seconds after which a silent read is asked elsewhere as well; None: never.  `stays`: no second link
        is possible, so a silent one is kept, as it may recover.  `follows`: the members of the cluster are learned.
        """
        self._stays, self._follows = stays, follows and not stays
        self._route = route
        self._backoff = backoff
        self.shell = shell
        self._tick_s = inf if stage_s is None else stage_s / 2
        self._deadlines = Deadlines()
        self._main, self._second = LinkLane(), LinkLane()
        self._named: dict[Address, LinkLane] = {}
        self._lanes = [self._main, self._second]  # All lanes.
        self._links: dict[object, Link] = {}  # All links, by session.
        self._open: dict[Address, Link] = {}  # Links in use.
        self._dialled: set[Address] = set()  # Addresses that the shell dials or resolves now.
        self._suspicion: tuple[float, Request[object], Link] | None = None
        self._paused: list[tuple[float, int, Request[object]]] = []
        self._pauses = 0
        self._tick_at = inf
        self._marks: dict[object, tuple[int, int]] = {}  # By session: offsets in its stream two ticks and one tick ago.
        self._seen: dict[object, tuple[int, float]] = {}  # By session: its answers, and when that was noted.
        self._hedges_left = HEDGES
        self._learn_at = inf
        self._is_closed = False
        self.hedges = 0  # Number of hedges.
        self.alarm = inf

    @property
    def link(self) -> Link | None:
        """The link to the preferred address, if there is one."""
        return self._main.link

    @property
    def address(self) -> Address | None:
        """The node in use, or None while there is no connection."""
        return None if self._main.link is None else self._main.link.address

    def open(self, due: float) -> Request[Value]:
        """Return a request that is done once a link is there; it fails as soon as all addresses have.

        Raises as `submit`.
        """
        request = call_request("", ())
        request.is_inner = True
        self.submit(request, due)
        return request

    def submit(self, request: Request[object], due: float) -> None:
        """Send a request as soon as possible.

        Raises:
            Unavailable: the client is closed.
        """
        if self._is_closed:
            raise ClientClosed
        assert request.session is None, "a request is submitted once"
        self._deadlines.add(request, due)
        if due < self.alarm:
            self._ring(due)
        self._put(self._lane_of(request), request)

    def hurry(self, request: Request[object], due: float) -> None:
        """Change the deadline of a submitted request that is not done."""
        self._deadlines.move(request, due)
        self._ring(due)

    def cancel(self, request: Request[object]) -> None:
        """Drop a request whose task no longer waits."""
        self._leave_line(request)
        session = request.session
        if session is not None:
            link = self._links[session]
            if self._is_in_use(link) and link.session.is_silent(request):
                suspicion = self._suspicion
                if suspicion is None or not suspicion[2].session.is_silent(suspicion[1]):
                    self._suspicion = request.due, request, link
        self._drop_twin(request)
        request.fail(None)
        if session is not None:
            self._end_wait(link, request)

    def on_received(self, link: Link) -> None:
        """Use new room on a link, after answers came or bytes went out."""
        if self._is_in_use(link):
            for lane in self._lanes:
                if lane.line and lane.link is link:
                    self._admit(lane, link)
        else:
            self._check_left(link.session)

    def on_answered(self, link: Link, requests: Iterable[Request[object]], now: float) -> None:
        """Go on with requests that are done with an error, and with those that are `is_inner`."""
        for request in requests:
            original = request.history.original if isinstance(request.history, RequestHistory) else None
            if original is not None:
                self._on_twin(request, original, now)
            elif request.is_inner:
                self._on_inner(link, request, now)
            elif request.error is None or not self._repeats(request, link, request.error, now):
                self._drop_twin(request)
                self._wake(request)

    def on_time(self, now: float) -> float:
        """Do what is due: give up requests, ask elsewhere, look at links; return the time of the next call."""
        useless = [self._expire(request, now) for request in self._deadlines.expired(now)]
        for left in dict.fromkeys(link for link in useless if link is not None):
            self._retire(left, now)
        if self._suspicion is not None and self._suspicion[0] <= now:
            _, request, link = self._suspicion
            self._suspicion = None
            if link.session.is_silent(request):
                self._retire(link, now)
        while self._paused and self._paused[0][0] <= now:
            request = heappop(self._paused)[2]
            if not request.is_done and request.session is None:
                self._put(self._lane_of(request), request)
        if self._tick_at <= now:
            self._tick(now)
        if self._learn_at <= now:
            self._learn(now)
        self.alarm = min(
            self._deadlines.next,
            self._suspicion[0] if self._suspicion is not None else inf,
            self._paused[0][0] if self._paused else inf,
            self._tick_at,
            self._learn_at,
        )
        return self.alarm

    def target(self, now: float) -> Address | float | None:
        """Return an address to dial now, the time to ask again, or None if no link is wanted.

        An address is wanted if some request in a line without a link has not tried it, and is dialled once its backoff
        is over.  Then `on_connected`, `on_dial_failed` or `on_refused` is called, or for a name `on_resolved`.
        """
        soonest = inf
        for lane in () if self._is_closed else self._lanes:
            if lane.link is not None or not lane.line:
                continue
            wanted = self._wanted(lane)
            if not self._dialled.isdisjoint(wanted):
                continue
            for address in wanted:
                ready_at = self._backoff.ready_at(address)
                if ready_at <= now:
                    self._dialled.add(address)
                    return address
                soonest = min(soonest, ready_at)
        return None if soonest == inf else soonest

    def dial_s(self, address: Address, now: float) -> float:
        """Return the seconds that dialling may take: the share of the deadline of those who wait for it."""
        shares = [
            DIAL_SHARE * (request.due - now) / max(1, len(self._untried(request, lane)))
            for lane in self._waiting_for(address)
            for request in lane.line
        ]
        return max(MIN_DIAL_S, min(shares, default=MIN_DIAL_S))

    def host_of(self, address: Address) -> str:
        """Return the name that an address was found by, which its certificate has."""
        return self._route.host_of(address)

    def on_resolved(self, name: Address, found: Sequence[Address]) -> None:
        """Note the addresses of a name, at least one; `target` names them."""
        self._dialled.discard(name)
        self._route.resolve(name, found)
        self.shell.want_link()

    def on_connected(self, link: Link) -> None:
        """Use a new link for the waiting requests."""
        assert link.session not in self._links, "a session belongs to one link, for life"
        self._dialled.discard(link.address)
        if self._is_closed:
            link.close()
            return
        if link.address in self._open:
            link.close()
            self._offer(self._open[link.address])
            return
        now = self.shell.now()
        self._links[link.session] = link
        self._seen[link.session] = 0, now
        self._marks[link.session] = 0, 0
        if self._follows and self._learn_at == inf:
            self._learn_at = now + LEARN_AFTER_S
            self._ring(self._learn_at)
        self._offer(link)

    def on_dial_failed(self, address: Address, reason: str, now: float) -> None:
        """Note that an address could not be reached, or a name not resolved."""
        self._dialled.discard(address)
        self._route.prefer_another(address)
        self._backoff.failed(address, now)
        for lane in self._waiting_for(address):
            for request in list(lane.line):
                self._note_failure(request, lane, address, reason)
        self.shell.want_link()

    def on_refused(self, address: Address, error: GossipKVError, now: float) -> None:
        """Fail the waiting requests: a node refused the token, as every other node would."""
        self._dialled.discard(address)
        self._backoff.failed(address, now)
        for lane in self._waiting_for(address):
            waiting = list(lane.line)
            lane.line.clear()
            for request in waiting:
                self._finish(request, copy(error))  # Each copy is raised in another task.

    def on_broken(self, link: Link, reason: str, now: float) -> None:
        """End a link that the node, the network or an invalid answer broke."""
        session = link.session
        if self._links.get(session) is None:
            return
        self._end(link)
        if session.answered and session.failure is None:
            self._backoff.worked(link.address)
        else:
            self._backoff.failed(link.address, now)
        self._learn_soon(now)
        moving, odd = [], None
        if (failure := session.failure) is not None:
            odd = ProtocolError(f"{link.address}: {failure.message}", failure.details)
        for request in session.outstanding():
            has_begun = session.has_begun(request)
            session.withdraw(request)
            if request.is_inner:
                if request.method == "ping":
                    self._dialled.discard(link.address)
                self._lose(request)
            elif has_begun and not request.is_repeatable:
                if odd is None or "protocol" not in odd.details:  # A port of another protocol has done nothing.
                    self._finish(request, unknown(request, link.address, reason, failure))
                else:
                    self._finish(request, copy(odd))
            else:
                history = _history(request)
                lane = self._lane_of(request)
                history.odd = odd or history.odd
                history.breaks += 1  # The first one may be none of its fault, nor of the address.
                has_failed = not session.answered or history.breaks > 1 or session.failure is not None
                if not (has_failed and self._note_failure(request, lane, link.address, reason)):
                    moving.append(request)
        self._move_to_front(moving)

    def close(self) -> None:
        """End every link and every request."""
        self._is_closed = True
        self._tick_at = self._learn_at = inf
        waiting = [request for lane in self._lanes for request in lane.line] + [one[2] for one in self._paused]
        self._paused.clear()
        for lane in self._lanes:
            lane.line.clear()
            lane.link = None
        for link in list(self._links.values()):
            waiting += link.session.outstanding()
            link.close()
        self._links.clear()
        self._open.clear()
        for request in waiting:
            if not request.is_done:
                self._finish(request, ClientClosed())

    # -- lanes and links -----------------------------------------------------------------------------------------------

    def _waiting_for(self, address: Address) -> list[LinkLane]:
        """Return the lanes without a link that the address may serve."""
        return [lane for lane in self._lanes if lane.link is None and address in self._addresses(lane)]

    def _lane_of(self, request: Request[object]) -> LinkLane:
        """Return the lane of a request that asks no second address."""
        if request.at is None:
            return self._main
        lane = self._named.get(request.at)
        if lane is None:
            lane = self._named[request.at] = LinkLane(request.at)
            self._lanes.append(lane)
        if lane.link is None:
            lane.link = next((self._open[found] for found in self._route.of(request.at) if found in self._open), None)
        return lane

    def _addresses(self, lane: LinkLane) -> Sequence[Address]:
        """Return the addresses of a lane, in order."""
        if lane.address is not None:
            return self._route.of(lane.address)
        if lane is self._second and self._main.link is not None:
            first = self._main.link.address
            return [address for address in self._route.addresses if address != first]
        return self._route.addresses

    def _untried(self, request: Request[object], lane: LinkLane) -> Sequence[Address]:
        addresses = self._addresses(lane)
        history = request.history
        if not isinstance(history, RequestHistory) or not history.tried:
            return addresses
        return [address for address in addresses if address not in history.tried]

    def _wanted(self, lane: LinkLane) -> Sequence[Address]:
        """Return in order the addresses that some request in the line has not tried."""
        addresses = self._addresses(lane)
        wanted: set[Address] = set()
        for request in list(lane.line):
            if _is_late_twin(request):
                del lane.line[request]
                continue
            wanted.update(self._untried(request, lane))
            if len(wanted) == len(addresses):
                break
        return [address for address in addresses if address in wanted]

    def _is_in_use(self, link: Link) -> bool:
        return self._open.get(link.address) is link

    def _put(self, lane: LinkLane, request: Request[object]) -> None:
        """Send a request, or put it into the line."""
        link = lane.link
        if link is None:  # Another lane may have a link that serves this one, too.
            untried = self._untried(request, lane)
            link = lane.link = next((self._open[one] for one in untried if one in self._open), None)
        if (
            link is not None
            and not lane.line
            and not link.session.is_full
            and (request.is_repeatable or self._is_fresh(link, request))
        ):
            link.send(request)
            return
        lane.line[request] = None
        if lane.link is None:
            self.shell.want_link()

    def _is_fresh(self, link: Link, request: Request[object]) -> bool:
        """Return True if the link may have a request that is sent once; else check the link first."""
        now, session = self.shell.now(), link.session
        if now - self._seen[session][1] <= IDLE_S or request.is_inner:
            return True
        ping = call_request("ping", ())
        ping.is_inner = True
        self._leave(link)
        self._dialled.add(link.address)
        self._deadlines.add(ping, now + (request.due - now) / 2)
        self._ring(ping.due)
        link.send(ping)
        return False

    def _offer(self, link: Link) -> None:
        """Give a link to the lanes that want it; close it if none does."""
        self._open[link.address] = link
        for lane in self._lanes:
            if lane.link is not None or (lane is self._second and not lane.line):
                continue
            if link.address in self._addresses(lane):
                lane.link = link
                self._admit(lane, link)
        if all(lane.link is not link for lane in self._lanes):
            self._end(link)

    def _admit(self, lane: LinkLane, link: Link) -> None:
        while lane.line and not link.session.is_full and lane.link is link:
            request = next(iter(lane.line))
            if not request.is_repeatable and not self._is_fresh(link, request):
                return
            del lane.line[request]
            if not request.method:
                request.fail(None)
                self._wake(request)
            elif not _is_late_twin(request):
                link.send(request)

    def _move_to_front(self, requests: Sequence[Request[object]]) -> None:
        lanes: dict[LinkLane, None] = {}
        for request in reversed(requests):
            assert request.session is None, "a request is in a line or on a link, never both"
            lane = self._lane_of(request)
            lane.line[request] = None
            lane.line.move_to_end(request, last=False)
            lanes[lane] = None
        for lane in lanes:
            if lane.link is not None:
                self._admit(lane, lane.link)
            elif lane.line:
                self.shell.want_link()

    def _leave_line(self, request: Request[object]) -> LinkLane | None:
        """Take a request out of its line; return its lane, or None if it is in none."""
        for lane in self._lanes:
            if request in lane.line:
                del lane.line[request]
                return lane
        return None

    def _leave(self, link: Link) -> None:
        """Take a link out of use; its address is no longer the preferred one."""
        if self._is_in_use(link):
            del self._open[link.address]
            self._route.prefer_another(link.address)
        for lane in self._lanes:
            if lane.link is link:
                lane.link = None
        if self._main.link is None and self._second.link is not None:
            self._main.link, self._second.link = self._second.link, None
            self._admit(self._main, self._main.link)

    def _end(self, link: Link) -> None:
        self._leave(link)
        for of in (self._links, self._marks, self._seen):
            of.pop(link.session, None)
        link.close()

    def _retire(self, link: Link, now: float) -> None:
        """Leave a silent link, which keeps only the requests that may not be repeated."""
        if self._stays or not self._is_in_use(link):
            return
        self._leave(link)
        self._backoff.failed(link.address, now)
        self._learn_soon(now)
        moving = []
        for request in link.session.outstanding():
            if request.is_inner:
                link.session.withdraw(request)
                self._lose(request)
            elif request.is_repeatable:
                link.session.withdraw(request)
                moving.append(request)
        self._check_left(link.session)
        self._move_to_front(moving)

    def _check_left(self, session: object) -> None:
        """Close a former link once no task waits for it."""
        link = self._links.get(session)
        if link is not None and not self._is_in_use(link) and not link.session.awaited:
            self._end(link)

    # -- time ----------------------------------------------------------------------------------------------------------

    def _ring(self, at: float) -> None:
        """Set the alarm to that time, or to the next tick, which an idle client has none of, if that is sooner."""
        if self._tick_at == inf and self._tick_s < inf and len(self._route.addresses) > 1:
            self._tick_at = self.shell.now() + self._tick_s
        if min(at, self._tick_at) < self.alarm:
            self.alarm = min(at, self._tick_at)
            self.shell.set_alarm(self.alarm)

    def _tick(self, now: float) -> None:
        """Ask elsewhere as well for reads that are in flight since two ticks."""
        is_awaited = False
        overdue: list[tuple[Link, Request[object]]] = []
        for link in self._open.values():
            session = link.session
            is_awaited = is_awaited or session.awaited > 0
            before, _ = self._seen[session]
            if session.answered != before:
                self._seen[session] = session.answered, now
                self._hedges_left = min(HEDGES, self._hedges_left + HEDGE_SHARE * (session.answered - before))
            older, newer = self._marks[session]
            self._marks[session] = newer, session.queued_bytes
            if session.awaited:
                overdue += [(link, request) for request in session.overdue(older) if not request.is_inner]
        self._tick_at = now + self._tick_s if is_awaited else inf
        for link, request in overdue:
            if self._hedges_left < 1:
                break
            self._hedge(link, request)

    def _hedge(self, link: Link, request: Request[object]) -> None:
        history = _history(request)
        lane = self._second if link is self._main.link else self._main
        if history.twin is not None or request.session is None or not self._has_another(link):
            return
        self._hedges_left -= 1
        self.hedges += 1
        history.twin = twin = request.twin()
        _history(twin).original = request
        self._put(lane, twin)

    def _has_another(self, link: Link) -> bool:
        return any(address != link.address for address in self._route.addresses)

    def _learn_soon(self, now: float) -> None:
        if self._follows:
            self._learn_at = min(self._learn_at, now + LEARN_AFTER_S)

    def _learn(self, now: float) -> None:
        """Ask for the members of the cluster."""
        link = self._main.link
        self._learn_at = now + LEARN_EVERY_S
        if link is not None and not link.session.is_full:
            request = call_request("members", ())
            request.is_inner = True
            self._deadlines.add(request, now + LEARN_AFTER_S)
            link.send(request)

    # -- outcomes ------------------------------------------------------------------------------------------------------

    def _repeats(self, request: Request[object], link: Link, error: GossipKVError, now: float) -> bool:
        """Ask once more if the node is going or coming; return False if the error is final."""
        if not request.is_repeatable or not isinstance(error, (NotReady, Unavailable)):
            return False
        history = _history(request)
        is_first, history.refusal = history.refusal is None, error
        if is_first:
            history.since = now
        if is_first and request.at is None and self._has_another(link):
            self._reopen(request, history)
            self._put(self._second if link is self._main.link else self._main, request)
            return True
        pause = pause_s(error, now - history.since, request.due - now)
        if pause is None:
            return False
        self._reopen(request, history)
        self._pauses += 1
        heappush(self._paused, (now + pause, self._pauses, request))
        self._ring(now + pause)
        return True

    def _reopen(self, request: Request[object], history: RequestHistory) -> None:
        request.reopen()
        request.history = history
        self._deadlines.add(request, request.due)

    def _on_twin(self, twin: Request[object], original: Request[object], now: float) -> None:
        """Finish the request whose twin is answered; its link is left if it has been silent."""
        _history(original).twin = None
        if original.is_done or twin.error is not None:
            return
        link = self._links.get(original.session)
        is_silent = link is not None and link.session.is_silent(original)
        self._leave_line(original)
        original.settle(twin.result)
        self._wake(original)
        if link is not None:
            self._end_wait(link, original)
            if is_silent:
                self._retire(link, now)

    def _on_inner(self, link: Link, request: Request[object], now: float) -> None:
        if request.method == "ping":
            self._dialled.discard(link.address)
            self._seen[link.session] = link.session.answered, now
            self._offer(link)
        elif request.error is None and isinstance(request.result, list):
            live: list[Address] = []
            dead: list[Address] = []
            for member in request.result:
                match member:
                    case {"address": str(text), "state": str(state)}:
                        with suppress(ValueError):
                            (live if state in LIVE else dead).append(parse_address(text))
            self._route.learn(live, (address for address in dead if address not in live))

    def _lose(self, request: Request[object]) -> None:
        """Drop a request that only the dispatcher waits for."""
        history = request.history
        if isinstance(history, RequestHistory) and history.original is not None:
            _history(history.original).twin = None
        request.fail(None)

    def _drop_twin(self, request: Request[object]) -> None:
        history = request.history
        if isinstance(history, RequestHistory) and history.twin is not None:
            twin, history.twin = history.twin, None
            self._leave_line(twin)
            session = twin.session
            twin.fail(None)
            if session is not None:
                self._end_wait(self._links[session], twin)

    def _expire(self, request: Request[object], now: float) -> Link | None:
        """Give up a request; return the link to leave because of it, if any.

        That is a silent link, or one that takes no more requests because most of its open answers are abandoned.
        """
        session = request.session
        if session is None:
            lane = self._leave_line(request)
            link = None if lane is None else lane.link
            history = _history(request)
            if history.refusal is not None:
                self._finish(request, history.refusal)
            elif link is None:
                reached = unreachable if history.rounds else too_late
                self._finish(request, reached(history.failures))
            else:
                where = str(link.address)
                message = f"{where} accepted no further request before the deadline; {request.method} was not sent"
                self._finish(request, TimedOut(message, {"address": where}))
                return link if 2 * link.session.abandoned > link.session.in_flight else None
            return None
        link = self._links[session]
        if request.is_inner:
            if request.method == "ping":
                self.on_broken(link, "the node did not answer a ping that checked the connection", now)
            else:
                self._lose(request)
            return None
        is_silent = link.session.is_silent(request)
        error = no_answer(request, link.address)
        self._finish(
            request, error if request.is_repeatable else unknown(request, link.address, "no answer in time", error)
        )
        self._end_wait(link, request)
        return link if is_silent and self._is_in_use(link) else None

    def _end_wait(self, link: Link, request: Request[object]) -> None:
        """Tell the node that no task waits for a request any more; close a former link once no task waits for it."""
        cancel = call_request("cancel", (request.message_id,))
        link.send(cancel)
        cancel.fail(None)  # Its answer is dropped.
        self._check_left(link.session)

    def _note_failure(self, request: Request[object], lane: LinkLane, address: Address, reason: str) -> bool:
        """Note that an address failed a request; return True if that ends it."""
        history = _history(request)
        history.failures[str(address)] = reason
        history.tried.add(address)
        if self._untried(request, lane):
            return False
        is_given_up = (
            self._stays
            or lane.address is not None
            or not request.method
            or history.rounds == ROUNDS
            or history.breaks > len(self._addresses(lane))
        )
        error = (history.refusal if lane is self._second else None) or history.odd
        if history.original is None and error is None and not is_given_up:  # A node that restarts is back soon.
            history.rounds += 1
            history.tried.clear()
            self._route.doubt_names()
            return False
        self._leave_line(request)
        if history.original is not None:
            self._lose(request)
        else:
            self._finish(request, error or unreachable(history.failures))
        return True

    def _finish(self, request: Request[object], error: GossipKVError) -> None:
        self._drop_twin(request)
        request.fail(error)
        self._wake(request)

    def _wake(self, request: Request[object]) -> None:
        owner = request.owner
        if owner is not None:
            request.owner = None
            self.shell.wake(owner)


def _history(request: Request[object]) -> RequestHistory:
    if not isinstance(request.history, RequestHistory):
        request.history = RequestHistory()
    return request.history


def _is_late_twin(request: Request[object]) -> bool:
    history = request.history
    return isinstance(history, RequestHistory) and history.original is not None and history.original.is_done
