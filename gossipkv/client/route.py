"""The addresses of a client, in the order in which it tries them.

There are the addresses given to `connect`, which always stay, and those of the members of the cluster, once learned.  A
name stands for all addresses that the name service knows for it, and is asked again when all of them have failed.  The
preferred address is first, and one that failed goes to the end, so the next request starts where the last one
succeeded.

Threads may share a route: each change replaces a tuple.
"""

from __future__ import annotations

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
        is_one = isinstance(item, (str, bytes, Address)) or not hasattr(item, "__iter__")
        for address in (item,) if is_one else item:
            if not isinstance(address, (str, Address)):
                raise TypeError(f"an address must be a str, such as '127.0.0.1:7070', not {type(address).__name__}")
            found.append(parse_address(address) if isinstance(address, str) else address)
    if not found:
        raise ValueError("connect needs at least one address, for example connect('127.0.0.1:7070')")
    return found


def is_name(address: Address) -> bool:
    """Return True if the host is a name and no number."""
    return ":" not in address.host and not address.host.replace(".", "").isdigit()


@final
class AddressRoute:
    """The addresses, the preferred one first; names among them are to be resolved."""

    __slots__ = ("_dead", "_found", "_given", "_learned", "_order", "_stale")

    def __init__(self, addresses: Sequence[Address]) -> None:
        self._given = self._order = tuple(dict.fromkeys(addresses))
        self._learned: tuple[Address, ...] = ()  # Live members.
        self._dead: frozenset[Address] = frozenset()
        self._found: dict[Address, tuple[Address, ...]] = {}  # Addresses of names.
        self._stale: frozenset[Address] = frozenset()  # Names to ask for again.
        assert self._given, "a client has an address"

    @property
    def addresses(self) -> tuple[Address, ...]:
        """All addresses, in order."""
        return self._order

    def of(self, address: Address) -> tuple[Address, ...]:
        """Return what to dial for an address: a name is resolved first."""
        found = self._found.get(address, ())
        return (address, *found) if address in self._stale or not found else found

    def host_of(self, address: Address) -> str:
        """Return the name that an address was found by, which certificates have: that of a member comes first."""
        names = (name for name in (*self._learned, *self._given, *self._found) if address in self._found.get(name, ()))
        return next((name.host for name in names), address.host)

    def prefer_another(self, address: Address) -> None:
        """Make another address the preferred one."""
        if self._order[0] == address:
            self._order = tuple(sorted((*self._order[1:], address), key=self._dead.__contains__))

    def resolve(self, name: Address, found: Sequence[Address]) -> None:
        """Note the addresses that a name stands for."""
        self._found = self._found | {name: tuple(dict.fromkeys(found))}
        self._stale -= {name}
        self._arrange()

    def doubt_names(self) -> None:
        """Resolve all names again before their addresses are dialled."""
        self._stale = frozenset(self._found)
        self._arrange()

    def learn(self, live: Iterable[Address], dead: Iterable[Address]) -> None:
        """Note the members of the cluster."""
        self._learned = tuple(dict.fromkeys(live))
        self._dead = frozenset(found for address in dead for found in (address, *self.of(address)))
        self._arrange()

    def _arrange(self) -> None:
        """Keep the order of the addresses that stay; a resolved name gives its place; the dead come last."""
        wanted = dict.fromkeys(found for address in (*self._given, *self._learned) for found in self.of(address))
        places: dict[Address, None] = {}
        for address in self._order:
            places |= dict.fromkeys(found for found in self.of(address) if found in wanted)
        doubted = dict.fromkeys(name for name in self._stale if name in wanted)
        self._order = tuple(sorted(doubted | places | wanted, key=self._dead.__contains__))


def reason_of(error: Exception) -> str:
    """Return in few words why an address could not be reached."""
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__


@final
class ClientClosed(Unavailable):
    """The client is closed, which does not pass."""

    def __init__(self) -> None:
        super().__init__("the client is closed")


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
