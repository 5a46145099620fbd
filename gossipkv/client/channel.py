"""A channel of the blocking client: a dispatcher with its connections, moved by the thread that has taken the channel.

`run` moves bytes until a request is done.  Mostly one connection has something to receive and nothing to send, and the
thread waits in its `recv`; else a selector waits for several connections, for room to send, and for new connections.
Nobody reads between two requests, so a connection that ended meanwhile is found at the next one.

An exception that is no answer (Ctrl-C, a signal handler's) may leave half a frame behind: such a channel is ended, and
never used again.  So no answer can be taken for another request's.
"""

from __future__ import annotations

import selectors
import socket
from contextlib import suppress
from time import monotonic, sleep
from typing import TYPE_CHECKING, Final, final

from gossipkv import name_service
from gossipkv.address import Address
from gossipkv.client.credentials import REFUSALS
from gossipkv.client.dispatcher import Dispatcher
from gossipkv.client.route import is_name, reason_of
from gossipkv.client.sockets import SocketLink, dialling

if TYPE_CHECKING:
    from collections.abc import Generator

    from gossipkv.client._client import Request
    from gossipkv.client.backoff import Backoff
    from gossipkv.client.credentials import Credentials
    from gossipkv.client.link import Opening
    from gossipkv.client.route import AddressRoute
    from gossipkv.client.sockets import Wait

TIMEOUT_SLACK: Final = 0.99  # Setting a socket's timeout is a system call: a timeout that is 1 % too long is kept.


@final
class ChannelLink(SocketLink):
    """A connection whose bytes the channel moves."""

    __slots__ = ("_timeout_s",)

    def __init__(self, address: Address, connection: socket.socket, opening: Opening, dispatcher: Dispatcher) -> None:
        super().__init__(address, connection, opening, dispatcher)
        self._timeout_s = 0.0  # The socket's timeout.

    def fileno(self) -> int:
        """Return the number by which a selector knows the connection."""
        return self._socket.fileno()

    def send(self, request: Request[object]) -> None:
        """Queue a request; its bytes go out with `flush`."""
        self.session.send(request)

    def receive(self, within_s: float) -> bool:
        """Receive and take bytes; return False if none came in so many seconds."""
        try:
            if not self._timeout_s * TIMEOUT_SLACK <= within_s <= self._timeout_s:
                self._socket.settimeout(within_s)
                self._timeout_s = within_s
            data = self.received()
        except (BlockingIOError, TimeoutError):
            return False
        except OSError as error:
            self.break_off(reason_of(error))
        else:
            self.take(data)
        return True

    def cut(self) -> None:
        """End the connection for both sides, which the thread that waits for it notices."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def drop(self) -> None:
        """Close the connection without a word, as in a forked child, which must not end its parent's."""
        self._socket.close()

    def _end(self, farewell: bytes) -> None:
        super()._end(farewell)
        self._socket.close()


@final
class Dial:
    """A connection that is being made."""

    __slots__ = ("address", "steps", "wait")

    def __init__(self, address: Address, steps: Generator[Wait, None, tuple[socket.socket, Opening]]) -> None:
        self.address = address
        self.steps = steps
        self.wait: Wait | None = None


@final
class Channel:
    """A dispatcher and its connections.  Channels of one client share the route and the backoff."""

    def __init__(
        self, route: AddressRoute, backoff: Backoff, credentials: Credentials, *, stage_s: float | None, follows: bool
    ) -> None:
        """Begin without a connection."""
        self.dispatcher = Dispatcher(route, backoff, self, stage_s=stage_s, follows=follows)
        self._credentials = credentials
        self._links: list[ChannelLink] = []
        self._dials: list[Dial] = []
        self._is_wanting = False  # The dispatcher may name an address to dial.
        self._is_cut = False

    def dial(self, due: float) -> None:
        """Connect now, if not connected.  Raises as `blocking.connect`."""
        if self.dispatcher.link is None:
            request = self.dispatcher.open(due)
            self.run(request)
            request.take()

    def ask(self, request: Request[object], due: float) -> None:
        """Send a request, and return when it is done.  After any exception the channel must be dropped."""
        link = self.dispatcher.link
        if not request.is_repeatable or (link is not None and not link.session.answered):
            self._catch_up()
        self.dispatcher.submit(request, due)
        self.run(request)

    def flush(self) -> None:
        """Send what the network takes at once."""
        for link in self._links:
            with suppress(OSError):  # The next turn finds out.
                link.flush()

    def run(self, request: Request[object]) -> None:
        """Move bytes until a submitted request is done.  After any exception the channel must be dropped."""
        dispatcher = self.dispatcher
        while not request.is_done:
            link, within_s = self._only_link(request), dispatcher.alarm - monotonic()
            if link is None or within_s <= 0:
                self._turn()
                continue
            try:
                is_sent = link.flush()
            except OSError as error:
                link.break_off(reason_of(error))
                continue
            if not is_sent:
                self._turn()
            elif not link.receive(within_s):
                dispatcher.on_time(monotonic())

    def cut(self) -> None:
        """Make the thread that runs this channel give up (called by another thread, or amid anything in this one)."""
        self._is_cut = True
        for link in [*self._links]:
            link.cut()

    def drop(self) -> None:
        """Close the connections without a word, whatever state the channel is in."""
        for link in self._links:
            link.drop()
        for dial in self._dials:
            if dial.wait is not None:
                dial.wait[0].close()

    def close(self) -> None:
        """End the connections.  No request is open."""
        self.dispatcher.close()
        for dial in self._dials:
            dial.steps.close()

    # -- for the dispatcher ------------------------------------------------------------------------------------------

    def now(self) -> float:
        """Return the time."""
        return monotonic()

    def wake(self, owner: object) -> None:
        """Do nothing: `run` looks whether its request is done."""

    def want_link(self) -> None:
        """Make the next turn ask for an address to dial."""
        self._is_wanting = True

    def set_alarm(self, at: float) -> None:
        """Do nothing: `run` looks when the alarm is."""

    # -- the connections ---------------------------------------------------------------------------------------------

    def _only_link(self, request: Request[object]) -> ChannelLink | None:
        """Return the link of a request, if nothing else is waited for."""
        session, only = request.session, None
        if session is None or self._is_wanting or self._dials:
            return None
        for link in self._links:
            if link.session is session:
                only = link
            elif link.session.awaited and not link.is_closed:
                return None
        return only

    def _catch_up(self) -> None:
        """Take what came since the last request, maybe the end of a connection: bytes sent now would be lost."""
        for link in self._links:
            while not link.is_closed and link.receive(0):
                pass

    def _turn(self) -> None:
        """Wait until a socket is ready or the time has come for something, and do it."""
        dispatcher, now = self.dispatcher, monotonic()
        waits = self._flushed()
        if self._is_cut:
            dispatcher.close()
        elif dispatcher.alarm <= now:
            dispatcher.on_time(now)
        elif not isinstance(target := dispatcher.target(now), Address):
            if self._is_wanting:  # `run` may find that one link is enough.
                self._is_wanting = False
                return
            until = dispatcher.alarm if target is None else min(dispatcher.alarm, target)
            until = min([until, *(dial.wait[2] for dial in self._dials if dial.wait is not None)])
            self._wait(waits, max(0.0, until - now))
        elif is_name(target):
            self._resolve(target, now + dispatcher.dial_s(target, now))
        else:
            until = now + dispatcher.dial_s(target, now)
            dial = Dial(target, dialling(target, dispatcher.host_of(target), self._credentials, until))
            self._dials.append(dial)
            self._go_on(dial)

    def _flushed(self) -> list[tuple[ChannelLink, int]]:
        """Send what the network takes; return what to wait for at each link."""
        waits = []
        for link in self._links:
            if link.fileno() < 0:  # The parent's.
                link.break_off("the connection was closed")
            try:
                is_sent = link.is_closed or link.flush()
            except OSError as error:
                link.break_off(reason_of(error))
            if not link.is_closed:
                waits.append((link, selectors.EVENT_READ | (0 if is_sent else selectors.EVENT_WRITE)))
        self._links = [link for link, _ in waits]
        return waits

    def _wait(self, waits: list[tuple[ChannelLink, int]], within_s: float) -> None:
        if not waits and not self._dials:
            sleep(within_s)
            return
        with selectors.DefaultSelector() as selector:
            for link, mask in waits:
                selector.register(link, mask, link)
            for dial in self._dials:
                assert dial.wait is not None
                selector.register(dial.wait[0], dial.wait[1], dial)
            ready = selector.select(within_s)
        for key, mask in ready:
            if isinstance(key.data, Dial):
                self._go_on(key.data)
            elif mask & selectors.EVENT_READ and not key.data.is_closed:
                key.data.receive(0)
        now = monotonic()
        for dial in [*self._dials]:
            if dial.wait is not None and dial.wait[2] <= now:
                self._go_on(dial, TimeoutError())

    def _resolve(self, name: Address, due: float) -> None:
        try:
            found = name_service.addresses_in(name_service.addresses(name, due))
        except (OSError, UnicodeError) as error:  # UnicodeError: no name service could know the name.
            self.dispatcher.on_dial_failed(name, reason_of(error), monotonic())
        else:
            self.dispatcher.on_resolved(name, found)

    def _go_on(self, dial: Dial, error: OSError | None = None) -> None:
        """Make the next step of a dial; with an error in place of what it waits for."""
        dispatcher, is_over = self.dispatcher, True
        try:
            dial.wait = next(dial.steps) if error is None else dial.steps.throw(error)
            is_over = False
        except StopIteration as end:
            connection, opening = end.value
            link = ChannelLink(dial.address, connection, opening, dispatcher)
            self._links.append(link)
            dispatcher.on_connected(link)
        except REFUSALS as refusal:
            dispatcher.on_refused(dial.address, refusal, monotonic())
        except (OSError, UnicodeError) as failure:
            dispatcher.on_dial_failed(dial.address, reason_of(failure), monotonic())
        if is_over:
            self._dials.remove(dial)
