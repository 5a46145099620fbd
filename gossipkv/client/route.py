"""The order in which a client tries its addresses.

The preferred address is first, and one that failed goes to the end, so the next request starts where the last one
succeeded.  One request dials each address at most once more than that address broke a connection.

An old connection that breaks says little, since the node may have closed it for being idle; its address is dialled
again, after the others.  A connection made for this very request that breaks counts as a failure of its address.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, final

from gossipkv.address import Address, parse_address
from gossipkv.errors import TimedOut, Unavailable, Unknown

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gossipkv.client._client import Request

Failures = dict[str, str]  # Reasons by address, for one request.
Named = str | Address


def addresses_of(given: Iterable[Named | Iterable[Named]]) -> list[Address]:
    """Return the addresses given to `connect`, one by one or in lists.

    Raises:
        TypeError: an argument is no address.
        ValueError: there is none, or one that is not `host:port`.
    """
    found: list[Address] = []
    for item in given:
        for address in (item,) if isinstance(item, (str, bytes, Address)) else item:
            if not isinstance(address, (str, Address)):
                raise TypeError(f"an address is text, such as '127.0.0.1:7070', not {type(address).__name__}")
            found.append(parse_address(address) if isinstance(address, str) else address)
    if not found:
        raise ValueError("at least one address is needed, for example connect('127.0.0.1:7070')")
    return found


@final
class AddressRoute:
    """The addresses, the preferred one first."""

    __slots__ = ("_addresses",)

    def __init__(self, addresses: Sequence[Address]) -> None:
        self._addresses = deque(dict.fromkeys(addresses))
        assert self._addresses, "a client has an address"

    def __len__(self) -> int:
        return len(self._addresses)

    def untried(self, failures: Failures) -> list[Address]:
        """Return the addresses that are not among `failures`, in order."""
        return [address for address in self._addresses if str(address) not in failures]

    def prefer_another(self, address: Address) -> None:
        """Make another address the preferred one."""
        if self._addresses[0] == address:
            self._addresses.rotate(-1)


def reason_of(error: Exception) -> str:
    """Return in few words why an address could not be reached."""
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__


def unreachable(failures: Failures) -> Unavailable:
    """Return the error for a request with no address left."""
    return Unavailable(f"no node could be reached: {_listed(failures)}", dict(failures))


def too_late(failures: Failures) -> TimedOut:
    """Return the error for a request whose time is up before a node was found."""
    return TimedOut(f"no node could be reached in time: {_listed(failures)}", dict(failures))


def no_answer(request: Request[object], address: Address) -> TimedOut:
    """Return the error for a request that a node did not answer."""
    return TimedOut(f"{address} did not answer {request.method} in time", {"address": str(address)})


def unknown(request: Request[object], address: Address, reason: object, cause: Exception | None) -> Unknown:
    """Return the error for a request that may have been done and may not be repeated."""
    error = Unknown(f"{address}: {reason}; {request.method} may or may not have been done", {"address": str(address)})
    error.__cause__ = cause
    return error


def _listed(failures: Failures) -> str:
    return "; ".join(f"{address}: {reason}" for address, reason in failures.items()) or "still connecting"
