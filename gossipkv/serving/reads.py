"""`get`, `get_many` and `scan` in Python, for reads that the serving loop hands off.

The loop answers plain reads of local records itself. Reads that come here need an error, meet a damaged page, or have
an option that only Python knows. So this module decides from the beginning, by the same rules, and alone has the
errors.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Protocol, final

import msgpack

from gossipkv.errors import (
    BadRequest,
    Corrupt,
    NotReady,
    NotServed,
    TooLarge,
    UnknownDatabase,
)
from gossipkv.placement.partition_set import PartitionSet
from gossipkv.serving.published import Published, PublishedDatabase, PublishedVersion
from gossipkv.serving.read_counts import ReadCounts
from gossipkv.serving.scan import PAGE_BYTES, ScanBounds, ScanOrder, ScanPage, decode_cursor, page
from gossipkv.serving.unanswered import unanswered
from gossipkv.wire.results import DeferredResult, Packed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gossipkv.errors import Detail, ServiceError
    from gossipkv.serving.read_counts import ReadSample
    from gossipkv.serving.scan_elsewhere import Elsewhere
    from gossipkv.settings.serving import ServingSettings
    from gossipkv.wire.arguments import Arguments, OptionArguments
    from gossipkv.wire.rpc import Value

CHOICE_OPTIONS = ("version", "min_version", "timeout_ms")
READ_OPTIONS = (*CHOICE_OPTIONS, "local", "forwarded", "identity", "max_frame")
GET_OPTIONS = (*READ_OPTIONS, "explain")
SCAN_OPTIONS = (*READ_OPTIONS, "start", "end", "prefix", "reverse", "limit", "cursor", "partitions")

# A forwarding node derives bounds from cursors that are a byte longer than the longest key of a file.
_LONGEST_BOUND = 65_536

# Time limit of a page from other nodes if the request has none.
PAGE_TIMEOUT_MS = 1000

# The message is for the client of the forwarding node.
_OVER_ASKER = "the value is on another node and longer than this node can receive; give all nodes the same max_frame"

# Bytes of an answer beside the values: envelope, heads, the name of the version.
_ENVELOPE_BYTES = 1024
_HEAD_BYTES = 5


class Holdings(Protocol):
    """The library's knowledge that reads need beyond the published data."""

    def known(self, database: str) -> bool: ...  # True if there is such a database, here or at the source.
    def joining(self) -> bool: ...  # True if other nodes may have databases that this node does not know yet.
    def status(self, database: str | None = None) -> dict[str, Detail]: ...  # Versions by database, with their states.
    def unready(self, database: str) -> str: ...  # Says why a known database serves nothing.
    def coming(self, database: str) -> bool: ...  # True if a known database that serves nothing should serve soon.
    def damaged(self, database: str, version: str, error: Corrupt) -> None: ...  # Records that a read met damage.


class Count(Protocol):
    """The counter of requests that were answered here."""

    def __call__(self, database: str, version: str, *, by_name: bool) -> None:
        """Count a request of that version; `by_name` if the request named the version."""


@final
class Reads:
    """The three read methods, on the published data."""

    def __init__(
        self,
        holdings: Holdings,
        count: Count,
        settings: ServingSettings,
        elsewhere: Elsewhere | None = None,
        *,
        node: str,
    ) -> None:
        """Read from `published`; `elsewhere` gathers scan pages from any other nodes; `node` is this node's name."""
        self.published = Published()
        self.counts = ReadCounts(lambda name: name in self.published.databases or holdings.known(name))
        self._node = node
        self._elsewhere = elsewhere
        self._holdings = holdings
        self._count = count
        self._max_key = settings.max_key
        self._max_value = settings.max_value
        self._max_frame = settings.max_frame
        self._scan_limit = settings.scan_limit

    def get(self, arguments: Arguments) -> Value:
        """Return `[value or nil, version]`, and with `explain` the answering node."""
        database = arguments.text("database")
        with self.counts.reading(database) as reading:
            key = arguments.key("key", self._max_key)
            options = self._options(database, arguments, GET_OPTIONS)
            is_explained = options.flag("explain")
            version = self._choose_and_count(database, options, reading)
            try:
                value = self._value(version, key)
            except NotServed as error:
                raise self._not_here(error, version, options) from None
            except Corrupt as error:
                self._holdings.damaged(database, version.name, error)
                raise
            self.counts.answered(database, value)
            return [value, version.name, {"node": self._node}] if is_explained else [value, version.name]

    def get_many(self, arguments: Arguments) -> Value:
        """Return `[[value or nil, ...], version]`."""
        database = arguments.text("database")
        with self.counts.reading(database) as reading:
            keys = arguments.keys("keys", self._max_key)
            options = self._options(database, arguments, READ_OPTIONS)
            version = self._choose_and_count(database, options, reading)
            try:
                values = self._values(version, keys, self._answer_limit(options))
            except NotServed as error:
                raise self._not_here(error, version, options) from None
            except Corrupt as error:
                self._holdings.damaged(database, version.name, error)
                raise
            self.counts.answered(database, *values)
            return [[*values], version.name]

    def _options(self, database: str, arguments: Arguments, allowed: Sequence[str]) -> OptionArguments:
        """Parse the options of a read. Raise UnknownDatabase or NotReady first, since a table has other options."""
        if database not in self.published.databases:
            self._database(database)
        return arguments.options(*allowed)

    def _values(self, version: PublishedVersion, keys: Sequence[bytes], limit: int) -> list[bytes | None]:
        values: list[bytes | None] = []
        room = limit - _ENVELOPE_BYTES
        for key in keys:
            value = self._value(version, key)
            values.append(value)
            room -= _HEAD_BYTES + len(value or b"")
            if room < 0:
                raise TooLarge("the values do not fit into one answer; request fewer keys", {"limit": limit})
        return values

    def scan(self, arguments: Arguments) -> Packed | DeferredResult:
        """Return `[[[key, value], ...], cursor or nil, version]`."""
        database = arguments.text("database")
        with self.counts.reading(database) as reading:
            options = self._options(database, arguments, SCAN_OPTIONS)
            return self._scan(database, options, reading)

    def _scan(self, database: str, options: OptionArguments, reading: ReadSample) -> Packed | DeferredResult:
        plan = _ScanPlan(self, database, options)
        wanted = plan.wanted()
        is_forwarded, is_pinned = options.flag("forwarded"), options.blob("cursor") or options.text("version")
        by_name = not is_forwarded and is_pinned is not None
        version = self._count_choice(wanted.version, reading, by_name=by_name)
        timeout_ms = options.timeout_ms()
        asks = None if is_forwarded or options.flag("local") or version.wire_id is None else self._elsewhere
        if asks is None or not wanted.partitions - version.here:
            try:
                return self._fitting(wanted.answer(page(wanted, wanted.partitions)), options)
            except NotServed as error:
                raise self._with_active(error, database) from None
            except Corrupt as error:
                if asks is None or not asks.is_held(wanted):
                    self._holdings.damaged(database, version.name, error)
                    raise
        timeout_ms = PAGE_TIMEOUT_MS if timeout_ms is None else timeout_ms
        return DeferredResult(partial(self._page, asks, plan, timeout_ms), may_end=True)

    async def _page(self, asks: Elsewhere, plan: _ScanPlan, timeout_ms: int) -> Packed:
        """Gather a page with parts from other nodes."""
        with self.counts.reading(plan.database) as reading:
            reading.has_version = True
            self.counts.asked_elsewhere(plan.database)
            return await asks.page(plan, timeout_ms)

    def wanted(self, plan: _ScanPlan) -> ScanOrder:
        """Return the page that a request asks for, at present."""
        identity = _identity(plan.options)
        return self._wanted(self._version_to_scan(plan, identity), plan)

    def _version_to_scan(self, plan: _ScanPlan, identity: bytes | None) -> PublishedVersion:
        """Return the version to scan: the cursor's, the named one, or the usual choice."""
        options = plan.options
        if plan.cursor is None:
            return self._choose(plan.database, options)
        pinned, _ = plan.cursor
        options.text("min_version")  # The option is not needed, but must be valid.
        if options.text("version") not in {None, pinned}:
            raise BadRequest(
                f"scan: the cursor belongs to version {pinned}; request that version, or omit the option version"
            )
        if identity is not None:
            raise BadRequest("a forwarded scan must have a bound instead of a cursor")
        return self._database(plan.database).go_on(pinned)

    def _wanted(self, version: PublishedVersion, plan: _ScanPlan) -> ScanOrder:
        options = plan.options
        longest = _LONGEST_BOUND if options.flag("forwarded") else self._max_key
        start, end, prefix = (options.key(name, longest) for name in ("start", "end", "prefix"))
        bounds = ScanBounds(start, end, prefix, options.flag("reverse"))
        limit, bitmap = options.number("limit", least=1), options.blob("partitions")
        if options.flag("forwarded") is not (bitmap is not None):
            raise BadRequest("a forwarded scan must have the option partitions, and other scans must not have it")
        if plan.cursor is not None:
            bounds = bounds.after(plan.cursor[1])
        count = len(version.files)
        try:
            partitions = PartitionSet.whole(count) if bitmap is None else PartitionSet.from_bytes(count, bitmap)
        except ValueError as error:
            raise BadRequest(f"scan: the option partitions: {error}") from None
        if not partitions:
            raise BadRequest("scan: the option partitions must have at least one partition")
        limit = self._scan_limit if limit is None else min(limit, self._scan_limit)
        page_bytes = min(PAGE_BYTES, max(1, (self._answer_limit(options) - _ENVELOPE_BYTES) // 2))
        return ScanOrder(version, partitions, bounds.narrowed(), limit, page_bytes, self._max_value)

    def _answer_limit(self, options: OptionArguments) -> int:
        """Return the longest answer that both this node and the asking one accept."""
        return min(self._max_frame, options.number("max_frame") or self._max_frame)

    def _fitting(self, answer: Packed, options: OptionArguments) -> Packed:
        """Return the answer if it fits the forwarding node's frame; a page of one record may exceed the page limit."""
        limit, size = options.number("max_frame"), len(answer.data) + _ENVELOPE_BYTES
        if limit is not None and size > limit:
            raise TooLarge(_OVER_ASKER, {"limit": limit, "size": size})
        return answer

    def here(self, wanted: ScanOrder) -> tuple[PartitionSet, ScanPage]:
        """Return the local partitions, and their part of a page that other nodes are asked for as well."""
        version = wanted.version
        partitions = version.here
        assert self._elsewhere is not None
        try:
            return partitions, page(replace(wanted, limit=wanted.share(partitions)), partitions)
        except Corrupt as error:
            self._holdings.damaged(version.database, version.name, error)
            if not self._elsewhere.is_held(wanted):
                raise
        return PartitionSet.empty(len(version.files)), ScanPage(b"\x90", None)

    def _with_active(self, error: NotServed, database: str) -> NotServed:
        """Add the active version to the error, since the forwarding node may have to plan again."""
        active = self._database(database).active
        error.details["active"] = None if active is None else active.name
        return error

    def _not_here(self, error: NotServed, version: PublishedVersion, options: OptionArguments) -> NotServed | NotReady:
        """Return the error for a partition that is not here.

        The serving loop forwards reads that may be forwarded. A read that arrives here was handed off before the
        version was published, so a repeated request will be forwarded.
        """
        if version.wire_id is None or options.flag("forwarded") or options.flag("local"):
            return error
        words = f"{version.database} {version.name} was published a moment ago; try again"
        return NotReady(words, {"database": version.database, "version": version.name, "coming": True})

    def _value(self, version: PublishedVersion, key: bytes) -> bytes | None:
        try:
            file = version.file_of(key)
        except NotServed as error:
            raise self._with_active(error, version.database) from None
        value = None if file is None else file.get(key)
        if value is not None and len(value) > self._max_value:
            raise TooLarge("the value is longer than the node may send", {"limit": self._max_value, "size": len(value)})
        return value

    def records(self, database: str) -> int | None:
        """Return about how many records an active dataset has, estimated from the local partitions."""
        held = self.published.databases.get(database)
        if held is None or held.active is None:
            return None
        here = [len(file) for file in held.active.files if file is not None]
        return sum(here) * len(held.active.files) // len(here) if here else 0

    def look_at(self, record: bytes) -> None:
        """Report the damage of a record, `[database, key, version]`, to the library; other nodes answer the read."""
        database, key, version = msgpack.unpackb(record, raw=True)
        held = self.published.databases.get(database.decode())
        for found in () if held is None else held.versions:
            if found.name == version.decode():
                try:
                    self._value(found, key)
                except Corrupt as error:
                    self._holdings.damaged(found.database, found.name, error)
                except (NotServed, TooLarge):
                    pass  # The record has gone since, or was built again.

    def unanswered(self, report: bytes) -> ServiceError:
        """Return the error of a read that no other node has answered; `forward/report.pyx` defines the report."""
        (database, _), version, partition, rounds, elapsed_ms, asked = msgpack.unpackb(report, raw=True)
        name = database.decode(errors="replace")
        self.counts.failed(name, has_version=True)
        outcomes = [(member.decode(), outcome.decode()) for member, outcome in asked]
        details: dict[str, Detail] = {
            "database": name,
            "version": version.decode(),
            "partition": partition,
            "rounds": rounds,
            "elapsed_ms": elapsed_ms,
        }
        return unanswered(f"partition {partition} of {name} {version.decode()}", outcomes, details)

    def _choose_and_count(self, database: str, options: OptionArguments, reading: ReadSample) -> PublishedVersion:
        by_name = not options.flag("forwarded") and options.text("version") is not None
        return self._count_choice(self._choose(database, options), reading, by_name=by_name)

    def _choose(self, database: str, options: OptionArguments) -> PublishedVersion:
        version, min_version = options.text("version"), options.text("min_version")
        options.timeout_ms()  # A local read takes hardly any time, so it keeps to any timeout.
        options.flag("local")  # The option is only validated here.
        identity = _identity(options)
        published = self._database(database)
        if identity is not None:
            return published.of_identity(identity)
        if published.active is None and version is None and min_version is None:
            raise self._not_ready(database)
        return published.choose(version, min_version)

    def _count_choice(self, version: PublishedVersion, reading: ReadSample, *, by_name: bool) -> PublishedVersion:
        reading.has_version = True
        self._count(version.database, version.name, by_name=by_name)
        return version

    def _database(self, name: str) -> PublishedDatabase:
        found = self.published.databases.get(name)
        if found is not None and found.versions:
            return found
        if not self._holdings.known(name) and self._holdings.joining():
            words = f"no database {name} here, and this node does not know the databases of others yet; try again"
            raise NotReady(words, {"database": name, "coming": True})
        if not self._holdings.known(name):
            raise UnknownDatabase(f"no database {name} here", {"database": name})
        raise self._not_ready(name)

    def _not_ready(self, name: str) -> NotReady:
        return NotReady(
            f"{name} has no version ready yet: {self._holdings.unready(name)}",
            {"database": name, "coming": self._holdings.coming(name), "status": self._holdings.status(name)},
        )


@final
class _ScanPlan:
    """The plan of a scan page, evaluated whenever it is used."""

    def __init__(self, reads: Reads, database: str, options: OptionArguments) -> None:
        self.reads = reads
        self.database = database
        self.options = options

    @cached_property
    def cursor(self) -> tuple[str, bytes] | None:
        """The pinned version, and the last key."""
        cursor = self.options.blob("cursor")
        return None if cursor is None else decode_cursor(cursor)

    def wanted(self) -> ScanOrder:
        """Return the page; its version changes only if the request named none and another became active."""
        return self.reads.wanted(self)

    def here(self, wanted: ScanOrder) -> tuple[PartitionSet, ScanPage]:
        """Return the local partitions, and their part of the page."""
        return self.reads.here(wanted)


def _identity(options: OptionArguments) -> bytes | None:
    """Return the identity that another node asks for; None for a client's request."""
    identity = options.blob("identity")
    if options.flag("forwarded") is not (identity is not None) or (
        identity is not None and (options.text("version") or options.text("min_version"))
    ):
        raise BadRequest(
            "a forwarded read must have the option identity and no version; other reads must not have identity"
        )
    if options.number("max_frame", least=1) is not None and identity is None:
        raise BadRequest("only a forwarded read may have the option max_frame")
    return identity
