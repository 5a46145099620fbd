"""The blocking client: plain threads, scripts, Spark tasks; any operating system, no event loop.

    with gossipkv.blocking.connect("127.0.0.1:7070") as client:
        geo = client.dataset("geo")
        geo.get("paris")

One connection at a time, to the first of the addresses that answers.  When it breaks, the requests in flight that
may be repeated (every read) are repeated at once at the next address, within their own deadline; one that may not be
repeated raises `Unavailable`, since nobody knows whether it was done.  A node that is silent until the deadline is
left for the next address, so one frozen node costs one request its time and no more.

A client belongs to one thread at a time, and not to a child after `fork`: give each its own.
"""

from __future__ import annotations

from collections import deque
from time import monotonic
from typing import TYPE_CHECKING, Final, Self, TypeVar, final

from gossipkv.address import Address, parse_address
from gossipkv.client import reads
from gossipkv.client.link import LinkError
from gossipkv.client.pipeline import Pipeline
from gossipkv.client.route import Failures, Route
from gossipkv.errors import BadRequest, ProtocolError, TimedOut, Unavailable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from types import TracebackType

    from gossipkv.client.reads import Key, Record
    from gossipkv.wire.rpc import Value

_OneKey = TypeVar("_OneKey", bound="Key")

TIMEOUT_MS: Final = 1000  # The interface's default: far over any healthy answer, well below a person's patience.
IN_FLIGHT: Final = 100  # Hides a round trip of 1 ms at 100,000 requests a second.

# What may be asked twice without harm.  Anything else is not repeated by itself.
REPEATABLE: Final = frozenset({"ping", "info", "databases", "get", "get_many", "scan", "status", "refresh"})


def connect(*addresses: str | Address, timeout_ms: int = TIMEOUT_MS) -> Client:
    """A client connected to the first of `addresses` (`host:port`) that can be reached.

    Args:
        addresses: Some nodes of one cluster, in order of preference; shuffle them to spread many clients.
        timeout_ms: Time allowed for connecting, and for each request unless it says otherwise.

    Raises:
        Unavailable: none can be reached; the message and `details` list each address and why.
        ValueError: no address, one that is not `host:port`, or a timeout that is not positive.
    """
    client = Client(addresses, timeout_ms=timeout_ms)
    client.dial()
    return client


@final
class Client:
    """A connection to a cluster; `connect` makes one.  Use it as a context manager, or call `close`."""

    __slots__ = ("_route", "_timeout_ms")

    def __init__(self, addresses: Sequence[str | Address], *, timeout_ms: int = TIMEOUT_MS) -> None:
        if not addresses:
            raise ValueError("at least one address is needed, for example connect('127.0.0.1:7070')")
        self._route = Route([parse_address(item) if isinstance(item, str) else item for item in addresses])
        self._timeout_ms = _positive(timeout_ms)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        where = "not connected" if self.address is None else f"connected to {self.address}"
        return f"<gossipkv.blocking.Client {where}>"

    @property
    def address(self) -> Address | None:
        """The node in use, or None while there is no connection."""
        link = self._route.held
        return link.address if link is not None and link.is_open else None

    def close(self) -> None:
        """End the connection.  A closed client answers every request with `Unavailable`."""
        self._route.close()

    def dial(self) -> None:
        """Connect now, if not connected; requests do it by themselves.  Raises as `connect` does."""
        self._route.link(monotonic() + self._timeout_ms / 1000, {})

    def dataset(self, name: str) -> Dataset:
        """The dataset `name`; nothing is asked of the node before the first read."""
        return Dataset(self, name)

    def ping(self) -> None:
        """Return if the node answers."""
        if (answer := self.call("ping")) != "pong":
            raise ProtocolError(f"ping was answered with {answer!r}")

    def info(self) -> dict[str, Value]:
        """The node's name, version, databases, counters."""
        return reads.map_of("info", self.call("info"))

    def databases(self) -> list[dict[str, Value]]:
        """The databases the node knows."""
        return reads.maps_of("databases", self.call("databases"))

    def status(self, database: str | None = None) -> dict[str, Value]:
        """What is held, built and served, of one database or all: per database, version and partition."""
        options: list[Value] = [] if database is None else [{"database": database}]
        return reads.map_of("status", self.ask("status", options))

    def refresh(self, database: str | None = None) -> Value:
        """Start a scan of the source, of one database or all; returns the versions seen."""
        return self.call("refresh", database)

    def call(self, method: str, *params: Value, timeout_ms: int | None = None) -> Value:
        """Any method of the protocol (`docs/wire.md`), and its result as it came.

        Raises:
            GossipKVError: the node's answer was an error, or there was none: `Unavailable`, `TimedOut`,
                `ProtocolError`.
        """
        return self.ask(method, params, timeout_ms)

    def ask(self, method: str, params: Sequence[Value], timeout_ms: int | None = None) -> Value:
        """`call` with the parameters as one sequence."""
        deadline = monotonic() + (self._timeout_ms if timeout_ms is None else _positive(timeout_ms)) / 1000
        route = self._route
        before = route.held
        failures: Failures = {}
        while True:
            link = route.link(deadline, failures)
            try:
                answer = link.ask(method, params, deadline)
            except LinkError as broken:
                route.leave(link, broken, failures, is_new=link is not before)
                if method not in REPEATABLE:
                    raise Unavailable(
                        f"{link.address}: {broken}; {method} may or may not have been done",
                        {str(link.address): str(broken)},
                    ) from None
            except TimedOut:
                route.prefer_another(link.address)
                raise
            else:
                if answer.error is not None:
                    raise answer.error
                return answer.result

    def pipeline(self, method: str, requests: Iterable[Sequence[Value]], in_flight: int = IN_FLIGHT) -> Iterator[Value]:
        """The results of `requests` (each the parameters of a repeatable method), in order.

        At most `in_flight` are open at once; `requests` is taken as they are sent, and may be endless.  Each has the
        client's timeout from the moment it is the oldest.  Leaving the loop early is fine, and so is asking for
        something else inside it.  Raises as `call` does, at the request that failed.
        """
        if in_flight < 1:
            raise ValueError(f"in_flight must be at least 1, not {in_flight}")
        if method not in REPEATABLE:
            raise ValueError(f"{method} is not known to be repeatable, so it cannot be pipelined")
        timeout_s = self._timeout_ms / 1000
        return Pipeline(self._route, method, iter(requests), in_flight=in_flight, timeout_s=timeout_s).results()


@final
class Dataset:
    """A dataset's reads.  Every one takes `version` (exactly that one) or `min_version` (that or a newer one)."""

    __slots__ = ("_client", "name")

    def __init__(self, client: Client, name: str) -> None:
        self._client = client
        self.name = name

    def __repr__(self) -> str:
        return f"<gossipkv.blocking.Dataset {self.name!r} of {self._client!r}>"

    def get(
        self, key: Key, *, version: str | None = None, min_version: str | None = None, timeout_ms: int | None = None
    ) -> bytes | None:
        """The value of `key`, or None if there is none (an empty value is `b""`).

        Raises:
            UnknownDatabase, UnknownVersion, NotReady, Corrupt: what the node says of it.
            Unavailable, TimedOut, ProtocolError: there was no answer.
        """
        return self.get_with_version(key, version=version, min_version=min_version, timeout_ms=timeout_ms)[0]

    def get_with_version(
        self, key: Key, *, version: str | None = None, min_version: str | None = None, timeout_ms: int | None = None
    ) -> tuple[bytes | None, str]:
        """`get`, and the version that answered."""
        params = reads.parameters(self.name, [reads.key_bytes(key)], version, min_version)
        return reads.value_of(self._client.ask("get", params, timeout_ms))

    def get_many(
        self,
        keys: Iterable[Key],
        *,
        version: str | None = None,
        min_version: str | None = None,
        timeout_ms: int | None = None,
    ) -> list[bytes | None]:
        """The values of `keys`, in the order asked, all from one version."""
        return self.get_many_with_version(keys, version=version, min_version=min_version, timeout_ms=timeout_ms)[0]

    def get_many_with_version(
        self,
        keys: Iterable[Key],
        *,
        version: str | None = None,
        min_version: str | None = None,
        timeout_ms: int | None = None,
    ) -> tuple[list[bytes | None], str]:
        """`get_many`, and the version that answered."""
        asked: list[Value] = [reads.key_bytes(key) for key in _several(keys)]
        params = reads.parameters(self.name, [asked], version, min_version)
        return reads.values_of(self._client.ask("get_many", params, timeout_ms), len(asked))

    def scan(
        self,
        *,
        start: Key | None = None,
        end: Key | None = None,
        prefix: Key | None = None,
        reverse: bool = False,
        limit: int | None = None,
        version: str | None = None,
    ) -> Iterator[Record]:
        """The records with `start <= key < end` and `prefix`, in key order; fetched page by page as they are taken.

        All pages come from the version that answered the first.  `limit` bounds the records in all.
        """
        if limit is not None and limit < 0:
            raise BadRequest(f"limit must not be negative, got {limit}")
        bounds: dict[str, Value] = {
            name: reads.key_bytes(key)
            for name, key in (("start", start), ("end", end), ("prefix", prefix))
            if key is not None
        }
        return self._pages(bounds, limit, version, reverse=reverse)

    def _pages(
        self, bounds: dict[str, Value], limit: int | None, version: str | None, *, reverse: bool
    ) -> Iterator[Record]:
        left = limit
        cursor: Value = None
        while left is None or left > 0:
            params = reads.parameters(
                self.name, [], version, None, **bounds, reverse=reverse or None, limit=left, cursor=cursor
            )
            records, cursor, version = reads.page_of(self._client.ask("scan", params))
            yield from records
            if left is not None:
                left -= len(records)
            if cursor is None:
                return

    def iter_get(
        self,
        keys: Iterable[_OneKey],
        in_flight: int = IN_FLIGHT,
        *,
        version: str | None = None,
        min_version: str | None = None,
    ) -> Iterator[tuple[_OneKey, bytes | None, str]]:
        """`(key, value, version)` for each of `keys`, in order, with up to `in_flight` requests on their way.

        `keys` may be endless; they are taken as requests are sent.  Each answer is from the version it names, so
        neighbours may differ while the node switches; `get_many` and `scan` are from one.
        """
        asked: deque[_OneKey] = deque()

        def requests() -> Iterator[list[Value]]:
            for key in _several(keys):
                asked.append(key)
                yield reads.parameters(self.name, [reads.key_bytes(key)], version, min_version)

        for result in self._client.pipeline("get", requests(), in_flight):
            value, answering = reads.value_of(result)
            yield asked.popleft(), value, answering


def _positive(timeout_ms: int) -> int:
    if timeout_ms <= 0:
        raise ValueError(f"timeout_ms must be positive, not {timeout_ms}")
    return timeout_ms


def _several(keys: Iterable[_OneKey]) -> Iterable[_OneKey]:
    """Guard against the classic slip: one key is an iterable as well, of its characters."""
    if isinstance(keys, (bytes, str)):
        raise TypeError(f"expected several keys, got the one {keys!r}; put it in a list")
    return keys
