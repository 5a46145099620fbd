"""Choice of the node to ask for a key of a table: an owner, by the table's map; shared by both clients, without I/O.

A request carries the config id of its map.  A node that knows a newer one for that key refuses before doing anything
(`STALE_CONFIG`); the map is fetched from that node, and the request sent again.  An unreachable owner is not asked for
a second, and the map is fetched again after a while.  A put that may be smeared goes to a node that is no owner, if its
range lasts less than a minute.

Requests that an owner cannot serve go without a map to the node that the client is connected to, which finds an owner.
So an old map, or one with unreachable addresses, costs time and no request.
"""

from __future__ import annotations

import random
from bisect import bisect_right
from math import inf
from typing import TYPE_CHECKING, Final, NamedTuple, cast, final

from gossipkv.address import parse_address
from gossipkv.client import reads
from gossipkv.client._client import call_request
from gossipkv.errors import (
    GossipKVError,
    NotReady,
    ProtocolError,
    RequestError,
    ServiceError,
    StaleConfig,
    TimedOut,
    Unavailable,
)
from gossipkv.keyspace.partitioner import TABLE_HASHES
from gossipkv.keyspace.time_key import time_key_of

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence
    from typing import TypeVar

    from gossipkv.address import Address
    from gossipkv.client._client import Request
    from gossipkv.keyspace.time_key import TimeKey
    from gossipkv.wire.rpc import Value

    _Result = TypeVar("_Result")
    Steps = Generator[Request[object], object, _Result]

ATTEMPTS: Final = 3  # Attempts of one request by maps, each after a newer map.
REST_S: Final = 1.0
RENEW_S: Final = 5.0


class Owners(NamedTuple):
    """The owners in a table's map."""

    config: int = 0  # 0: there is no map, since this is a dataset or the node tells no addresses.
    partitioner: Callable[[bytes], int] | None = None  # None: a range table.
    firsts: Sequence[bytes] = ()  # The first key of each partition, in order; in a hash table the shards.
    addresses: Sequence[tuple[Address, ...]] = ()  # The AVAILABLE owners of each partition.
    time_key: TimeKey | None = None  # Set if the table smears.
    everybody: tuple[Address, ...] = ()  # All live nodes.

    def of(self, key: bytes) -> tuple[Address, ...]:
        """Return the owners of a key."""
        if self.partitioner is not None:
            return self.addresses[self.partitioner(key) % len(self.addresses)]
        at = bisect_right(self.firsts, key) - 1
        return self.addresses[at] if at >= 0 else ()

    def smearers(self, key: bytes) -> Sequence[Address]:
        """Return the nodes that would smear a put of a key; empty if it is not smeared."""
        at = bisect_right(self.firsts, key) - 1
        if self.time_key is None or at < 0 or at + 1 == len(self.firsts):
            return ()
        is_short = self.time_key.is_short(self.firsts[at], self.firsts[at + 1])
        return [address for address in self.everybody if address not in self.addresses[at]] if is_short else ()


NO_OWNERS: Final = Owners()


@final
class ByMap:
    """Chooses nodes by the map of one table."""

    def __init__(self, table: str, now: Callable[[], float], draw: Callable[[], float] = random.random) -> None:
        """Begin without a map; `now` returns seconds of any clock, `draw` numbers from 0 to 1 that spread requests."""
        self._table = table
        self._now = now
        self._draw = draw
        self._owners = NO_OWNERS
        self.config = 0  # The config id of the map.
        self._renew_at = -inf  # Time at which the map is fetched again.
        self._is_fetched = False  # A request is fetching the map; others go without one meanwhile.
        self._rests: dict[Address, float] = {}  # End of each address's rest.

    def owner(self, key: bytes, *, smears: bool = False) -> Address | None:
        """Return the address to ask first; None if only `asking` knows.  `smears`: the put may be smeared."""
        if self._renew_at < inf and self._now() >= self._renew_at:
            return None
        if smears or self._rests:
            return self._pick_for(key, smears=smears)
        owners = self._owners.of(key)
        return owners[0] if len(owners) == 1 else self._pick(owners)

    def asking(
        self,
        key: bytes,
        make: Callable[[int], Request[_Result]],
        failed: tuple[Address, GossipKVError] | None = None,
        *,
        smears: bool = False,
    ) -> Steps[_Result]:
        """Yield steps until a request for one key is answered; `make` makes it for a config id, 0 for none.

        `failed`: the address that was already asked, and its error.  `smears`: as in `owner`.

        Raises:
            GossipKVError: the error of the last step.
        """
        if self._now() >= self._renew_at:
            yield from self._renew(None)
        for _ in range(ATTEMPTS):
            if failed is None:
                address, config = self._pick_for(key, smears=smears), self.config
                if address is None:
                    break
                try:
                    request = make(config)
                    request.at = address
                    return cast("_Result", (yield request))
                except GossipKVError as error:
                    failed = address, error
            if not (yield from self._goes_on(*failed)):
                break
            failed = None
        return cast("_Result", (yield make(0)))

    def _goes_on(self, address: Address, error: GossipKVError) -> Steps[bool]:
        """Return True if an owner should be asked again after this error, and False if the node in use should be.

        Raises:
            GossipKVError: the error is the final answer.
        """
        match error:
            case StaleConfig():
                newer = error.details.get("config")
                if not isinstance(newer, int) or self.config < newer:  # Otherwise the map was fetched meanwhile.
                    yield from self._renew(address)
                return True
            case NotReady() if error.details.get("waits_for") == "map":
                return False
            case Unavailable() | TimedOut():
                now = self._now()
                self._rests = {**self._rests, address: now + REST_S}  # Threads share it: each change replaces it.
                self._renew_at = min(self._renew_at, now + RENEW_S)  # Its partitions may have moved.
                if isinstance(error, Unavailable):
                    return False
        raise error

    def _renew(self, source: Address | None) -> Steps[None]:
        if not self._is_fetched:
            self._is_fetched, self._renew_at = True, self._now() + REST_S
            try:
                self._owners = yield from self._fetched(source)
                self.config, self._renew_at = self._owners.config, inf
            except (RequestError, ServiceError) as error:  # The next node may know the table, or raises itself.
                if isinstance(error, TimedOut):
                    raise
            finally:
                self._is_fetched = False

    def _pick_for(self, key: bytes, *, smears: bool) -> Address | None:
        """Return the address to ask for a key; None if all owners rest."""
        if smears and (smearers := self._owners.smearers(key)) and (address := self._pick(smearers)) is not None:
            return address
        return self._pick(self._owners.of(key))

    def _pick(self, owners: Sequence[Address]) -> Address | None:
        """Return one of these addresses that does not rest; None if all do."""
        if self._rests:
            now = self._now()
            self._rests = {address: until for address, until in self._rests.items() if until > now}
            owners = [address for address in owners if address not in self._rests]
        return owners[int(self._draw() * len(owners))] if owners else None

    def _fetched(self, source: Address | None) -> Steps[Owners]:
        """Fetch the map from a node, page by page; start again if it changes meanwhile."""
        pages: list[dict[str, Value]] = []
        options: dict[str, Value] = {}
        while not pages or options:
            request = call_request("partition_map", [self._table, options] if options else [self._table])
            request.at = source
            page = reads.map_of("partition_map", cast("Value", (yield request)))
            if pages and page.get("config") != pages[0].get("config"):
                pages, options = [], {}
                continue
            pages.append(page)
            options = {} if page.get("next") is None else {"start": page["next"]}
        return owners_of(pages)


def owners_of(pages: Sequence[dict[str, Value]]) -> Owners:
    """Return the owners in the pages of a map.

    Raises:
        ProtocolError: the pages are not a map.
    """
    first = pages[0]
    match first.get("config"), first.get("addresses"), first.get("partitioner"):
        case int(config), dict(named), None | str() as partitioner if partitioner in {None, *TABLE_HASHES}:
            pass
        case None, _, _:
            return NO_OWNERS
        case _:
            raise ProtocolError("the node answered partition_map with a map of unknown form")
    addresses: dict[Value, Address] = {}
    addresses |= {name: parse_address(text) for name, text in named.items() if isinstance(text, str)}
    firsts: list[bytes] = []
    owners: list[tuple[Address, ...]] = []
    shared: dict[tuple[Address, ...], tuple[Address, ...]] = {}  # Thousands of partitions have few sets of owners.
    for page in pages:
        rows = page.get("partitions")
        for row in rows if isinstance(rows, list) else ():
            match row:
                case {"start": bytes(start), "assignments": [*assignments]}:
                    found = tuple(_available(assignments, addresses))
                    firsts.append(start)
                    owners.append(shared.setdefault(found, found))
                case _:
                    raise ProtocolError("the node answered partition_map with a partition of unknown form")
    if partitioner is not None and not owners:
        raise ProtocolError("the node answered partition_map with a hash table that has no shards")
    hashed = None if partitioner is None else TABLE_HASHES[partitioner]
    time_key = time_key_of(first.get("time_key")) if first.get("smear") is True else None
    return Owners(config, hashed, firsts, owners, time_key, (*addresses.values(),))


def _available(assignments: Sequence[Value], addresses: dict[Value, Address]) -> list[Address]:
    found: list[Address] = []
    for assignment in assignments:
        match assignment:
            case {"node": str(node), "state": "AVAILABLE"} if node in addresses:
                found.append(addresses[node])
    return found
