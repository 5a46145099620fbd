"""Scans of tables, page by page, in key order.

A *page* has all records before its bound, and the next page begins at the bound. So pages of several replicas are
merged up to the least of their bounds, and a page that met only tombstones has still moved its bound. A page reads a
bounded number of records, tombstones among them. `page.pyx` reads and merges the records.

All partitions of a hash table are asked at once for each page, each for about its share. The partitions of a range
table are asked one after the other.

A *partial* scan passes over partitions that cannot be read: each page names those that it has left out, and its cursor
the shards that later pages do not ask again.
"""

from __future__ import annotations

import contextlib
from math import isqrt
from typing import TYPE_CHECKING, Final, NamedTuple, final

import msgpack

from gossipkv.errors import (
    BadRequest,
    GossipKVError,
    NotReady,
    NotServed,
    ProtocolError,
    StorageError,
    TimedOut,
    Unavailable,
    UnknownDatabase,
)
from gossipkv.replication.replica.keys import KeyBounds
from gossipkv.replication.replica.record import PAGE_BYTES, join_pages, read_page
from gossipkv.settings.tables import MAX_KEY_BYTES
from gossipkv.storage.sorted_file import prefix_end
from gossipkv.table.records.forward import HostRequest, NodeRequest, held, serving
from gossipkv.table.records.request import ClientRequest, record_options
from gossipkv.table.records.router import packed_ids, together, unpacked_ids
from gossipkv.table.session.readiness import WantedClock, wanted_of
from gossipkv.table.session.token import MAX_TOKENS_BYTES, NOTHING, decode_body, merged, seen_of
from gossipkv.wire.opaque import OpaqueLimits, unpack
from gossipkv.wire.results import Later, Packed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gossipkv.replication.replica.replica import Replica
    from gossipkv.replication.replica_set import ReplicaSet
    from gossipkv.replication.shell import Replication
    from gossipkv.table.records.forward import RecordRequest, RecordServices
    from gossipkv.table.records.request import RecordOptions
    from gossipkv.table.records.router import PartitionRoute
    from gossipkv.table.session.token import Token
    from gossipkv.wire.arguments import Arguments, OptionArguments
    from gossipkv.wire.rpc import Value

SCAN_OPTIONS: Final = ("local", "start", "end", "prefix", "reverse", "limit", "cursor", "partial")
LEFT_OUT: Final = (
    NotReady,
    NotServed,
    TimedOut,
    Unavailable,
)  # A partial scan passes over partitions with these errors.
MAX_STEPS: Final = 16  # Ranges per page: then the page ends.
MAX_LIMIT: Final = 1 << 20
MAX_CURSOR_BYTES: Final = MAX_KEY_BYTES + 1 + MAX_TOKENS_BYTES + (1 << 20) + 16  # A key, a token, and ids of shards.
CURSOR: Final = OpaqueLimits(MAX_CURSOR_BYTES, max_elements=3, max_depth=1)


class ScanRange(NamedTuple):
    """The keys of a scan from `start` to before `end`; `limit`: the most records of a page."""

    start: bytes
    end: bytes | None
    reverse: bool
    limit: int

    @property
    def is_empty(self) -> bool:
        """True if the range has no keys."""
        return self.end is not None and self.end <= self.start

    def behind(self, bound: bytes) -> ScanRange:
        """Return the rest of the range beyond a bound, in the direction of the scan."""
        return self._replace(end=bound) if self.reverse else self._replace(start=bound)

    def within(self, place: PartitionRoute) -> ScanRange:
        """Return the intersection with a partition: the host may know another split of the range."""
        start, end = KeyBounds(self.start, self.end).clip(KeyBounds(place.first, place.end))
        return self._replace(start=start, end=end)


class RestOfScan(NamedTuple):
    """The keys that are left, the token of the pages before, and the partitions of shards that they left out."""

    range: ScanRange
    token: Token
    left_out: Sequence[int]


class TableScanPage(NamedTuple):
    """The records of some partitions, and the bound beyond which there may be more; None: the scan is complete."""

    rows: bytes  # An array as MessagePack: keys, each before its record, in scan order.
    bound: bytes | None
    seen: Token = NOTHING  # The token of a session that gets the page, with its tombstones.


@final
class TableScans:
    """The methods that scan, for clients and for other nodes."""

    def __init__(self, services: RecordServices) -> None:
        self._services = services

    def scan(self, arguments: Arguments) -> Later:
        """`scan [table, {options}]`: `[[[key, value], ...], cursor or nil, token]`; see `ScanRequest` for `partial`."""
        table = arguments.text("table")
        options = record_options(arguments, *SCAN_OPTIONS)
        return Later(ScanRequest(self._services, table, self._rest(options), options).begin)

    def _rest(self, options: RecordOptions) -> RestOfScan:
        given, most_key = options.given, self._services.most_key
        start, end = key_range(given, most_key)
        limit, cursor = given.number("limit", least=1), given.blob("cursor")
        limit = self._services.scan_limit if limit is None else min(limit, self._services.scan_limit)
        wanted = ScanRange(start, end, given.flag("reverse"), limit)
        if cursor is None:
            return RestOfScan(wanted, NOTHING, ())
        with contextlib.suppress(ValueError):
            found = unpack(cursor, CURSOR)
            match [*found, b""][:3] if isinstance(found, list) else None:
                case [bytes(bound), bytes(token), bytes(ids)] if len(bound) <= most_key + 1:
                    passed, left_out = self._services.tokens.read(token), unpacked_ids(ids)
                    if wanted.reverse:
                        return RestOfScan(wanted.behind(bound if end is None else min(bound, end)), passed, left_out)
                    return RestOfScan(wanted.behind(max(bound, wanted.start)), passed, left_out)
        raise BadRequest("scan: the cursor was not returned by this method", {"option": "cursor"})

    def scan_here(self, arguments: Arguments) -> Later:
        """`table_scan [table id, partitions, start, end or nil, reverse, limit, seen, wait_ms]`.

        The answer is `[[key, record, ...], bound or nil, token body]`. `partitions`: their ids, 8 bytes each.
        """
        table, partitions = arguments.blob("table"), unpacked_ids(arguments.blob("partitions"))
        start, end = arguments.blob("start"), arguments.blob_or_nil("end")
        reverse, limit = arguments.whole("reverse", 1), arguments.whole("limit", MAX_LIMIT)
        request = NodeRequest[TableScanPage](self._services, table)
        request.wanted = wanted_of(arguments, request.deadline)
        if not partitions or not limit:
            raise BadRequest("table_scan: ids of 8 bytes each and a limit are required")
        request.part = RangeRead(request, partitions, ScanRange(start, end, bool(reverse), limit))
        return Later(request.begin)


@final
class ScanRequest(ClientRequest[TableScanPage]):
    """A page in the making. A range table takes one step for each range, a hash table takes a single step.

    plan       take the next step: ask the hosts of its partitions
    part_done  gather their pages; after the last one, take another step or answer

    The answer of a partial scan has a fourth element: `[[{"shard"} or {"start", "end"}, reason], ...]`, left out here.
    """

    def __init__(self, services: RecordServices, name: str, rest: RestOfScan, options: RecordOptions) -> None:
        """Raises BadRequest."""
        super().__init__(services, name, options)
        self._is_partial = options.given.flag("partial")
        self._passed_over = {*rest.left_out}  # Shards that are not asked.
        self._left_out: list[Value] = []
        self.wanted = WantedClock(merged(self.wanted.token, rest.token), 0.0)
        self._range = rest.range  # The rest of the scan.
        self._seen: Token = NOTHING
        self.table = b""  # Set by the first step: another table may take the name meanwhile.
        self._rows: list[bytes] = []  # `[key, value]`, ... of each step, as MessagePack.
        self._count = self._size_bytes = 0
        self._steps = 0
        self._unanswered = 0  # Groups of this step without an answer.
        self._pages: list[TableScanPage] = []  # The answers of this step.
        self._error: GossipKVError | None = None  # The last error of this step.
        self._following: bytes | None = None  # The bound at which the next step begins; None: this is the last.

    def _plan(self) -> None:
        """Raises StaleConfig, UnknownDatabase."""
        range_, route = self._range, self.route
        if not self.table:
            self.table, self._seen = route.table.id, self.wanted.token
            if self.options.config:
                route.check(self.options.config, route.places())
        if self.table != route.table.id:
            raise UnknownDatabase(f"the table {self.name} was dropped, and another table has its name")
        if range_.is_empty:
            self._finish(None)
            return
        groups, self._following = self._groups()
        whole = sum(map(len, groups))
        self._unanswered = len(groups) + 1
        for group in groups:
            part = range_._replace(limit=share(range_.limit, len(group), whole))
            part = part if route.is_hash else part.within(group[0])
            RangeRead(self, [place.partition for place in group], part, group[0].hosts, group[0]).begin()
        self._group_done()

    def _groups(self) -> tuple[Sequence[Sequence[PartitionRoute]], bytes | None]:
        """Return the partitions of the step, grouped by hosts, and the bound of the next step."""
        wanted, route = self._range, self.route
        if route.is_hash and self._is_partial:
            return [[place] for place in route.places() if place.partition not in self._passed_over], None
        if route.is_hash:
            return [*together(route.places())], None
        place = route.before(wanted.end) if wanted.reverse else route.place(wanted.start)
        bound = place.first if wanted.reverse else place.end
        return [[place]], None if bound is None or wanted.behind(bound).is_empty else bound

    def part_done(self, part: HostRequest[TableScanPage], result: TableScanPage | GossipKVError) -> None:
        """Take the page of a group."""
        if self._is_partial and isinstance(result, LEFT_OUT):
            assert isinstance(part, RangeRead)
            self._pass_over(part, result)
        elif isinstance(result, GossipKVError):
            self._error = result
        else:
            self._pages.append(result)
        self._group_done()

    def _pass_over(self, part: RangeRead, error: GossipKVError) -> None:
        assert part.place is not None, "it is a part of this request"
        keys = part.keys
        if self.route.is_hash:
            self._passed_over.add(part.place.partition)
            keys = {"shard": int.from_bytes(part.place.first, "big")}
        self._left_out.append([keys, error.message])

    def _group_done(self) -> None:
        """Count a group's answer, or the end of asking; after the last one, finish the step."""
        self._unanswered -= 1
        if self._unanswered:
            return
        try:
            if self._error is not None:
                raise self._error
            reached = self._take_pages()
        except ProtocolError as damaged:
            self.complete(Unavailable(f"a record in a node's answer is malformed: {damaged.message}"))
            return
        except GossipKVError as failed:
            self.complete(failed)
            return
        self._steps += 1
        bound = self._following if reached is None else reached
        is_full = reached is not None or not self._range.limit or self._size_bytes > PAGE_BYTES
        is_full = is_full or bool(self._left_out)  # The time of this page may be over.
        if bound is None or is_full or self._steps == MAX_STEPS:
            self._finish(bound)
        else:
            self._range = self._range.behind(bound)
            self._attempt(self._plan_anew)

    def _take_pages(self) -> bytes | None:
        """Merge the pages of a step up to the least of their bounds; return the bound. Raises ProtocolError."""
        wanted, bounds = self._range, [page.bound for page in self._pages if page.bound is not None]
        bound = (max if wanted.reverse else min)(bounds, default=None)
        pages = [page.rows for page in self._pages]
        rows, count, size_bytes, bound = join_pages(pages, bound, reverse=wanted.reverse, limit=wanted.limit)
        self._seen = merged(self._seen, *(page.seen for page in self._pages))
        self._pages = []
        self._rows.append(rows)
        self._count += count
        self._size_bytes += size_bytes
        self._range = wanted._replace(limit=wanted.limit - count)
        return bound

    def _finish(self, bound: bytes | None) -> None:
        token = self.services.tokens.write(self._seen)
        passed_over = [packed_ids(self._passed_over)] if self._passed_over else []
        cursor = None if bound is None else msgpack.packb([bound, token, *passed_over])
        rows = [msgpack.Packer().pack_array_header(self._count), *self._rows]
        parts = [cursor, token, self._left_out] if self._is_partial else [cursor, token]
        head = msgpack.Packer().pack_array_header(1 + len(parts))
        self.complete(Packed(b"".join([head, *rows, *map(msgpack.packb, parts)])))


@final
class RangeRead(HostRequest["TableScanPage"]):
    """The read of a page from partitions that have the same hosts."""

    method = "table_scan"

    def __init__(
        self,
        request: RecordRequest[TableScanPage],
        partitions: Sequence[int],
        range_: ScanRange,
        nodes: tuple[bytes, ...] = (),
        place: PartitionRoute | None = None,
    ) -> None:
        super().__init__(request, nodes)
        self._partitions, self._range, self.place = partitions, range_, place

    @property
    def keys(self) -> Value:
        """The keys to read, for the answer of a partial scan."""
        return {"start": self._range.start, "end": self._range.end}

    def _what(self) -> str:
        assert isinstance(self.request, ScanRequest), "the request of a node is local"
        count = len(self._partitions)
        return f"{count} partitions of {self.request.name}" if count > 1 else f"a partition of {self.request.name}"

    def _params(self) -> list[Value]:
        start, end, reverse, limit = self._range
        return [self.table, packed_ids(self._partitions), start, end, int(reverse), limit]

    def _parsed(self, answer: Value) -> TableScanPage:
        match answer:
            case [list(rows), None | bytes() as bound, bytes(seen)]:
                return TableScanPage(msgpack.packb(rows), bound, decode_body(seen))
        raise Unavailable("the answer of a node is not a page of records")

    def encoded(self, result: TableScanPage) -> Packed:
        """Return the keys and records, the bound, and the body of the token."""
        seen = self.request.services.tokens.to_node(result.seen)
        return Packed(b"".join([b"\x93", result.rows, msgpack.packb(result.bound), msgpack.packb(seen)]))

    def _here(self) -> None:
        self.request.services.readiness.begin(self._held(), self.request.wanted, self._read, self.here_done)

    def _held(self) -> list[Replica]:
        return replicas_of(self.request.replication.replicas, self.table, self._partitions, self._range)

    def _read(self) -> None:
        self.here_done(page_here(self.request.replication, self._held(), self._range))


def key_range(given: OptionArguments, most_key: int) -> KeyBounds:
    """Return the keys within `start`, `end` and `prefix`. Raises BadRequest."""
    start, end, prefix = (given.key(name, most_key) for name in ("start", "end", "prefix"))
    if prefix is not None:
        start = max(start or b"", prefix)
        end = min((key for key in (end, prefix_end(prefix)) if key is not None), default=None)
    return KeyBounds(start or b"", end)


def page_here(replication: Replication, here: Sequence[Replica], wanted: ScanRange) -> TableScanPage:
    """Return the first records of local replicas. Raises Unavailable, Corrupt."""
    table, config, asked = here[0].partition[0], max(replica.taken_config for replica in here), KeyBounds(*wanted[:2])
    for replica in here:
        replica.requests += 1
    parts = [(replica.space, *replica.bounds.clip(asked).records) for replica in here]
    try:
        view = replication.view({replica.space for replica in here})
        now_ms, reverse, limit = replication.replicas.skew.expiry_ms(), wanted.reverse, wanted.limit
        rows, bound, counters, bodies = read_page(view, parts, reverse=reverse, limit=limit, now_ms=now_ms)
    except StorageError as error:
        raise Unavailable(f"the node's store cannot be read: {error.message}") from error
    if bound is None and len(here) == 1:
        bound = _bound_of(here[0], wanted)
    return TableScanPage(rows, bound, seen_of(table, config, counters, bodies))


def replicas_of(replicas: ReplicaSet, table: bytes, partitions: Sequence[int], wanted: ScanRange) -> list[Replica]:
    """Return the local replicas of partitions; for a range, the replica where the scan begins, by the local map.

    Raises:
        NotServed: this node lacks one of them.
    """
    spaces, bounds = replicas.spaces, KeyBounds(wanted.start, wanted.end)
    if table not in spaces.ranges or len(partitions) > 1:
        return [held(replicas, table, partition) for partition in partitions]
    (partition,) = partitions
    replica = replicas.by_partition.get((table, partition))
    if replica is None or not replica.bounds.covers(bounds):
        replica = spaces.before(table, wanted.end) if wanted.reverse else spaces.at(table, wanted.start)
    return [serving(replica, partition)]


def _bound_of(replica: Replica, wanted: ScanRange) -> bytes | None:
    """Return the bound at which a scan leaves a replica; None: the replica covers the scan."""
    first, end = replica.bounds
    if wanted.reverse:
        return first if first > wanted.start else None
    return end if end is not None and (wanted.end is None or end < wanted.end) else None


def share(limit: int, part: int, whole: int) -> int:
    """Return a limit that nearly always has room for the records of a page in `part` of `whole` equal partitions."""
    expected = limit * part // whole
    return min(limit, expected + 2 * isqrt(expected) + 2)
