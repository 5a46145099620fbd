"""Reads of tables: from the copy here, else from hosts of the partition, stage by stage.

A host that lets a stage pass is not given up: the next one is asked as well, and the first answer counts.  What was
forwarded is never forwarded again.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from functools import partial
from heapq import merge
from typing import TYPE_CHECKING, Final, NamedTuple, final

import msgpack

from gossipkv.errors import BadRequest, GossipKVError, NotServed, Unavailable
from gossipkv.replication import record
from gossipkv.replication.copy import END_OF_RECORDS, RECORD
from gossipkv.storage.sorted_file import prefix_end
from gossipkv.wire.results import Later

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from gossipkv.replication.copy import Copy
    from gossipkv.replication.shell import Replication
    from gossipkv.replication.waiting import Waiter
    from gossipkv.table.routing import Place, Route, Routing
    from gossipkv.wire.arguments import Arguments, Options
    from gossipkv.wire.results import OnResult
    from gossipkv.wire.rpc import Value

READ_OPTIONS: Final = ("token", "wait_ms", "timeout_ms", "local", "config", "explain")
SCAN_OPTIONS: Final = (*READ_OPTIONS, "start", "end", "prefix", "reverse", "limit", "cursor")
TIMEOUT_MS: Final = 1000
MOST_PARTITIONS: Final = 1 << 17
PAGE_BYTES: Final = 1 << 20


class Range(NamedTuple):
    """The keys of a scan, and how much of them a page has at most."""

    start: bytes | None
    end: bytes | None
    reverse: bool
    limit: int


class Page(NamedTuple):
    """Records of a scan in its order, and whether there are more behind the last one."""

    rows: list[tuple[bytes, bytes]]
    more: bool


@final
@dataclass(slots=True, eq=False)
class Reading:
    """A question to the hosts of a partition that is under way."""

    method: str
    params: list[Value]
    hosts: list[bytes]
    deadline: float
    what: str
    on_done: Callable[[Value, GossipKVError | None], object]
    under_way: int = 0
    refusals: dict[str, str] = field(default_factory=dict)
    waiter: Waiter | None = None
    is_over: bool = False


@final
class TableReads:
    """The methods that read, for clients and for other nodes."""

    def __init__(
        self,
        routing: Routing,
        replication: Callable[[], Replication],
        name_of: Callable[[bytes], str],
        *,
        max_key: int,
        scan_limit: int,
        stage_ms: int,
    ) -> None:
        """`replication`: of the store as it is open now; raises `NotReady`."""
        self._routing = routing
        self._replication = replication
        self._name_of = name_of
        self._max_key = max_key
        self._scan_limit = scan_limit
        self._stage_s = stage_ms / 1000

    # -- for clients -------------------------------------------------------------------------------------------------

    def get(self, arguments: Arguments) -> Value | Later:
        """`[value or nil, token]`, and with `explain` who has answered."""
        table, key = arguments.text("table"), arguments.key("key", self._max_key)
        options = _checked(arguments.options(*READ_OPTIONS))
        route = self._routing.route(table)
        place = route.place(key)
        copy = self._copy(route, place)
        explained: list[Value] = (
            [{"node": self._name_of(self._replication().replicas.me)}] if options.flag("explain") else []
        )
        if copy is not None:
            data = self._replication().get(copy.space, RECORD + key)
            return [None if data is None else record.value(data), b"", *explained]
        self._check_forwards(options, place)

        def begin(on_result: OnResult) -> None:
            def done(result: Value, error: GossipKVError | None) -> None:
                match result:
                    case [None | bytes() as data]:
                        on_result([None if data is None else record.value(data), b"", *explained])
                    case _:
                        on_result(error or Unavailable("a host answered something else than records"))

            self._ask_hosts(route, place, "table_get", [route.table.id, [key]], options.timeout_ms(), done)

        return Later(begin)

    def get_many(self, arguments: Arguments) -> Later:
        """`[[value or nil, ...], token]`: each key by itself, of no one moment."""
        table, keys = arguments.text("table"), arguments.keys("keys", self._max_key)
        options = _checked(arguments.options(*READ_OPTIONS))
        route = self._routing.route(table)
        by_place: dict[bytes, tuple[Place, list[int]]] = {}
        for at, key in enumerate(keys):
            place = route.place(key)
            by_place.setdefault(place.first, (place, []))[1].append(at)
        values: list[Value] = [None] * len(keys)
        elsewhere: list[tuple[Place, list[int]]] = []
        for place, ats in by_place.values():
            copy = self._copy(route, place)
            if copy is None:
                self._check_forwards(options, place)
                elsewhere.append((place, ats))
                continue
            for at in ats:
                data = self._replication().get(copy.space, RECORD + keys[at])
                values[at] = None if data is None else record.value(data)

        def begin(on_result: OnResult) -> None:
            left = len(elsewhere) + 1
            failed: GossipKVError | None = None

            def done(ats: list[int], result: Value, error: GossipKVError | None) -> None:
                nonlocal left, failed
                if isinstance(result, list) and len(result) == len(ats):
                    for at, data in zip(ats, result, strict=True):
                        values[at] = record.value(data) if isinstance(data, bytes) else None
                elif ats:
                    failed = failed or error or Unavailable("a host answered something else than records")
                left -= 1
                if not left:
                    on_result(failed or [[*values], b""])

            for place, ats in elsewhere:
                params: list[Value] = [route.table.id, [keys[at] for at in ats]]
                self._ask_hosts(route, place, "table_get", params, options.timeout_ms(), partial(done, ats))
            done([], None, None)

        return Later(begin)

    def scan(self, arguments: Arguments) -> Later:
        """`[[[key, value], ...], cursor or nil, token]`, in key order."""
        table = arguments.text("table")
        options = _checked(arguments.options(*SCAN_OPTIONS))
        route, wanted = self._routing.route(table), self._range(options)
        groups: dict[bytes, list[Place]] = {}  # By who answers; nobody: this node.
        me = self._replication().replicas.me
        for place in self._overlapping(route, wanted):
            host = me if self._copy(route, place) is not None else self._routing.hosts(place.partition)[0]
            if host != me:
                self._check_forwards(options, place)
            groups.setdefault(host, []).append(place)

        def begin(on_result: OnResult) -> None:
            _Scanning(self, route, wanted, on_result, options.timeout_ms()).begin(groups, me)

        return Later(begin)

    def _range(self, options: Options) -> Range:
        start, end, prefix = (options.key(name, self._max_key) for name in ("start", "end", "prefix"))
        if prefix is not None:
            start = prefix if start is None else max(start, prefix)
            end = min((one for one in (end, prefix_end(prefix)) if one is not None), default=None)
        reverse, cursor = options.flag("reverse"), options.blob("cursor")
        if cursor is not None:
            last = _last_key(cursor)
            if reverse:
                end = last if end is None else min(end, last)
            else:
                start = last + b"\0" if start is None else max(start, last + b"\0")
        limit = options.number("limit", least=1)
        return Range(start, end, reverse, self._scan_limit if limit is None else min(limit, self._scan_limit))

    @staticmethod
    def _overlapping(route: Route, wanted: Range) -> Iterator[Place]:
        for place in route.places():
            is_before = wanted.end is not None and place.first >= wanted.end
            is_behind = wanted.start is not None and place.end is not None and place.end <= wanted.start
            if route.is_hash or not (is_before or is_behind):
                yield place

    # -- for other nodes ---------------------------------------------------------------------------------------------

    def get_here(self, arguments: Arguments) -> Value:
        """`table_get [table id, keys]`: the records, of copies here alone."""
        table, keys = arguments.blob("table"), arguments.keys("keys", self._max_key)
        arguments.end()
        route = self._routing.route_of(table)
        found: list[Value] = []
        for key in keys:
            found.append(self._replication().get(self._copy_here(route, route.place(key)).space, RECORD + key))
        return found

    def scan_here(self, arguments: Arguments) -> Value:
        """`table_scan [table id, [first key, ...], start, end, reverse, limit]`: `[[key, record, ...], more]`."""
        table, firsts = arguments.blob("table"), arguments.keys("partitions", self._max_key)
        start, end = arguments.blob_or_nil("start"), arguments.blob_or_nil("end")
        reverse, limit = arguments.whole("reverse", 1), arguments.whole("limit", 1 << 32)
        arguments.end()
        route = self._routing.route_of(table)
        places = [place for place in route.places() if place.first in {*firsts}]
        page = self.page(route, places, Range(start, end, bool(reverse), limit))
        return [[part for row in page.rows for part in row], page.more]

    # -- here --------------------------------------------------------------------------------------------------------

    def _copy(self, route: Route, place: Place) -> Copy | None:
        """The copy here of a partition, if it answers."""
        replicas = self._replication().replicas
        copy = replicas.copies.get((route.table.id, place.partition.id))
        if copy is None or not any(host.available for host in copy.hosts if host.node == replicas.me):
            return None
        return copy

    def _copy_here(self, route: Route, place: Place) -> Copy:
        copy = self._copy(route, place)
        if copy is None:
            raise NotServed("the partition is not held here", {"partition": place.partition.id})
        return copy

    @staticmethod
    def _check_forwards(options: Options, place: Place) -> None:
        if options.flag("local"):
            raise NotServed("the partition is not held here", {"partition": place.partition.id})

    def page(self, route: Route, places: Sequence[Place], wanted: Range) -> Page:
        """The first records of these partitions, which are here."""
        sources = [self._rows(self._copy_here(route, place), wanted) for place in places]
        rows: list[tuple[bytes, bytes]] = []
        size_bytes = 0
        for row in merge(*sources, reverse=wanted.reverse):
            if len(rows) == wanted.limit or (rows and size_bytes > PAGE_BYTES):
                return Page(rows, more=True)
            rows.append(row)
            size_bytes += len(row[0]) + len(row[1])
        return Page(rows, more=False)

    def _rows(self, copy: Copy, wanted: Range) -> Iterator[tuple[bytes, bytes]]:
        """The live records of a copy within the bounds, page by page."""
        replication = self._replication()
        start: bytes | None = RECORD + (wanted.start or b"")
        end: bytes | None = END_OF_RECORDS if wanted.end is None else RECORD + wanted.end
        while True:
            few = min(wanted.limit + 1, 64)
            found, more = replication.scan(copy.space, start, end, reverse=wanted.reverse, limit=few)
            for key, data in found:
                if record.value(data) is not None:
                    yield key[1:], data
            if more is None:
                return
            if wanted.reverse:
                end = more
            else:
                start = more

    # -- elsewhere ---------------------------------------------------------------------------------------------------

    def _ask_hosts(
        self,
        route: Route,
        place: Place,
        method: str,
        params: list[Value],
        timeout_ms: int | None,
        on_done: Callable[[Value, GossipKVError | None], object],
    ) -> None:
        hosts = self._routing.hosts(place.partition)
        self.ask(hosts, method, params, timeout_ms, f"partition {place.partition.id} of {route.name}", on_done)

    def ask(
        self,
        hosts: list[bytes],
        method: str,
        params: list[Value],
        timeout_ms: int | None,
        what: str,
        on_done: Callable[[Value, GossipKVError | None], object],
    ) -> None:
        """Ask hosts, stage by stage, until one answers; `on_done` is called once."""
        replication = self._replication()
        deadline = replication.now() + (TIMEOUT_MS if timeout_ms is None else timeout_ms) / 1000
        hosts = [host for host in hosts if host != replication.replicas.me]
        reading = Reading(method, params, hosts, deadline, what, on_done)
        try:
            self._next(replication, reading)
        except GossipKVError as error:
            self._done(replication, reading, None, error)

    def _next(self, replication: Replication, reading: Reading) -> None:
        """Ask the next host as well; with none left, wait for those that were asked."""
        if reading.is_over:
            return
        now = replication.now()
        if reading.waiter is not None:
            replication.waiting.end(reading.waiter)
            reading.waiter = None
        if now >= reading.deadline or (not reading.hosts and not reading.under_way):
            said = "; ".join(f"{name}: {why}" for name, why in reading.refusals.items()) or "none has answered in time"
            error = Unavailable(f"no host of {reading.what} answers: {said}", {"asked": {**reading.refusals}})
            self._done(replication, reading, None, error)
            return
        stage = min(reading.deadline, now + self._stage_s) if reading.hosts else reading.deadline
        reading.waiter = replication.waiting.begin(stage, 0, partial(self._next, replication, reading))
        if reading.hosts:
            host = reading.hosts.pop(0)
            reading.under_way += 1
            answered = partial(self._answered, replication, reading, host)
            replication.ask_whole(host, reading.method, reading.params, reading.deadline - now, answered)

    def _answered(
        self, replication: Replication, reading: Reading, host: bytes, result: Value, error: GossipKVError | None
    ) -> None:
        reading.under_way -= 1
        if error is None:
            self._done(replication, reading, result, None)
        else:
            reading.refusals[self._name_of(host)] = error.message
            self._next(replication, reading)

    @staticmethod
    def _done(replication: Replication, reading: Reading, result: Value, error: GossipKVError | None) -> None:
        if not reading.is_over:
            reading.is_over = True
            if reading.waiter is not None:
                replication.waiting.end(reading.waiter)
            reading.on_done(result, error)


@final
class _Scanning:
    """A page of a scan, of which several nodes have a part."""

    def __init__(
        self, reads: TableReads, route: Route, wanted: Range, on_result: OnResult, timeout_ms: int | None
    ) -> None:
        self._reads = reads
        self._route = route
        self._wanted = wanted
        self._on_result = on_result
        self._timeout_ms = timeout_ms
        self._pages: list[Page] = []
        self._left = 1
        self._failed: GossipKVError | None = None

    def begin(self, groups: dict[bytes, list[Place]], me: bytes) -> None:
        """Ask all; `groups`: partitions by who is asked first."""
        wanted = self._wanted
        for host, places in groups.items():
            if host == me:
                try:
                    self._pages.append(self._reads.page(self._route, places, wanted))
                except GossipKVError as error:
                    self._failed = error
                continue
            self._left += 1
            hosts = [host, *self._others(host, places)]
            firsts: list[Value] = [place.first for place in places]
            params: list[Value] = [self._route.table.id, firsts, wanted.start, wanted.end, int(wanted.reverse)]
            what = f"{len(places)} partitions of {self._route.name}"
            self._reads.ask(hosts, "table_scan", [*params, wanted.limit], self._timeout_ms, what, self._answered)
        self._end()

    @staticmethod
    def _others(host: bytes, places: list[Place]) -> list[bytes]:
        """Who else holds all of these."""
        held = [{one.node for one in place.partition.assignments} for place in places]
        return sorted(set.intersection(*held) - {host})

    def _answered(self, result: Value, error: GossipKVError | None) -> None:
        match result:
            case [list(flat), bool(more)] if len(flat) % 2 == 0:
                parts = [part for part in flat if isinstance(part, bytes)]
                self._pages.append(Page([*zip(parts[::2], parts[1::2], strict=True)], more))
            case _:
                self._failed = self._failed or error or Unavailable("a host answered something else than a page")
        self._end()

    def _end(self) -> None:
        self._left -= 1
        if self._left:
            return
        if self._failed is not None:
            self._on_result(self._failed)
            return
        wanted = self._wanted
        bounds = [page.rows[-1][0] for page in self._pages if page.more]
        until = (max(bounds) if wanted.reverse else min(bounds)) if bounds else None
        rows: list[Value] = []
        last, size_bytes, more = b"", 0, bool(bounds)
        for key, data in merge(*(page.rows for page in self._pages), reverse=wanted.reverse):
            is_past = until is not None and (key < until if wanted.reverse else key > until)
            if is_past or len(rows) == wanted.limit or (rows and size_bytes > PAGE_BYTES):
                more = True
                break
            rows.append([key, record.value(data)])
            last, size_bytes = key, size_bytes + len(key) + len(data)
        self._on_result([rows, msgpack.packb([last]) if more else None, b""])


def _checked(options: Options) -> Options:
    """Check those that every read takes."""
    options.timeout_ms(), options.flag("local"), options.flag("explain")
    options.blob("token"), options.number("wait_ms"), options.number("config")
    return options


def _last_key(cursor: bytes) -> bytes:
    with contextlib.suppress(ValueError):
        match msgpack.unpackb(cursor):
            case [bytes(last)]:
                return last
    raise BadRequest("scan: the cursor is not one that this method returned")
