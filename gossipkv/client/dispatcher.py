"""Which request goes to which connection, and what becomes of it there; for any number of tasks, without any I/O.

A request is in one of these places, and leaves with an answer or an error:

    line        waits for a connection, or for room on it; first come, first served
    in flight   on the link, or on one that was left and only finishes what may not be repeated

What moves it: the link has room (to the link); the link breaks or falls silent (back to the front of the line, if it
may be repeated or nothing of it was sent; else `Unknown`); an answer, its deadline, its task's cancellation (out).

What waits unsent and what is in flight is bounded by the session, what waits in the line by the number of tasks; a
request that is cancelled leaves the line at once.  So a slow node cannot make a client grow.

A link that says nothing at all from the sending of a request until its deadline is left, also if the task was cancelled
before: a caller with short cancel scopes must not stay with a frozen node for ever.
"""

from __future__ import annotations

from collections import OrderedDict
from copy import copy
from math import inf
from typing import TYPE_CHECKING, Protocol, final

from gossipkv.client._client import Deadlines
from gossipkv.client.route import AddressRoute, Failures, no_answer, too_late, unknown, unreachable
from gossipkv.errors import GossipKVError, ProtocolError, TimedOut, Unavailable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gossipkv.address import Address
    from gossipkv.client._client import Request, Session
    from gossipkv.client.backoff import Backoff


class Link(Protocol):
    """A connection, as it is seen from here."""

    @property
    def address(self) -> Address: ...
    @property
    def session(self) -> Session: ...

    def send(self, request: Request[object]) -> None:
        """Put it into the session, and see that its bytes go out."""

    def close(self) -> None:
        """End it.  `Dispatcher.on_broken` is not called for it any more."""


class Shell(Protocol):
    """What the dispatcher asks of the world."""

    def wake(self, owner: object) -> None:
        """The request that this owner waits for is done."""

    def want_link(self) -> None:
        """`Dispatcher.target` may have something to say."""

    def set_alarm(self, at: float) -> None:
        """Call `Dispatcher.on_time` then and no later."""


@final
class RequestHistory:
    """What a request that was sent before remembers: why each address failed it, and which broke under it once."""

    __slots__ = ("broken", "failures")

    def __init__(self) -> None:
        self.failures: Failures = {}
        self.broken: set[Address] = set()


@final
class Dispatcher:
    """The requests of one client, and the link that they go to."""

    def __init__(self, route: AddressRoute, backoff: Backoff, shell: Shell, *, stays: bool = False) -> None:
        """`stays`: there can be no second link, so one that is silent is not left: it may speak again."""
        self._stays = stays
        self._route = route
        self._backoff = backoff
        self._shell = shell
        self._line: OrderedDict[Request[object], None] = OrderedDict()
        self._deadlines = Deadlines()
        self._links: dict[object, Link] = {}  # The one in use, and those that were left.
        self._suspicion: tuple[float, Request[object]] | None = None
        self._is_closed = False
        self.link: Link | None = None
        self.alarm = inf

    def submit(self, request: Request[object], due: float) -> None:
        """Send it as soon as can be.

        Raises:
            Unavailable: the client is closed.
        """
        if self._is_closed:
            raise Unavailable("the client is closed")
        assert request.session is None, "a request is submitted once"
        self._deadlines.add(request, due)
        if due < self.alarm:
            self.alarm = due
            self._shell.set_alarm(due)
        link = self.link
        if link is not None and not self._line and not link.session.is_full:
            link.send(request)
            return
        self._line[request] = None
        if link is None:
            self._shell.want_link()

    def cancel(self, request: Request[object]) -> None:
        """Nobody waits for it any more."""
        self._line.pop(request, None)
        link = self.link
        if link is not None and request.session is link.session and link.session.is_silent(request):
            suspicion = self._suspicion
            if suspicion is None or not link.session.is_silent(suspicion[1]):
                self._suspicion = request.due, request
        session = request.session
        request.fail(None)
        if session is not None:
            self._check_left(session)

    def on_received(self, link: Link) -> None:
        """Answers came, or bytes went out: there may be room."""
        if link is self.link:
            if self._line:
                self._admit(link)
        else:
            self._check_left(link.session)

    def on_time(self, now: float) -> float:
        """Give up what is due; returns when to call again."""
        useless = None
        for request in self._deadlines.expired(now):
            useless = self._expire(request) or useless
        if useless is not None and useless is self.link:
            self._retire(useless)
        if self._suspicion is not None and self._suspicion[0] <= now:
            _, request = self._suspicion
            self._suspicion = None
            if self.link is not None and self.link.session.is_silent(request):
                self._retire(self.link)
        self.alarm = min(self._deadlines.next, self._suspicion[0] if self._suspicion is not None else inf)
        return self.alarm

    def target(self, now: float) -> Address | float | None:
        """The address to dial now, or when to ask again, or None while nothing is wanted.

        What is wanted: an address that some request in the line has not tried, and that is not to be left alone.
        """
        if self.link is not None or not self._line or self._is_closed:
            return None
        wanted = self._wanted()
        ready_at = [self._backoff.ready_at(address) for address in wanted]
        for address, at in zip(wanted, ready_at, strict=True):
            if at <= now:
                return address
        return min(ready_at, default=None)

    def on_connected(self, link: Link) -> None:
        """A new link: what waits goes there."""
        assert self.link is None, "there is one link in use"
        assert link.session not in self._links, "a session belongs to one link, for life"
        self.link = link
        self._links[link.session] = link
        self._suspicion = None
        self._admit(link)

    def on_dial_failed(self, address: Address, reason: str, now: float) -> None:
        """An address could not be reached."""
        self._route.prefer_another(address)
        self._backoff.failed(address, now)
        for request in list(self._line):
            history = _history(request)
            history.failures[str(address)] = reason
            self._check_exhausted(request, history)

    def on_refused(self, address: Address, error: GossipKVError, now: float) -> None:
        """A node does not take the token, and no other would: what waits has failed."""
        self._backoff.failed(address, now)
        waiting = list(self._line)
        self._line.clear()
        for request in waiting:
            self._finish(request, copy(error))  # Each is raised elsewhere.

    def on_broken(self, link: Link, reason: str, now: float) -> None:
        """A link ended: by the node, by the network, or because of what the node sent."""
        session = link.session
        if self._links.pop(session, None) is None:
            return
        if self.link is link:
            self.link = None
            self._route.prefer_another(link.address)
        if session.answered:
            self._backoff.worked(link.address)
        else:
            self._backoff.failed(link.address, now)
        link.close()
        moving = []
        for request in session.outstanding():
            has_begun = session.has_begun(request)
            session.withdraw(request)
            if has_begun and not request.is_repeatable:
                self._finish(request, unknown(request, link.address, reason, session.failure))
            elif session.failure is not None:
                error = ProtocolError(f"{link.address}: {session.failure.message}", session.failure.details)
                self._finish(request, error)
            else:
                history = _history(request)
                if not session.answered or link.address in history.broken:
                    history.failures[str(link.address)] = reason
                history.broken.add(link.address)
                if not self._check_exhausted(request, history):
                    moving.append(request)
        self._move_to_front(moving)

    def close(self) -> None:
        """End every link and every request."""
        self._is_closed = True
        self.link = None
        open_requests = list(self._line)
        self._line.clear()
        for link in self._links.values():
            open_requests += link.session.outstanding()
            link.close()
        self._links.clear()
        for request in open_requests:
            self._finish(request, Unavailable("the client is closed"))

    def _admit(self, link: Link) -> None:
        while self._line and not link.session.is_full:
            request, _ = self._line.popitem(last=False)
            link.send(request)

    def _move_to_front(self, requests: list[Request[object]]) -> None:
        for request in reversed(requests):
            assert request.session is None, "a request is in the line or on a link, never both"
            self._line[request] = None
            self._line.move_to_end(request, last=False)
        if self.link is not None:
            self._admit(self.link)
        elif self._line:
            self._shell.want_link()

    def _expire(self, request: Request[object]) -> Link | None:
        """Give it up; returns the link that is to be left because of it.

        That is one that was silent, or one that owes so many answers that nobody waits for that it takes no more.
        """
        session = request.session
        if session is None:
            self._line.pop(request, None)
            if self.link is None:
                self._finish(request, too_late(_history(request).failures))
                return None
            where = str(self.link.address)
            message = f"{where} took no more requests in time; {request.method} was not sent"
            self._finish(request, TimedOut(message, {"address": where}))
            return self.link if 2 * self.link.session.abandoned > self.link.session.in_flight else None
        link = self._links[session]
        is_silent = link.session.is_silent(request)
        error = no_answer(request, link.address)
        self._finish(
            request, error if request.is_repeatable else unknown(request, link.address, "no answer in time", error)
        )
        if is_silent and link is self.link:
            return link
        self._check_left(session)
        return None

    def _retire(self, link: Link) -> None:
        """Leave a silent link: it keeps only what may not be repeated."""
        if self._stays:
            return
        self.link = None
        self._route.prefer_another(link.address)
        moving = [request for request in link.session.outstanding() if request.is_repeatable]
        for request in moving:
            link.session.withdraw(request)
        self._check_left(link.session)
        self._move_to_front(moving)

    def _check_left(self, session: object) -> None:
        """Close a link that was left when nobody waits for anything on it."""
        link = self._links.get(session)
        if link is not None and link is not self.link and not link.session.awaited:
            del self._links[session]
            link.close()

    def _wanted(self) -> Iterable[Address]:
        """The addresses that some request in the line has not tried, in order."""
        wanted: dict[Address, None] = {}
        for request in self._line:
            history = request.history
            wanted |= dict.fromkeys(
                self._route.untried(history.failures if isinstance(history, RequestHistory) else {})
            )
            if len(wanted) == len(self._route):
                break
        return [address for address in self._route.untried({}) if address in wanted]

    def _check_exhausted(self, request: Request[object], history: RequestHistory) -> bool:
        """Whether no address is left for it; then it has failed."""
        if self._route.untried(history.failures):
            return False
        self._line.pop(request, None)
        self._finish(request, unreachable(history.failures))
        return True

    def _finish(self, request: Request[object], error: GossipKVError) -> None:
        assert request not in self._line, "what has ended waits no more"
        request.fail(error)
        owner = request.owner
        if owner is not None:
            request.owner = None
            self._shell.wake(owner)


def _history(request: Request[object]) -> RequestHistory:
    if not isinstance(request.history, RequestHistory):
        request.history = RequestHistory()
    return request.history
