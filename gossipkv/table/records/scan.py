"""Scans of tables, page by page, in key order.

A *page* has all records before its bound, and the next page begins at the bound. So pages of several replicas are
merged up to the least of their bounds, and a page that met only tombstones has still moved its bound. A page reads a
bounded number of records, tombstones among them.

All partitions of a hash table are asked at once for each page, each for about its share. The partitions of a range
table are asked one after the other.
"""

from __future__ import annotations

import contextlib
from functools import partial
from heapq import merge
from math import isqrt
from typing import TYPE_CHECKING, Final, NamedTuple, final

import msgpack

from gossipkv.errors import BadRequest, GossipKVError, ProtocolError, StorageError, Unavailable, UnknownDatabase
from gossipkv.replication.replica import record
from gossipkv.replication.replica.keys import KeyBounds
from gossipkv.storage.sorted_file import prefix_end
from gossipkv.table.records.forward import ForwardRequest, answering, held, serving
from gossipkv.table.records.options import record_options
from gossipkv.table.records.route import packed_ids, together, unpacked_ids
from gossipkv.table.session.readiness import WantedClock, wanted_of
from gossipkv.table.session.token import NOTHING, decode_body, merged, seen_in
from gossipkv.wire.results import Later

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from gossipkv.replication.replica.replica import Replica
    from gossipkv.replication.replica_set import ReplicaSet
    from gossipkv.replication.shell import OnAnswer, Replication
    from gossipkv.table.records.forward import Forwarder
    from gossipkv.table.records.options import RecordOptions
    from gossipkv.table.records.route import PartitionRoute, TableRoute
    from gossipkv.table.records.router import Router
    from gossipkv.table.records.token_compaction import Sessions
    from gossipkv.table.session.token import Token
    from gossipkv.wire.arguments import Arguments
    from gossipkv.wire.results import OnResult
    from gossipkv.wire.rpc import Value

    Row = tuple[bytes, bytes]  # A key and its record.

SCAN_OPTIONS: Final = ("local", "start", "end", "prefix", "reverse", "limit", "cursor")
PAGE_BYTES: Final = 1 << 20
MAX_TOMBSTONES: Final = 4096  # Tombstones per page: then the page ends.
MAX_STEPS: Final = 16  # Ranges per page: then the page ends.
MAX_LIMIT: Final = 1 << 20


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

    def is_before(self, key: bytes, bound: bytes) -> bool:
        """Return True if the scan reaches a key before a bound."""
        return key >= bound if self.reverse else key < bound


class TableScanPage(NamedTuple):
    """Records in scan order, and the bound beyond which there may be more; None: the scan is complete."""

    rows: list[Row]
    bound: bytes | None
    seen: Token = NOTHING  # The token of a session that gets the page, with its tombstones.


@final
class TableScans:
    """The methods that scan, for clients and for other nodes."""

    def __init__(
        self,
        routing: Router,
        forwarding: Forwarder,
        replication: Callable[[], Replication],
        sessions: Sessions,
        *,
        most_key: int,
        scan_limit: int,
    ) -> None:
        """`replication` returns the open store's, or raises `NotReady`."""
        self.routing = routing
        self.forwarding = forwarding
        self._replication = replication
        self._ready, self.compactor = sessions
        self._most_key = most_key
        self._scan_limit = scan_limit

    def scan(self, arguments: Arguments) -> Later:
        """`scan [table, {options}]`: `[[[key, value], ...], cursor or nil, token]`."""
        table = arguments.text("table")
        options = record_options(arguments, *SCAN_OPTIONS)
        wanted, passed = self._range(options)
        given = merged(self.compactor.read(options.token), passed)

        def begin(on_result: OnResult) -> None:
            now = self._replication().now()
            deadline, until = now + options.timeout_s, now + options.wait_s

            def go_on(token: Token) -> None:
                if options.config:
                    route = self.routing.route(table)
                    route.check(options.config, route.places())
                ready = WantedClock(token, until)
                _Scanning(self, table, wanted, on_result, ready=ready, deadline=deadline, local=options.local).go_on()

            def begin_by(_: object) -> None:
                self.compactor.begin(given, deadline, go_on, on_result)

            self.routing.once_known(table, options.config, until, begin_by, on_result)

        return Later(begin)

    def _range(self, options: RecordOptions) -> tuple[ScanRange, Token]:
        """Return the rest of the scan, and the token of the pages before."""
        given = options.given
        start, end, prefix = (given.key(name, self._most_key) for name in ("start", "end", "prefix"))
        if prefix is not None:
            start = max(start or b"", prefix)
            end = min((key for key in (end, prefix_end(prefix)) if key is not None), default=None)
        limit, cursor = given.number("limit", least=1), given.blob("cursor")
        limit = self._scan_limit if limit is None else min(limit, self._scan_limit)
        wanted = ScanRange(start or b"", end, given.flag("reverse"), limit)
        if cursor is None:
            return wanted, NOTHING
        with contextlib.suppress(ValueError):
            match msgpack.unpackb(cursor):
                case [bytes(bound), bytes(token)] if len(bound) <= self._most_key + 1:
                    passed = self.compactor.read(token)
                    if wanted.reverse:
                        return wanted.behind(bound if end is None else min(bound, end)), passed
                    return wanted.behind(max(bound, wanted.start)), passed
        raise BadRequest("scan: the cursor is not one that this method returned", {"option": "cursor"})

    # -- for other nodes ---------------------------------------------------------------------------------------------

    def scan_here(self, arguments: Arguments) -> Later:
        """`table_scan [table id, partitions, start, end or nil, reverse, limit, seen, wait_ms]`.

        The answer is `[[key, record, ...], bound or nil, token body]`. `partitions`: their ids, 8 bytes each.
        """
        table, partitions = arguments.blob("table"), unpacked_ids(arguments.blob("partitions"))
        start, end = arguments.blob("start"), arguments.blob_or_nil("end")
        reverse, limit = arguments.whole("reverse", 1), arguments.whole("limit", MAX_LIMIT)
        wanted = wanted_of(arguments, self._replication().now())
        if not partitions or not limit:
            raise BadRequest("table_scan: there are to be ids of 8 bytes, and a limit")
        range_ = ScanRange(start, end, bool(reverse), limit)
        return Later(lambda on_result: self.give_page(table, partitions, range_, wanted, answering(on_result)))

    # -- here --------------------------------------------------------------------------------------------------------

    def give_page(
        self, table: bytes, partitions: Sequence[int], range_: ScanRange, wanted: WantedClock, on_answer: OnAnswer
    ) -> None:
        """Answer a `scan_here` once the local replicas are ready."""
        replicas = self._replication().replicas

        def give() -> None:
            page = self.page(table, partitions, range_)
            flat: list[Value] = [part for row in page.rows for part in row]
            on_answer([flat, page.bound, self.compactor.to_node(page.seen)], None)

        self._ready.begin(_held(replicas, table, partitions, range_), wanted, give, on_answer)

    def page(self, table: bytes, partitions: Sequence[int], wanted: ScanRange) -> TableScanPage:
        """Return the first records of local replicas. Raises NotServed, Unavailable, Corrupt."""
        replicas = self._replication().replicas
        here = _held(replicas, table, partitions, wanted)
        bound = _bound_of(here[0], wanted) if len(here) == 1 else None
        passed: list[bytes] = []
        config = max(replica.taken_config for replica in here)
        few = share(wanted.limit, 1, len(here)) + 1  # One record more shows if the page is complete.
        sources = [self._records(replica, wanted, few) for replica in here]
        rows: list[Row] = []
        tombstones = size_bytes = 0
        try:
            for key, data in merge(*sources, reverse=wanted.reverse):
                if len(rows) == wanted.limit or tombstones == MAX_TOMBSTONES or size_bytes > PAGE_BYTES:
                    at = key + b"\0" if wanted.reverse else key
                    return TableScanPage(rows, at, seen_in(table, config, passed))
                passed.append(data)
                size_bytes += len(key) + len(data)
                if record.value(data) is None:
                    tombstones += 1
                else:
                    rows.append((key, data))
        except StorageError as error:
            raise Unavailable(f"its store cannot be read: {error.message}") from error
        return TableScanPage(rows, bound, seen_in(table, config, passed))

    def _records(self, replica: Replica, wanted: ScanRange, few: int) -> Iterator[Row]:
        """Iterate over the records of a replica, with tombstones; `few`: the records of one read."""
        replication = self._replication()
        replica.requests += 1
        start: bytes | None
        end: bytes | None
        start, end = replica.bounds.clip(KeyBounds(wanted.start, wanted.end)).records
        while True:
            found, bound = replication.scan(replica.space, start, end, reverse=wanted.reverse, limit=few)
            for key, data in found:
                yield key[1:], data
            if bound is None:
                return
            if wanted.reverse:
                end = bound
            else:
                start = bound


@final
class _Scanning:
    """A page in the making. A range table takes one step for each range, a hash table takes a single step."""

    def __init__(
        self,
        scans: TableScans,
        table: str,
        wanted: ScanRange,
        on_result: OnResult,
        *,
        ready: WantedClock,
        deadline: float,
        local: bool,
    ) -> None:
        self._scans = scans
        self._table = table
        self._wanted = wanted  # The rest of the scan.
        self._ready = ready  # The token that a replica must cover to answer.
        self._seen = ready.token
        self._deadline = deadline
        self._local = local
        self._on_result = on_result
        self._id: bytes | None = None  # The table's id: another table may take its name meanwhile.
        self._rows: list[Value] = []
        self._size_bytes = 0
        self._steps = 0
        self._left = 0  # Groups of this step without an answer.
        self._pages: list[TableScanPage] = []  # The answers of this step.
        self._error: GossipKVError | None = None  # The last error of this step.
        self._following: bytes | None = None  # The bound at which the next step begins; None: this is the last.

    def go_on(self) -> None:
        """Take the next step. Raises NotReady, UnknownDatabase."""
        wanted, route = self._wanted, self._scans.routing.route(self._table)
        table = route.table.id
        if self._id not in {None, table}:
            raise UnknownDatabase(f"the table {self._table} was dropped, and another has its name")
        if wanted.is_empty:
            self._finish(None)
            return
        self._id = table
        groups, self._following = self._groups(route)
        whole = sum(map(len, groups))
        self._left = len(groups) + 1
        for group in groups:
            part = wanted._replace(limit=share(wanted.limit, len(group), whole))
            self._ask(table, group, part if route.is_hash else part.within(group[0]))
        self._group_done()

    def _groups(self, route: TableRoute) -> tuple[Sequence[Sequence[PartitionRoute]], bytes | None]:
        """Return the partitions of the step, grouped by hosts, and the bound of the next step."""
        wanted = self._wanted
        if route.is_hash:
            return [*together(route.places())], None
        place = route.before(wanted.end) if wanted.reverse else route.place(wanted.start)
        bound = place.first if wanted.reverse else place.end
        return [[place]], None if bound is None or wanted.behind(bound).is_empty else bound

    def _ask(self, table: bytes, group: Sequence[PartitionRoute], part: ScanRange) -> None:
        partitions = [place.partition for place in group]
        packed = packed_ids(partitions)
        self._scans.forwarding.begin(
            ForwardRequest(
                what=f"{len(group)} partitions of {self._table}" if len(group) > 1 else f"a partition of {self._table}",
                nodes=group[0].hosts,
                here=partial(self._scans.give_page, table, partitions, part, self._ready),
                method="table_scan",
                params=[table, packed, part.start, part.end, int(part.reverse), part.limit],
                size_bytes=0,
                deadline=self._deadline,
                on_done=self._answered,
                wanted=self._ready,
                local=self._local,
            )
        )

    def _answered(self, result: Value, error: GossipKVError | None, node: bytes) -> None:
        del node
        try:
            if error is not None:
                raise error
            self._pages.append(_page_of(result))
        except ProtocolError as damaged:
            self._error = Unavailable(f"a node answered with what is no record: {damaged.message}")
        except GossipKVError as failed:
            self._error = failed
        self._group_done()

    def _group_done(self) -> None:
        """Count a group's answer, or the end of asking; after the last one, finish the step."""
        self._left -= 1
        if self._left:
            return
        if self._error is not None:
            self._on_result(self._error)
            return
        self._seen = merged(self._seen, *(page.seen for page in self._pages))
        page, self._pages = joined(self._pages, self._wanted), []
        self._rows += ([key, value] for key, value in page.rows)
        self._size_bytes += sum(len(key) + len(value) for key, value in page.rows)
        self._steps += 1
        bound = self._following if page.bound is None else page.bound
        left = self._wanted.limit - len(page.rows)
        is_full = page.bound is not None or not left or self._size_bytes > PAGE_BYTES or self._steps == MAX_STEPS
        if bound is None or is_full:
            self._finish(bound)
        else:
            self._wanted = self._wanted.behind(bound)._replace(limit=left)
            try:
                self.go_on()
            except GossipKVError as error:
                self._on_result(error)

    def _finish(self, bound: bytes | None) -> None:
        token = self._scans.compactor.write(self._seen)
        self._on_result([self._rows, None if bound is None else msgpack.packb([bound, token]), token])


def _held(replicas: ReplicaSet, table: bytes, partitions: Sequence[int], wanted: ScanRange) -> list[Replica]:
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


def joined(pages: Iterable[TableScanPage], wanted: ScanRange) -> TableScanPage:
    """Merge pages into one, up to the least of their bounds."""
    bounds = [page.bound for page in pages if page.bound is not None]
    bound = (max(bounds) if wanted.reverse else min(bounds)) if bounds else None
    rows: list[Row] = []
    size_bytes = 0
    for key, value in merge(*(page.rows for page in pages), reverse=wanted.reverse):
        if bound is not None and not wanted.is_before(key, bound):
            break
        if len(rows) == wanted.limit or size_bytes > PAGE_BYTES:
            return TableScanPage(rows, key + b"\0" if wanted.reverse else key)
        rows.append((key, value))
        size_bytes += len(key) + len(value)
    return TableScanPage(rows, bound)


def _page_of(result: Value) -> TableScanPage:
    """Decode an answer of `scan_here`, and its records to values. Raises Unavailable, ProtocolError."""
    match result:
        case [list(flat), None | bytes() as bound, bytes(seen)] if len(flat) % 2 == 0:
            rows: list[Row] = []
            for key, data in zip(flat[::2], flat[1::2], strict=True):
                value = record.value(data) if isinstance(data, bytes) else None
                if not isinstance(key, bytes) or value is None:
                    raise Unavailable("a node answered with what are no keys and records")
                rows.append((key, value))
            return TableScanPage(rows, bound, decode_body(seen))
    raise Unavailable("a node answered something else than a page")
