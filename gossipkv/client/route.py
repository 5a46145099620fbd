"""To which node?  The addresses a client was given, and the one link it holds.

The preferred address stands first and one that failed goes to the end, so the next request starts where the last one
succeeded.  For one request each address is dialled at most once, and the time left is shared among those to come.

A link that was there before the request says little when it breaks (its node may have closed it for being idle), so
its address is dialled again, after the others; one that was made for this very request and broke is held against it.
"""

from __future__ import annotations

from collections import deque
from time import monotonic
from typing import TYPE_CHECKING, final

from gossipkv.client.link import Link, LinkError
from gossipkv.errors import TimedOut, Unavailable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gossipkv.address import Address

Failures = dict[str, str]  # Of one request: address to reason.


@final
class Route:
    """The link in use, and where the next one would go."""

    __slots__ = ("_addresses", "_is_closed", "held")

    def __init__(self, addresses: Sequence[Address]) -> None:
        self._addresses = deque(addresses)
        self._is_closed = False
        self.held: Link | None = None

    def close(self) -> None:
        """End the link; from now on there is none."""
        self._is_closed = True
        if self.held is not None:
            self.held.close()

    def link(self, deadline: float, failures: Failures) -> Link:
        """The open link, else a new one to the first address that is not among `failures`; adds to these.

        Raises:
            Unavailable: no address is left; lists each and why.
            TimedOut: the deadline passed first.
        """
        if self._is_closed:
            raise Unavailable("the client is closed")
        if self.held is not None and self.held.is_open:
            return self.held
        untried = [address for address in self._addresses if str(address) not in failures]
        for position, address in enumerate(untried):
            remaining_s = deadline - monotonic()
            if remaining_s <= 0:
                raise TimedOut(f"no node could be reached in time: {_listed(failures)}", dict(failures))
            try:
                self.held = Link(address, remaining_s / (len(untried) - position))
            except (OSError, UnicodeError) as error:  # UnicodeError: a name that no name service could know.
                failures[str(address)] = _reason(error)
                self.prefer_another(address)
            else:
                return self.held
        raise Unavailable(f"no node could be reached: {_listed(failures)}", dict(failures))

    def leave(self, link: Link, broken: LinkError, failures: Failures, *, is_new: bool) -> None:
        """Go on elsewhere; `is_new`: the link was made for the request that it failed."""
        link.close()
        self.prefer_another(link.address)
        if is_new:
            failures[str(link.address)] = str(broken)

    def prefer_another(self, address: Address) -> None:
        """Let the next link go to the next address."""
        if self._addresses[0] == address:
            self._addresses.rotate(-1)


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def _listed(failures: Failures) -> str:
    return "; ".join(f"{address}: {reason}" for address, reason in failures.items())
