"""Seeds: names of members to join, resolved at the start and while no member answers there.

A name service may be late, and the addresses of a name may change while a cluster moves. A numeric address is fixed.
"""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING, Final, final

import trio

from gossipkv.log import Log

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gossipkv.address import Address
    from gossipkv.environment.seam import SocketFactory

FIRST_PAUSE_S: Final = 1.0
LAST_PAUSE_S: Final = 30.0
RESOLVE_TIMEOUT_S: Final = 5.0

# Bounds the addresses of all names together: a name may stand for a whole cluster, of which a few addresses suffice.
MAX_ADDRESSES: Final = 64


@final
class Seeds:
    """The names given with `join`, and their addresses."""

    def __init__(self, names: Sequence[Address], sockets: SocketFactory, reaches: Callable[[Address], bool]) -> None:
        """`reaches`: returns True if this node can reach an address; other addresses of a name are ignored."""
        self._reaches = reaches
        self.names = tuple(names)
        self.addresses: tuple[Address, ...] = ()
        self._sockets = sockets
        self._log = Log("gossipkv.gossip")
        self._found: dict[Address, list[Address]] = {}
        self._unknown: set[Address] = set()

    async def look_up(self) -> bool:
        """Resolve all names at once; return True if the addresses changed.

        A name that cannot be resolved keeps its addresses. Once one name is resolved, the others get only a moment
        more, since joining does not need all of them.
        """
        found: dict[Address, list[Address]] = {}
        limits = [trio.CancelScope(deadline=trio.current_time() + RESOLVE_TIMEOUT_S) for _ in self.names]
        async with trio.open_nursery() as nursery:
            for name, limit in zip(self.names, limits, strict=True):
                nursery.start_soon(self._resolve, name, limit, limits, found)
        self._found |= {name: addresses for name, addresses in found.items() if addresses}
        every = dict.fromkeys(address for name in self.names for address in self._found.get(name, ()))
        addresses = tuple(every)[:MAX_ADDRESSES]
        if not addresses or addresses == self.addresses:
            return False
        self.addresses = addresses
        return True

    async def watch(self, tell: Callable[[Sequence[Address]], None], is_reached: Callable[[], bool]) -> None:
        """Resolve again and again while no member is reached there."""
        pause_s = FIRST_PAUSE_S
        while not all(_is_numeric(name.host) for name in self.names):
            await trio.sleep(pause_s)
            pause_s = min(2 * pause_s, LAST_PAUSE_S)
            if not is_reached() and await self.look_up():
                tell(self.addresses)

    async def _resolve(
        self,
        name: Address,
        limit: trio.CancelScope,
        limits: Sequence[trio.CancelScope],
        found: dict[Address, list[Address]],
    ) -> None:
        reason = "the name service has not answered in time"
        with limit:
            try:
                addresses = await self._sockets.resolve(name)
            except OSError as error:
                reason = error.strerror or str(error)
            else:
                hosts = ", ".join(address.host for address in addresses)
                reason = f"only addresses of the other family: {hosts}" if addresses else "only link-local addresses"
                found[name] = list(filter(self._reaches, addresses))
                for other in limits if found[name] else ():
                    other.deadline = min(other.deadline, trio.current_time() + FIRST_PAUSE_S)
        if found.get(name):
            self._unknown.discard(name)
        elif name not in self._unknown:
            self._unknown.add(name)
            self._log.warning("unknown_name", join=str(name), reason=reason)


def _is_numeric(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
