"""The one connection that a blocking client holds, and how it gets the next.

Here, too, stands whose turn it is.  A client serves one thread at a time; a second one that comes amid a request is
refused, since both would read the same stream.  A child after `fork` starts anew: what it inherited is closed on
its side alone, which the parent does not notice, and its first request makes a connection of its own.
"""

from __future__ import annotations

import threading
from time import monotonic
from typing import TYPE_CHECKING, final

from gossipkv.client import forks
from gossipkv.client.credentials import REFUSALS
from gossipkv.client.link import BlockingLink, LinkError
from gossipkv.client.route import AddressRoute, Failures, reason_of, too_late, unreachable
from gossipkv.errors import GossipKVError, Unavailable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gossipkv.address import Address
    from gossipkv.client.credentials import Credentials


@final
class Dialler:
    """The link in use, the route to the next one, and the lock of whoever uses them."""

    __slots__ = ("_credentials", "_generation", "_is_closed", "_lock", "_route", "held")

    def __init__(self, addresses: Sequence[Address], credentials: Credentials) -> None:
        self._credentials = credentials
        self._route = AddressRoute(addresses)
        self._is_closed = False
        self._generation = forks.generation
        self._lock = threading.Lock()
        self.held: BlockingLink | None = None

    def acquire(self) -> None:
        """Begin to use the link; `release` follows.

        Raises:
            RuntimeError: it is in use.
        """
        if self._generation != forks.generation:
            if self.held is not None:
                self.held.close()
            self._generation = forks.generation
            self._lock = threading.Lock()  # The parent's may have been taken at that moment.
            self.held = None
        if not self._lock.acquire(blocking=False):
            raise RuntimeError(
                "the client is in use: one thread at a time, and no requests from a signal handler amid another; "
                "give each thread a client of its own"
            )

    def release(self) -> None:
        """End the use."""
        self._lock.release()

    def close(self) -> None:
        """End the link; from now on there is none."""
        self._is_closed = True
        if self.held is not None:
            self.held.close()

    def link(self, deadline: float, failures: Failures) -> BlockingLink:
        """The open link, else a new one to the first address that is not among `failures`; adds to these.

        Raises:
            Unavailable: no address is left; lists each and why.
            TimedOut: the deadline passed first.
            Unauthorized, RequestError: a node does not take the token.
        """
        if self._is_closed:
            raise Unavailable("the client is closed")
        if self.held is not None:
            if self.held.is_open:
                return self.held
            self.held.close()
        untried = self._route.untried(failures)
        for position, address in enumerate(untried):
            remaining_s = deadline - monotonic()
            if remaining_s <= 0:
                raise too_late(failures)
            try:
                self.held = BlockingLink(address, remaining_s / (len(untried) - position), self._credentials)
            except REFUSALS:
                raise
            except (OSError, UnicodeError, LinkError, GossipKVError) as error:  # UnicodeError: no name of a host.
                failures[str(address)] = reason_of(error)
                self._route.prefer_another(address)
            else:
                return self.held
        raise unreachable(failures)

    def leave(self, link: BlockingLink, broken: LinkError, failures: Failures, *, is_new: bool) -> None:
        """Go on elsewhere; `is_new`: the link was made for the request that it failed."""
        link.close()
        self._route.prefer_another(link.address)
        if is_new:
            failures[str(link.address)] = str(broken)

    def prefer_another(self, link: BlockingLink) -> None:
        """Let the next link go to the next address."""
        self._route.prefer_another(link.address)
