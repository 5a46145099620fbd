"""Answers to GET and HEAD of one key, and the common parts of `batches` (many keys) and `scans` (ordered records).

Errors of the wire become Sequins' statuses, with the wire's code beside them.  A 404 that names the version means that
the version lacks the key; without a version, the database does not exist or has no ready version.  For a node that
passes on a request (`?proxy`) a 404 would mean the former, so missing data is 501 or 500 there.
"""

from __future__ import annotations

import time
from base64 import b64encode
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, TypeVar, final

import trio

from gossipkv.access.users import address_group
from gossipkv.errors import (
    WRITES_ARE,
    GossipKVError,
    NotReady,
    Overloaded,
    ProtocolError,
    UnknownDatabase,
    UnknownVersion,
)
from gossipkv.http import conditions
from gossipkv.http.answers import HttpAnswer, refusal, text
from gossipkv.http.target import NAME
from gossipkv.status.codec import decode_list
from gossipkv.status.reports import KINDS, DatabaseSummary

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from gossipkv.http.answers import Asker, Header, HttpRequest
    from gossipkv.http.permissions import HttpPermissions
    from gossipkv.http.read_options import ReadOptions, ReadSession
    from gossipkv.http.target import RequestTarget
    from gossipkv.wire.rpc import Value


_Result = TypeVar("_Result")

VERSION: Final = b"X-Sequins-Version"
TTL: Final = b"GossipKV-TTL"  # The remaining lifetime of a record, in seconds.
TOKEN: Final = b"GossipKV-Token"  # The clocks of tables that a session has seen, in Base64.
NOT_KEPT: Final = (b"Cache-Control", b"no-store")
GET: Final = frozenset({b"GET", b"HEAD"})
ALLOW: Final = (b"Allow", b"GET, HEAD, OPTIONS")

_RETRY: Final = {429: b"1", 503: b"1"}  # Seconds until another attempt makes sense.
RETRY_S: Final = 1.0  # A question costs the node one map for each database, so once a second is cheap.

_LATEST_MS: Final = 253_402_300_799_999  # The end of the year 9999, the last one that HTTP can express.


@final
class SourceTimes:
    """The times when versions were last modified at their source; one question runs at a time for all callers.

    A known time does not change.  If the node does not know the time of a new version yet, it is asked again after
    `RETRY_S`; until then its values have no `Last-Modified`.
    """

    def __init__(self, ask: Asker) -> None:
        self._ask = ask
        self._known: dict[tuple[str, str], int] = {}
        self._unknown: dict[tuple[str, str], float] = {}
        self._asking = trio.Lock()

    async def of(self, database: str, version: str) -> int | None:
        """Return when a version was modified, in whole seconds since the epoch; None if unknown."""
        name = (database, version)
        if (time_s := self._known.get(name)) is not None:
            return time_s
        async with self._asking:
            if name not in self._known and self._unknown.get(name, 0.0) <= trio.current_time():
                await self._look()
                self._note_unknown(name)
        return self._known.get(name)

    async def _look(self) -> None:
        """Replace the known times by those that the node reports now."""
        try:
            databases = decode_list(DatabaseSummary, await self._ask.call("databases"))
        except GossipKVError:
            return
        self._known = {
            (database.name, version): self._known.get((database.name, version), time_ms // 1000)
            for database in databases
            for version, time_ms in database.times.items()
            if 0 <= time_ms <= _LATEST_MS
        }

    def _note_unknown(self, name: tuple[str, str]) -> None:
        now = trio.current_time()
        self._unknown = {unknown: until for unknown, until in self._unknown.items() if until > now}
        if name not in self._known:
            self._unknown[name] = now + RETRY_S


@final
class EventStreams:
    """The open event streams; `max_of_address`: of one address, 0 for no limit."""

    def __init__(self, max_of_address: int = 0) -> None:
        self._max_of_address, self._open = max_of_address, Counter[str]()
        self._waits, self._is_over = set[trio.CancelScope](), False

    def check(self, address: str) -> None:
        """Check that an address may have one more stream.  Raises Overloaded."""
        limit = self._max_of_address
        if limit and self._open[address_group(address)] >= limit:
            words = f"{limit} event streams from this address are open at this node, as many as one address may have"
            raise Overloaded(f"{words}; close some, or use another node", {"limit": limit})

    @contextmanager
    def counted(self, address: str) -> Iterator[None]:
        """Count a stream while the block runs."""
        group = [address_group(address)]
        self._open.update(group)
        try:
            yield
        finally:
            self._open -= Counter(group)  # Drops a count of 0.

    async def wait(self, answer: Awaitable[_Result]) -> _Result | None:
        """Return a node's answer; None once the streams end."""
        with trio.CancelScope() as scope:
            self._waits.add(scope)
            if self._is_over:
                scope.cancel()
            try:
                return await answer
            finally:
                self._waits.discard(scope)
        return None

    def end(self) -> None:
        """End all waits, and those that begin later."""
        self._is_over = True
        for scope in self._waits:
            scope.cancel()


@dataclass(slots=True)
class ReadContext:
    """The client and the settings of reads.

    Attributes:
        ask: The client.
        node_name: The name of the asked node; None: it may be any.
        content_type_of: The content type of a database's values.
        alone: The gateway has no node, so nothing is here without asking.
        session: Keeps a gateway that asks several nodes from stepping back.
        permissions: The rights of clients; None: all that this gateway may do.
        hosts: The names that `Host` may have, separated by spaces; empty: any.
        may_write: Clients may write. A gateway alone writes as itself, so it needs its operator's consent.
        now_s: The time of day.
        streams: The event streams.
        times: When versions were modified.
    """

    ask: Asker
    node_name: str | None
    content_type_of: Callable[[str], bytes]
    alone: bool = False
    session: ReadSession | None = None
    permissions: HttpPermissions | None = None
    hosts: str = ""
    may_write: bool = True
    now_s: Callable[[], float] = time.time
    streams: EventStreams = field(default_factory=EventStreams)
    times: SourceTimes = field(init=False)

    def __post_init__(self) -> None:
        self.times = SourceTimes(self.ask)


@dataclass(frozen=True, slots=True)
class DataRequest:
    """A request for records of a database, or for a write to one."""

    context: ReadContext
    http: HttpRequest
    database: str
    key: bytes
    options: ReadOptions

    async def call(self, method: str, *params: Value) -> Value:
        """Ask for the database by a method of the wire; the last of `params` may be its options."""
        return await self.context.ask.call(method, self.database, *params, timeout_ms=self.options.timeout_ms)

    def said(self) -> list[Value]:
        """Return the options as the last of the parameters, if there are any."""
        return [self.options.wire] if self.options.wire else []


async def is_table(ask: Asker, database: str) -> bool:
    """Return True if a node knows a table of that name.  Raises GossipKVError."""
    databases = decode_list(DatabaseSummary, await ask.call("databases"))
    return any(one.name == database and one.kind in KINDS for one in databases)


def allow(key: bytes | None, *, of_table: bool) -> Header:
    """Return the methods that a key of a table or a dataset has, which may be called like a path of POST."""
    posts = key in {b"_mget", b"_scan"} or (of_table and key == b"_mput")
    writes = b", PUT, DELETE" if of_table and key else b""
    return (b"Allow", b"GET, HEAD%b%b, OPTIONS" % (b", POST" if posts else b"", writes))


def unanswered(request: HttpRequest, target: RequestTarget, *, of_table: bool = False) -> HttpAnswer:
    """Return the answer to a request without a key, or for an unsupported action; Sequins answers both with 400.

    Other methods get 405 with the allowed ones, so that clients learn the alternatives.
    """
    allowed = allow(b"_mput", of_table=True) if target.path == b"*" else allow(target.key, of_table=of_table)
    if request.method == b"OPTIONS":
        return HttpAnswer(204, [allowed])
    if target.path == b"*":
        return text(400, "only OPTIONS may have the request target *")
    if request.method in GET:
        return text(
            400, "the path has no key; request /<database>/<key>, or /<database>/ for the status of the database"
        )
    method = request.method[:20].decode("ascii", "replace")
    return text(
        405,
        f"{method} is not supported for this path; GET and HEAD read a key; POST serves /<database>/_mget, _scan "
        f"and _mput; {WRITES_ARE}, by PUT and DELETE",
        headers=[allowed],
    )


def check_name(database: str) -> None:
    """Check that the name may belong to a database.

    Raises:
        UnknownDatabase: it may not, so there is none.
    """
    if NAME.fullmatch(database) is None:
        raise UnknownDatabase("there is no such database; names consist of ASCII letters, digits, - and _")


def refused(error: GossipKVError, options: ReadOptions | None) -> HttpAnswer:
    """Return the answer for an error; `options`: None if they were not understood."""
    answer = refusal(error)
    is_proxied = options is not None and options.is_proxied
    match error:
        case NotReady() if "database" not in error.details:
            pass  # A table will soon be ready, while a dataset may never get a version.
        case NotReady() if is_proxied or not (options is not None and options.names_version):
            answer = replace(answer, status=501 if is_proxied else 404)
        case UnknownDatabase() if is_proxied:
            answer = replace(answer, status=501)
        case UnknownVersion() if is_proxied:
            answer = replace(answer, status=500)
        case ProtocolError():
            answer = text(502, error.message, "UNAVAILABLE")  # The node violated the protocol.
    again = _RETRY.get(answer.status)
    return answer if again is None else replace(answer, headers=[*answer.headers, (b"Retry-After", again)])


def read_from(context: ReadContext, database: str, origin: str | bytes) -> list[Header]:
    """Return headers about the data read: a dataset's version, or a table's token without caching."""
    if isinstance(origin, bytes):
        return [NOT_KEPT, *([(TOKEN, b64encode(origin))] if origin else [])]
    if context.session is not None:
        context.session.saw(database, origin)
    return [(VERSION, origin.encode())]


def checked_origin(origin: object) -> str | bytes:
    """Return the version that an answer names, or a table's token.

    Raises:
        ProtocolError: it can be neither.
    """
    return origin if isinstance(origin, bytes) else checked_version(origin)


def checked_version(version: object) -> str:
    """Return the version that an answer names, checked for use in a header.

    Raises:
        ProtocolError: it cannot be one.
    """
    if isinstance(version, str) and NAME.fullmatch(version) is not None:
        return version
    raise ProtocolError("a node answered from a version whose name is invalid")


PROXIED_TO: Final = b"X-Sequins-Proxied-To"


async def read_one(request: DataRequest) -> HttpAnswer:
    """Return the answer to GET or HEAD of a key."""
    context, database = request.context, request.database
    value, origin, explained = await _get(request)
    about = [*read_from(context, database, origin), *_proxied_to(explained, context.node_name)]
    if value is None:
        where = database if isinstance(origin, bytes) else f"{database} {origin}"
        return text(404, f"{where} has no such key", headers=about)
    if isinstance(origin, bytes):
        time_s, tag = None, conditions.entity_tag(str(len(value)), value)
        about += _lifetime(explained, context.now_s())
    else:
        time_s, tag = await context.times.of(database, origin), conditions.entity_tag(origin, value)
    found = conditions.FoundValue(value, tag, time_s, context.content_type_of(database), about)
    return conditions.answer(request.http.method, request.http.headers, found)


async def _get(request: DataRequest) -> tuple[bytes | None, str | bytes, dict[str, Value]]:
    """Return value, version or token, and the explanation."""
    match await request.call("get", request.key, {**request.options.wire, "explain": True}):
        case [bytes() | None as value, origin, *rest]:
            return value, checked_origin(origin), rest[0] if rest and isinstance(rest[0], dict) else {}
    raise ProtocolError("the node answered get in an unknown form; expected a value and a version")


def _proxied_to(explained: dict[str, Value], asked: str | None) -> list[Header]:
    match explained.get("node"):
        case str() as node if node.isprintable() and node != asked:
            return [(PROXIED_TO, node.encode())]
    return []


def _lifetime(explained: dict[str, Value], now_s: float) -> list[Header]:
    """Return the remaining lifetime, in the whole seconds between the two times: at least 1 while the record lives."""
    expires_ms = explained.get("expires_at")
    return [(TTL, b"%d" % max(1, expires_ms // 1000 - int(now_s)))] if isinstance(expires_ms, int) else []
