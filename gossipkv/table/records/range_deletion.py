"""Deletion of a range of keys, page by page.

A *part* is an interval of keys in one partition. A page advances a few parts at once: each at a host, which reads a
bounded number of records and writes their tombstones before anything else changes there. So the host counts exactly the
records that it made absent. The cursor has the rest of each part; no part is taken up again before its rest, so no
record counts twice at hosts that know different writes. All records before the rest of a part are deleted, whatever
splits and moves are under way.

A part that is refused keeps its place in the cursor, so the count of the others is not lost.
"""

from __future__ import annotations

import contextlib
from bisect import bisect_right
from itertools import accumulate
from typing import TYPE_CHECKING, Final, NamedTuple, final

import msgpack

from gossipkv.errors import BadRequest, GossipKVError, Unknown, UnknownDatabase
from gossipkv.replication.replica import record
from gossipkv.replication.replica.acks import LEVELS
from gossipkv.replication.replica.keys import KeyBounds
from gossipkv.replication.replica.record import RecordWrite
from gossipkv.settings.tables import MAX_KEY_BYTES
from gossipkv.table.records.forward import NodeRequest
from gossipkv.table.records.origin import OriginWrite, token_of_host
from gossipkv.table.records.request import record_options
from gossipkv.table.records.scan import MAX_LIMIT, ScanRange, key_range, page_here, replicas_of
from gossipkv.table.records.write import MAX_ID, ClientWrite
from gossipkv.table.session.readiness import wanted_of
from gossipkv.table.session.token import NOTHING, merged
from gossipkv.wire.arguments import MAX_MESSAGE_BYTES, ROW_BYTES
from gossipkv.wire.opaque import OpaqueLimits, unpack
from gossipkv.wire.results import Later

if TYPE_CHECKING:
    from collections.abc import Callable

    from gossipkv.replication.replica.replica import Replica
    from gossipkv.table.records.forward import HostRequest, RecordRequest, RecordServices
    from gossipkv.table.records.origin import Writes
    from gossipkv.table.records.request import RecordOptions
    from gossipkv.table.records.router import PartitionRoute
    from gossipkv.table.session.token import Token
    from gossipkv.wire.arguments import Arguments
    from gossipkv.wire.rpc import Value

MAX_PARTS: Final = 8  # Parts under way at once: their syncs overlap, and a cursor has at most that many keys.
MAX_ROUNDS: Final = 16  # Rounds of parts in one page: most ranges may be empty.
CURSOR: Final = OpaqueLimits((2 * MAX_PARTS + 2) * (MAX_KEY_BYTES + 16), max_elements=3 + 4 * MAX_PARTS, max_depth=3)
PAGE_ROWS: Final = 4000  # Records of one round: a node that has all of the parts is busy for 20 ms, in slices.
PART_ROWS: Final = 1000  # Records of one part, which are deleted in one piece, in 5 ms.


class DeletedRecords(NamedTuple):
    """The number of records that a host made absent, and the key from which to go on; None: none is left."""

    deleted: int
    bound: bytes | None
    seen: Token = NOTHING  # The token of a session that has seen the deletes.


class Part(NamedTuple):
    """The keys that are left of a part."""

    shard: int  # 0: a range table has no shards.
    start: bytes
    end: bytes | None


class Cursor(NamedTuple):
    """The rest of a deletion."""

    table: bytes
    parts: list[Part]  # The parts that are begun.
    following: bytes | int | None  # The first key or shard behind all parts; None: the parts are the last.

    def encode(self) -> bytes:
        """Return the cursor as clients get it."""
        packed: bytes = msgpack.packb([*self])
        return packed


def decode_cursor(data: bytes) -> Cursor:
    """Return the cursor. Raises BadRequest: it is none."""
    with contextlib.suppress(ValueError, TypeError):
        match unpack(data, CURSOR):
            case [bytes(table), list(parts), bytes() | int() | None as following] if len(parts) <= MAX_PARTS:
                return Cursor(table, [_decode_part(*part) for part in parts], following)
    raise BadRequest("delete_range: the cursor was not returned by this method", {"option": "cursor"})


def _other_range() -> BadRequest:
    return BadRequest("delete_range: the cursor belongs to another table or range", {"option": "cursor"})


def _decode_part(shard: object, start: object, end: object) -> Part:
    """Return the part. Raises TypeError: it is none."""
    if isinstance(shard, int) and isinstance(start, bytes) and isinstance(end, bytes | None):
        return Part(shard, start, end)
    raise TypeError


@final
class RangeDeletions:
    """The methods that delete a range, for clients and for other nodes."""

    def __init__(self, services: RecordServices) -> None:
        self._services = services

    def delete_range(self, arguments: Arguments) -> Later:
        """`delete_range [table, {start, end, prefix}, {options}]`: `[deleted, cursor or nil, token]`."""
        table, bounds = arguments.text("table"), arguments.fields("bounds", "start", "end", "prefix")
        keys = key_range(bounds, self._services.most_key)
        if not keys.first and keys.end is None:
            words = f"this would delete all records of {table}: give `start`, `end` or `prefix`"
            raise BadRequest(f"{arguments.method}: {words}")
        return Later(RangeDeletion(self._services, table, keys, record_options(arguments, "level", "cursor")).begin)

    def delete_here(self, arguments: Arguments) -> Later:
        """`table_delete_range [table id, partition, start, end or nil, limit, level, deadline, seen, wait_ms]`.

        The answer is `[deleted, bound or nil, token body]`.
        """
        table, partition = arguments.blob("table"), arguments.whole("partition", MAX_ID)
        keys = KeyBounds(arguments.blob("start"), arguments.blob_or_nil("end"))
        limit, level = arguments.whole("limit", MAX_LIMIT), arguments.text("level")
        request = NodeRequest[DeletedRecords](self._services, table)
        deadline = arguments.whole("deadline", MAX_ID)
        request.wanted = wanted_of(arguments, request.deadline)
        request.deadline += request.replication.replicas.skew.left_s(deadline)
        if not limit or level not in LEVELS:
            raise BadRequest("table_delete_range: a limit and a level are required")
        request.part = RangeDelete(request, partition, ScanRange(*keys, reverse=False, limit=limit), level)
        return Later(request.begin)


@final
class RangeDeletion(ClientWrite[DeletedRecords]):
    """A client's page.

    plan       begin further parts, and let the hosts of all parts delete
    part_done  note what is left of a part; after the last one, take another round or answer
    """

    def __init__(self, services: RecordServices, name: str, keys: KeyBounds, options: RecordOptions) -> None:
        """Begin with the rest of the range. Raises BadRequest."""
        super().__init__(services, name, options)
        cursor = options.given.blob("cursor")
        self._keys, self._limit = keys, min(services.scan_limit, PART_ROWS)
        self._cursor = Cursor(b"", [], None) if cursor is None else decode_cursor(cursor)
        if not all(self._keys.covers(KeyBounds(part.start, part.end)) for part in self._cursor.parts):
            raise _other_range()
        self.table = self._cursor.table  # Empty: the first round sets it.
        self._asked: dict[
            HostRequest[DeletedRecords], tuple[Part, bytes | None]
        ] = {}  # With the end that is asked for.
        self._left: list[Part] = []  # The rests of answered parts.
        self._errors: list[GossipKVError] = []
        self._deleted = self._rounds = 0
        self._has_moved = False  # True once any part is shorter than before.
        self._seen: Token = NOTHING

    def _plan(self) -> None:
        """Raises StaleConfig, UnknownDatabase, BadRequest."""
        route, keys = self.route, self._keys
        if not self.table:
            self.table = route.table.id
            empty = keys.end is not None and keys.end <= keys.first
            self._cursor = Cursor(self.table, [], None if empty else 0 if route.is_hash else keys.first)
        if self.table != route.table.id:
            raise UnknownDatabase(f"the table {self.name} was dropped, and another table has its name")
        parts, following = self._cursor.parts, self._cursor.following
        while following is not None and len(parts) < MAX_PARTS:
            parts.append(part := self._part_at(following))
            if route.is_hash:
                following = part.shard + 1 if part.shard + 1 < route.table.shards else None
            else:
                following = part.end if part.end != keys.end else None
        self._cursor = Cursor(self.table, [], following)
        limit = min(self._limit, PAGE_ROWS // max(1, len(parts)))
        asked = [self._host_request(part, limit) for part in parts]
        for request in asked:
            request.begin()
        if not asked:
            self._finish()

    def _part_at(self, following: bytes | int) -> Part:
        """Return the part that begins behind all others. Raises BadRequest: the cursor is of another kind of table."""
        keys, route = self._keys, self.route
        match following:
            case int(shard) if route.is_hash and 0 <= shard < route.table.shards:
                return Part(shard, *keys)
            case bytes(start) if not route.is_hash and keys.has(start):
                _, end = KeyBounds(start, keys.end).clip(KeyBounds(b"", route.place(start).end))
                return Part(0, start, end)
        raise _other_range()

    def _host_request(self, part: Part, limit: int) -> RangeDelete:
        route = self.route
        if route.is_hash and not 0 <= part.shard < route.table.shards:
            raise _other_range()
        place = route.shard(part.shard) if route.is_hash else route.place(part.start)
        route.check(self.options.config, (place,))
        keys = KeyBounds(part.start, part.end)
        if not route.is_hash:  # A split may have divided the part.
            keys = keys.clip(KeyBounds(b"", place.end))
        request = RangeDelete(self, place.partition, ScanRange(*keys, reverse=False, limit=limit), self.level, place)
        self._asked[request] = part, keys.end
        return request

    def part_done(self, part: HostRequest[DeletedRecords], result: DeletedRecords | GossipKVError) -> None:
        """Note what is left of a part."""
        rest, end = self._asked.pop(part)
        if isinstance(result, GossipKVError):
            self._errors.append(result)
            self._left.append(rest)
        else:
            self._deleted += result.deleted
            self._seen = merged(self._seen, result.seen)
            self._has_moved = True
            bound = end if result.bound is None else result.bound
            if bound is not None and bound != rest.end:
                self._left.append(rest._replace(start=bound))
        if not self._asked:
            self._round_done()

    def _round_done(self) -> None:
        self._cursor = self._cursor._replace(parts=sorted(self._left))
        self._left, self._rounds = [], self._rounds + 1
        # A round that begins late might end with an unknown outcome.
        is_late = self.replication.now() > self.deadline - self.options.timeout_s / 2
        is_over = not self._cursor.parts and self._cursor.following is None
        if self._errors or is_over or is_late or self._deleted >= self._limit or self._rounds == MAX_ROUNDS:
            self._finish()
        else:
            self._attempt(self._plan_anew)

    def _attempt(self, step: Callable[[], object]) -> None:
        """Take a step; an error ends the page."""
        try:
            step()
        except GossipKVError as error:
            self._errors.append(error)
            self._finish()

    def _finish(self) -> None:
        """Answer with what is deleted, unless an outcome is unknown or nothing was done."""
        unknown = next((error for error in self._errors if isinstance(error, Unknown)), None)
        is_over = not self._errors and not self._cursor.parts and self._cursor.following is None
        cursor = None if is_over else self._cursor.encode()
        if unknown is not None:
            words = f"{self._deleted} records are deleted, and more may be: {unknown.message}"
            self.complete(Unknown(words, {**unknown.details, "deleted": self._deleted, "cursor": cursor}))
        elif self._errors and not self._has_moved:
            self.complete(self._errors[0])
        else:
            self.complete([self._deleted, cursor, self.services.tokens.write(self.wanted.token, self._seen)])


@final
class RangeDelete(OriginWrite[DeletedRecords]):
    """The deletes of a part of the range in one partition."""

    method = "table_delete_range"

    def __init__(
        self,
        request: RecordRequest[DeletedRecords],
        partition: int,
        range_: ScanRange,
        level: str,
        place: PartitionRoute | None = None,
    ) -> None:
        super().__init__(request, partition, level, () if place is None else place.hosts)
        self._range = range_
        self._deleted, self._bound = 0, range_.end

    # -- as a request to hosts -----------------------------------------------------------------------------------------

    def _params(self) -> list[Value]:
        start, end, _, limit = self._range
        return [self.table, self.partition, start, end, limit, self.level]

    def _parsed(self, answer: Value) -> DeletedRecords:
        match answer:
            case [int(deleted), None | bytes() as bound, bytes(seen)]:
                return DeletedRecords(deleted, bound, token_of_host(seen))
        raise Unknown("the answer of a node to a delete is malformed")

    def encoded(self, result: DeletedRecords) -> Value:
        """Return the number, the bound, and the body of the token."""
        return [result.deleted, result.bound, self.request.services.tokens.to_node(result.seen)]

    def _latest_hosts(self) -> tuple[bytes, ...]:
        route = self.request.services.routing.route_of(self.table)
        return self.nodes if route.is_hash else route.place(self._range.start).hosts

    # -- here ----------------------------------------------------------------------------------------------------------

    def _by_replica(self) -> Writes:
        """Return the deletions of the first records of the part."""
        replication, (start, end, *_) = self.request.replication, self._range
        (replica,) = here = replicas_of(replication.replicas, self.table, [self.partition], self._range)
        page = page_here(replication, here, self._range)
        self._bound = page.bound
        last = end if page.bound is None else page.bound
        now_ms = replication.replicas.skew.expiry_ms()
        keys = _appended(msgpack.unpackb(page.rows)[::2], replica, KeyBounds(start, last), now_ms)
        ends = [*accumulate(len(key) + ROW_BYTES for key in keys)]
        count = max(1, bisect_right(ends, MAX_MESSAGE_BYTES))
        if count < len(keys):
            self._bound = keys[count]
            del keys[count:]
        self._deleted, self.size_bytes = len(keys), sum(map(len, keys))
        return {replica: [RecordWrite(key, None) for key in keys]}

    def _originate(self, by_replica: Writes) -> None:
        if self._deleted:
            super()._originate(by_replica)
        else:
            self.here_done(self._result(NOTHING))

    def _result(self, seen: Token) -> DeletedRecords:
        return DeletedRecords(self._deleted, self._bound, seen)


def _appended(keys: list[bytes], replica: Replica, bounds: KeyBounds, now_ms: int) -> list[bytes]:
    """Return the keys that have a record as of the last append, in order; `keys`: as of the last sync."""
    latest = {key: data for key, data in replica.unsynced.items() if bounds.has(key)}
    if not latest:
        return keys
    return sorted({*keys, *latest} - {key for key, data in latest.items() if record.value(data, now_ms) is None})
