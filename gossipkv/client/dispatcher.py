"""Distribution of any number of tasks' requests over connections, and their outcome; without any I/O.

A request is in one of these places, and leaves with an answer or an error:

    line        waits for a connection, or for room on it; first come, first served
    in flight   on the link, or on a former link, which only finishes requests that may not be repeated

These events move a request: the link has room (to the link); the link breaks or falls silent (back to the front of the
line, if it may be repeated or nothing of it was sent; else `Unknown`); an answer, its deadline, its task's cancellation
(out).  The session bounds unsent and open requests, the number of tasks bounds the line, and a cancelled request leaves
the line at once.  So a slow node cannot make a client grow.

A link that is silent from the sending of a request until its deadline is left, even if the task was cancelled before: a
caller with short cancel scopes must not stay with a frozen node for ever.
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
    """A connection, as the dispatcher sees it."""

    @property
    def address(self) -> Address: ...
    @property
    def session(self) -> Session: ...

    def send(self, request: Request[object]) -> None:
        """Put the request into the session, and make its bytes go out."""

    def close(self) -> None:
        """End the connection, without a call of `Dispatcher.on_broken`."""


class Shell(Protocol):
    """The services that the dispatcher needs."""

    def wake(self, owner: object) -> None:
        """Wake the owner of a request that is done."""

    def want_link(self) -> None:
        """Call `Dispatcher.target` soon: it may name an address."""

    def set_alarm(self, at: float) -> None:
        """Call `Dispatcher.on_time` at that time, not later."""


@final
class RequestHistory:
    """The earlier attempts of a request: why each address failed it, and which addresses broke under it once."""

    __slots__ = ("broken", "failures")

    def __init__(self) -> None:
        self.failures: Failures = {}
        self.broken: set[Address] = set()


@final
class Dispatcher:
    """The requests of one client, and the link in use."""

    def __init__(self, route: AddressRoute, backoff: Backoff, shell: Shell, *, stays: bool = False) -> None:
        """Begin without a link; `stays`: no second link is possible, so a silent one is kept, as it may recover."""
        self._stays = stays
        self._route = route
        self._backoff = backoff
        self._shell = shell
        self._line: OrderedDict[Request[object], None] = OrderedDict()
        self._deadlines = Deadlines()
        self._links: dict[object, Link] = {}  # The link in use, and former links, by session.
        self._suspicion: tuple[float, Request[object]] | None = None
        self._is_closed = False
        self.link: Link | None = None
        self.alarm = inf

    def submit(self, request: Request[object], due: float) -> None:
        """Send a request as soon as possible.

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
        """Drop a request whose task no longer waits."""
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
        """Use new room on a link, after answers came or bytes went out."""
        if link is self.link:
            if self._line:
                self._admit(link)
        else:
            self._check_left(link.session)

    def on_time(self, now: float) -> float:
        """Give up requests that are due; return the time of the next call."""
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
        """Return the address to dial now, the time to ask again, or None if no link is wanted.

        An address is wanted if some request in the line has not tried it, and is dialled once its backoff is over.
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
        """Use a new link for the waiting requests."""
        assert self.link is None, "there is one link in use"
        assert link.session not in self._links, "a session belongs to one link, for life"
        self.link = link
        self._links[link.session] = link
        self._suspicion = None
        self._admit(link)

    def on_dial_failed(self, address: Address, reason: str, now: float) -> None:
        """Note that an address could not be reached."""
        self._route.prefer_another(address)
        self._backoff.failed(address, now)
        for request in list(self._line):
            history = _history(request)
            history.failures[str(address)] = reason
            self._check_exhausted(request, history)

    def on_refused(self, address: Address, error: GossipKVError, now: float) -> None:
        """Fail the waiting requests: a node refused the token, as every other node would."""
        self._backoff.failed(address, now)
        waiting = list(self._line)
        self._line.clear()
        for request in waiting:
            self._finish(request, copy(error))  # Each copy is raised in another task.

    def on_broken(self, link: Link, reason: str, now: float) -> None:
        """End a link that the node, the network or an invalid answer broke."""
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
        """Give up a request; return the link to leave because of it, if any.

        That is a silent link, or one that takes no more requests because most of its open answers are abandoned.
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
        """Leave a silent link, which keeps only the requests that may not be repeated."""
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
        """Close a former link once no task waits for it."""
        link = self._links.get(session)
        if link is not None and link is not self.link and not link.session.awaited:
            del self._links[session]
            link.close()

    def _wanted(self) -> Iterable[Address]:
        """Return in order the addresses that some request in the line has not tried."""
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
        """Fail the request if no address is left for it; return True if so."""
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
