"""The one connection of a blocking client, its replacement, and the lock on its use.

A client serves one thread at a time; a second thread is refused during a request, since both would read the same
stream.  A forked child starts anew: it closes the inherited connection on its own side, which the parent does not
notice, and its first request makes a new one.
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
    """The link in use, the route to the next one, and the lock of the user."""

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
            RuntimeError: the link is in use.
        """
        if self._generation != forks.generation:
            if self.held is not None:
                self.held.close()
            self._generation = forks.generation
            self._lock = threading.Lock()  # The parent's lock may have been taken at the time of the fork.
            self.held = None
        if not self._lock.acquire(blocking=False):
            raise RuntimeError(
                "the client is in use: one thread at a time, and no requests from a signal handler amid another; "
                "give each thread a client of its own"
            )

    def release(self) -> None:
        """End the use of the link."""
        self._lock.release()

    def close(self) -> None:
        """Close the link for good."""
        self._is_closed = True
        if self.held is not None:
            self.held.close()

    def link(self, deadline: float, failures: Failures) -> BlockingLink:
        """Return the open link, or a new one to the first address not in `failures`; add failures of new addresses.

        Raises:
            Unavailable: no address is left; lists each and why.
            TimedOut: the deadline passed first.
            Unauthorized, RequestError: a node refuses the token.
        """
        if self._is_closed:
            raise Unavailable("the client is closed")
        if self.held is not None:
            if self.held.is_open:
                return self.held
            self.held.close()
        untried = [address for address in self._route.addresses if str(address) not in failures]
        for position, address in enumerate(untried):
            remaining_s = deadline - monotonic()
            if remaining_s <= 0:
                raise too_late(failures)
            try:
                self.held = BlockingLink(address, remaining_s / (len(untried) - position), self._credentials)
            except REFUSALS:
                raise
            except (OSError, UnicodeError, LinkError, GossipKVError) as error:  # UnicodeError: not a host name.
                failures[str(address)] = reason_of(error)
                self._route.prefer_another(address)
            else:
                return self.held
        raise unreachable(failures)

    def leave(self, link: BlockingLink, broken: LinkError, failures: Failures, *, is_new: bool) -> None:
        """Close a broken link and prefer another address; `is_new`: the link was made for the request that failed."""
        link.close()
        self._route.prefer_another(link.address)
        if is_new:
            failures[str(link.address)] = str(broken)

    def prefer_another(self, link: BlockingLink) -> None:
        """Make the next link use another address."""
        self._route.prefer_another(link.address)
