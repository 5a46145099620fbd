"""Change feeds of tables: one poll is asked of a host of each partition, as a scan is.

The client's token has the place of the feed in each partition. The node that gave a place last is asked first, since
it knows the position in its log; any other host can continue as well. The first changes end the poll, with those that
other hosts have at that moment; the other hosts are told to forget the poll.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, cast, final

import msgpack

from gossipkv.errors import (
    BadRequest,
    GossipKVError,
    NotReady,
    Overloaded,
    TooOld,
    Unavailable,
    UnknownDatabase,
    from_wire,
)
from gossipkv.replication.changes.pages import ChangePage
from gossipkv.replication.changes.places import FeedPlace, decode_place
from gossipkv.replication.replica.keys import KeyBounds
from gossipkv.replication.replica.record import PAGE_BYTES
from gossipkv.storage.sorted_file import prefix_end
from gossipkv.table.records import feed_token
from gossipkv.table.records.feed_token import FeedRow, FeedToken, rows_by
from gossipkv.wire.results import Later, Packed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from gossipkv.replication.deadlines import ParkedRequest
    from gossipkv.replication.shell import Replication
    from gossipkv.table.records.forward import RecordServices
    from gossipkv.table.records.router import PartitionRoute, TableRoute
    from gossipkv.wire.arguments import Arguments, OptionArguments
    from gossipkv.wire.results import Completion
    from gossipkv.wire.rpc import Raw, Value

    Made = Callable[[Callable[[ChangePage], object]], ChangePage]

SNAPSHOT: Final = "snapshot"
MAX_WAIT_MS: Final = 60_000
LIMIT: Final = 1000  # Changes of a page, unless the client asks for fewer or more.
MAX_LIMIT: Final = 10_000
MAX_PARTITIONS: Final = 1 << 14  # A token has about 100 bytes of each; it is read and written by each poll.
GATHER_S: Final = 0.01  # After the first changes, other hosts may answer for so long.
RETRY_S: Final = 0.1  # Until hosts are asked again that could not answer.
WAIT_PART: Final = 0.9  # A host waits for this part of the time left, so that its answer comes in time.
ANSWER_S: Final = 1.0  # Time for an answer beyond the wait.
MAX_NUMBER: Final = (1 << 64) - 1
WAITS_BYTES: Final = 1024


@final
class TableChanges:
    """The methods of change feeds, for clients and for other nodes."""

    def __init__(self, services: RecordServices, max_feeds: int) -> None:
        self.services, self._max_feeds = services, max_feeds
        self.open: set[ChangesRequest] = set()
        self.numbers = 0  # Polls asked of other hosts.
        self.pages: dict[tuple[bytes, int], ChangePage] = {}  # Polls of other nodes, by node and number.

    def changes(self, arguments: Arguments) -> Later:
        """`changes [table, {token, prefix, start, limit, wait_ms}]`: `[[[key, value or nil, expires], ...], token]`."""
        name = arguments.text("table")
        given = arguments.options("token", "prefix", "start", "limit", "wait_ms")
        if len(self.open) >= self._max_feeds:
            raise Overloaded("as many change feeds wait on this node as `max_feeds` allows", {"limit": self._max_feeds})
        return Later(ChangesRequest(self, name, given).begin)

    def changes_here(self, arguments: Arguments) -> Later | Value:
        """`table_changes [node, table id, number, prefix, limit, bytes, wait_ms, places]`.

        The answer is `[[place or error, ...], count, changes]`, packed. No places: forget the poll of that number.
        """
        node, table = arguments.blob("node"), arguments.blob("table")
        number, prefix = arguments.whole("number", MAX_NUMBER), arguments.blob("prefix")
        limits = arguments.whole("limit", MAX_LIMIT), arguments.whole("bytes", PAGE_BYTES)
        wait_s = arguments.whole("wait_ms", MAX_WAIT_MS) / 1000
        places = [decode_place(row) for row in arguments.packed_rows("places", MAX_PARTITIONS)]
        arguments.end()
        if (page := self.pages.pop((node, number), None)) is not None:
            page.end()
        replication = self.services.service.replicating()
        feeds, until = replication.feeds, replication.now() + wait_s

        def made(done: Callable[[ChangePage], object]) -> ChangePage:
            bounds = bounds_of(prefix)
            return ChangePage(feeds, table, places, bounds, limits=limits, until=until, complete=done)

        return Later(_NodePoll(self, (node, number), made).begin) if places else None


@final
class _NodePoll:
    """A poll of another node."""

    def __init__(self, feeds: TableChanges, name: tuple[bytes, int], made: Made) -> None:
        self._feeds, self._name, self._made = feeds, name, made
        self._complete: Completion[Value | Packed]

    def begin(self, complete: Completion[Value | Packed]) -> None:
        self._complete = complete
        page = self._feeds.pages[self._name] = self._made(self._done)
        page.begin()

    def _done(self, page: ChangePage) -> None:
        self._feeds.pages.pop(self._name, None)
        rows: list[Value] = []
        for number, place in enumerate(page.places):
            error = page.refused.get(number)
            rows.append(place.encode() if error is None else [error.code, error.message, error.details])
        self._complete([msgpack.packb(rows), page.count, page.body])


def bounds_of(prefix: bytes) -> KeyBounds:
    """Return the keys with a prefix."""
    return KeyBounds(prefix, prefix_end(prefix) if prefix else None)


@final
class _HostPoll:
    """The part of a poll that one host answers."""

    def __init__(self, node: bytes, number: int, rows: Sequence[int]) -> None:
        self.node, self.number, self.rows = node, number, rows
        self.page: ChangePage | None = None  # Set if the host is this node.


@final
class ChangesRequest:
    """A client's poll."""

    def __init__(self, feeds: TableChanges, name: str, given: OptionArguments) -> None:
        """Take the options. Raises BadRequest."""
        services = feeds.services
        self._feeds, self._services, self._name = feeds, services, name
        packed, start = given.blob("token"), given.text("start")
        self._prefix = given.key("prefix", services.most_key)
        self._limit = min(given.number("limit", least=1) or LIMIT, MAX_LIMIT)
        self._wait_s = (given.number("wait_ms", most=MAX_WAIT_MS) or 0) / 1000
        if start not in {None, SNAPSHOT} or (start is not None and packed):
            words = f"changes: start is {SNAPSHOT!r} or absent, and a token goes without it"
            raise BadRequest(words, {"option": "start"})
        self._is_snapshot = start is not None
        self._token = feed_token.decode(packed, services.service.register) if packed else None
        if self._token is not None and self._prefix not in {None, self._token.prefix}:
            raise BadRequest("changes: the token was given for another prefix", {"option": "prefix"})
        self._prefix = self._prefix or (b"" if self._token is None else self._token.prefix)
        self._complete: Completion[Value | Packed]
        self._replication: Replication
        self._table = b""
        self._rows: list[FeedRow] = []
        self._hosts: list[tuple[bytes, ...]] = []
        self._rank: dict[bytes, tuple[bool, int]] = {}  # By node: dead ones come last.
        self._errors: dict[int, dict[bytes, GossipKVError]] = {}  # By row: the errors of its hosts.
        self._polls: dict[_HostPoll, None] = {}
        self._failed: set[int] = set()  # Rows of which all hosts have failed.
        self._count, self._bodies = 0, list[bytes]()
        self._timer: ParkedRequest | None = None
        self._until = 0.0  # Hosts wait for changes until then.
        self._ends_at = 0.0  # The poll ends then, without the answers of slow hosts.
        self._is_over = False

    def begin(self, complete: Completion[Value | Packed]) -> None:
        """Begin; `complete` is called once, unless this call raises. Raises GossipKVError."""
        self._complete = complete
        self._replication = self._services.service.replicating(self._name)
        self._until = self._replication.now() + self._wait_s
        self._ends_at = self._until + ANSWER_S
        self._plan(self._services.routing.route(self._name))
        self._feeds.open.add(self)
        self._ask(range(len(self._rows)))
        self._look()

    def _plan(self, route: TableRoute) -> None:
        """Find the place in each partition. Raises NotReady, TooOld, UnknownDatabase, BadRequest."""
        bounds = bounds_of(self._prefix or b"")
        places = [place for place in route.places() if route.is_hash or _meets(place, bounds)]
        if len(places) > MAX_PARTITIONS:
            words = f"a feed follows at most {MAX_PARTITIONS:,} partitions, and here are {len(places):,}: give a prefix"
            raise BadRequest(f"changes: {words}", {"limit": MAX_PARTITIONS})
        self._table = route.table.id
        if self._token is None:
            cursor = b"" if self._is_snapshot else None
            begun = (FeedPlace(place.partition, cursor=cursor) for place in places)
            self._rows = [FeedRow(place.first, b"", new) for place, new in zip(places, begun, strict=True)]
        else:
            if self._token.table != route.table.id:
                raise UnknownDatabase(f"the token is of another table than {self._name}, which may have been dropped")
            newest = max((row.place.delivered.config for row in self._token.rows if row.place.delivered), default=0)
            if newest > route.config:
                self._services.routing.look_at(route.table.id)
                raise NotReady("this node does not know the newest map of the table yet; try again")
            self._rows = [*rows_by(places, self._token.rows)]
        self._hosts = [place.hosts for place in places]
        nodes = {node for hosts in self._hosts for node in hosts}
        down = {*self._services.routing.down(nodes)}
        ordered = enumerate(self._services.routing.hosts(sorted(nodes)))
        self._rank = {node: (self._services.name_of(node) in down, number) for number, node in ordered}

    # -- hosts -------------------------------------------------------------------------------------------------------

    def _next_host(self, number: int) -> bytes | None:
        """Return the host to ask for a row; None: all have failed."""
        row, me = self._rows[number], self._replication.replicas.me

        def order(node: bytes) -> tuple[bool, bool, bool, int]:
            is_dead, rank = self._rank[node]
            return is_dead, node != row.node, node != me, rank

        failed = self._errors.get(number, {})
        return min((node for node in self._hosts[number] if node not in failed), key=order, default=None)

    def _ask(self, numbers: Iterable[int]) -> None:
        """Ask a host for each of these rows, together where they have the same one."""
        groups: dict[bytes, list[int]] = {}
        for number in numbers:
            node = self._next_host(number)
            if node is None:
                self._failed.add(number)
            else:
                groups.setdefault(node, []).append(number)
        now, shares = self._replication.now(), max(1, len(groups) + len(self._polls))
        limits = max(1, self._limit // shares), max(PAGE_BYTES // 16, PAGE_BYTES // shares)
        polls = [_HostPoll(node, self._feeds.numbers + at, rows) for at, (node, rows) in enumerate(groups.items())]
        self._feeds.numbers += len(polls)
        self._polls.update(dict.fromkeys(polls))  # All of them before the first answer.
        for poll in polls:
            if poll.node == self._replication.replicas.me:
                self._poll_here(poll, limits)
            else:
                self._poll_elsewhere(poll, limits, max(0.0, self._until - now))

    def _poll_here(self, poll: _HostPoll, limits: tuple[int, int]) -> None:
        def done(page: ChangePage) -> None:
            answers = [page.refused.get(at) or place for at, place in enumerate(page.places)]
            self._answered(poll, answers, page.count, page.body)

        places = [self._place(number, poll.node) for number in poll.rows]
        poll.page = ChangePage(
            self._replication.feeds,
            self._table,
            places,
            bounds_of(self._prefix or b""),
            limits=limits,
            until=self._until,
            complete=done,
        )
        poll.page.begin()

    def _poll_elsewhere(self, poll: _HostPoll, limits: tuple[int, int], left_s: float) -> None:
        def done(answer: Value | GossipKVError) -> None:
            match answer:
                case [bytes(packed), int(count), bytes(body)]:
                    try:
                        answers = [_answer_of(row) for row in msgpack.unpackb(packed)]
                    except (ValueError, GossipKVError):
                        answers = []
                    if len(answers) == len(poll.rows):
                        self._answered(poll, answers, count, body)
                        return
            error = answer if isinstance(answer, GossipKVError) else Unavailable("a node answered with no page")
            self._answered(poll, [error] * len(poll.rows), 0, b"")

        rows = [self._place(number, poll.node).encode() for number in poll.rows]
        params: list[Value] = [self._replication.replicas.me, self._table, poll.number, self._prefix, *limits]
        params += [int(left_s * WAIT_PART * 1000), msgpack.packb(rows)]
        self._replication.ask(poll.node, "table_changes", params, done, left_s + ANSWER_S)

    def _place(self, number: int, node: bytes) -> FeedPlace:
        """Return the place of a row for a host: a position is of one node's log."""
        row = self._rows[number]
        return row.place if row.node == node else replace(row.place, space=0, position=0)

    def _answered(self, poll: _HostPoll, answers: Sequence[FeedPlace | GossipKVError], count: int, body: bytes) -> None:
        """Take a host's answer; ask others for the rows that the host refused."""
        if self._is_over:
            return
        self._polls.pop(poll, None)
        if count:
            self._count += count
            self._bodies.append(body)
            self._ends_at = min(self._ends_at, self._replication.now() + GATHER_S)
        has_refused = False
        for number, answer in zip(poll.rows, answers, strict=True):
            if isinstance(answer, GossipKVError):
                has_refused = True
                self._errors.setdefault(number, {})[poll.node] = answer
            else:
                self._errors.pop(number, None)
                self._rows[number] = self._rows[number]._replace(node=poll.node, place=answer)
        if has_refused:  # The host did not wait.
            refused = [number for number in poll.rows if number in self._errors]
            self._ask(refused if self._count or self._replication.now() >= self._until else poll.rows)
        self._look()

    # -- the end -----------------------------------------------------------------------------------------------------

    def _look(self) -> None:
        """End the poll, or wait for more."""
        if self._is_over:
            return
        lost = next(filter(self._is_too_old, self._failed), None)
        now = self._replication.now()
        if lost is not None:
            self._end(_TOO_OLD)
        elif now >= self._ends_at or not (self._polls or (self._failed and now < self._until and not self._count)):
            self._end()
        else:
            self._wait(min(self._ends_at, now + RETRY_S) if self._failed else self._ends_at)

    def _is_too_old(self, number: int) -> bool:
        """Return True if no host that is up has what the feed lacks."""
        errors = self._errors.get(number, {})
        return any(isinstance(error, TooOld) for error in errors.values()) and all(
            isinstance(error, TooOld) or self._rank[node][0] for node, error in errors.items()
        )

    def _wait(self, until: float) -> None:
        self._wait_no_more()
        try:
            self._timer = self._replication.waiting.begin(until, WAITS_BYTES, self._timed)
        except Overloaded as error:
            self._end(error)

    def _wait_no_more(self) -> None:
        if self._timer is not None:
            self._replication.waiting.end(self._timer)
            self._timer = None

    def _timed(self) -> None:
        """Ask again for rows of which all hosts have failed, by the map of this time."""
        self._timer = None
        failed, self._failed = self._failed, set()
        if failed and self._replication.now() < self._until:
            for number in failed:
                self._errors.pop(number, None)
            self._ask(failed)
        else:
            self._failed = failed
        self._look()

    def _end(self, error: GossipKVError | None = None) -> None:
        self._is_over = True
        self._wait_no_more()
        self._feeds.open.discard(self)
        for poll in self._polls:
            if poll.page is not None:
                poll.page.end()
            else:
                params: list[Value] = [self._replication.replicas.me, self._table, poll.number, b"", 0, 0, 0, b"\x90"]
                self._replication.ask(poll.node, "table_changes", params, lambda _: None, ANSWER_S)
        if error is None and not self._count and self._failed:
            error = self._failure()
        self._complete(self._page() if error is None else error)

    def _failure(self) -> GossipKVError:
        """Return the error of a poll without changes, of which some partitions have no host that can answer."""
        number = min(self._failed)
        name_of, errors = self._services.name_of, self._errors.get(number, {})
        reasons = "; ".join(f"{name_of(node)}: {error.message}" for node, error in errors.items())
        words = f"{len(self._failed)} partitions of {self._name} have no host that can answer now"
        return Unavailable(f"{words}: {reasons or 'no host is known'}", {"asked": reasons})

    def _page(self) -> Packed:
        token = feed_token.encode(
            FeedToken(self._table, self._prefix or b"", self._rows), self._services.service.register
        )
        head = b"\x92" + msgpack.Packer().pack_array_header(self._count)
        return Packed(b"".join([head, *self._bodies, msgpack.packb(token)]))


_TOO_OLD: Final = TooOld(
    "the log of every replica begins after this token, or its range was re-created; call `changes` with "
    'start="snapshot", which gives all present records and goes on from there'
)


def _meets(place: PartitionRoute, bounds: KeyBounds) -> bool:
    """Return True if a range has keys within bounds."""
    return (bounds.end is None or place.first < bounds.end) and (place.end is None or bounds.first < place.end)


def _answer_of(row: Value) -> FeedPlace | GossipKVError:
    """Read the place or the error in a host's answer. Raises GossipKVError."""
    match row:
        case [str(code), str(message), dict(details)]:
            return from_wire(code, message, details)
    return decode_place(cast("Raw", row))
