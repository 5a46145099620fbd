"""Change feeds of tables: a node asks a host of each partition, and then only those with changes.

The client's token has the place of the feed in each partition. The node that gave a place last is asked first, since
it knows the position in its log; any other host can continue as well. A host answers at once, and tells the asking
node later, once for all feeds, that a partition has changed. So a poll that waits costs nothing.

A feed stays in memory between two polls, by its token: the next poll asks only for what has changed since.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING, Final, cast, final

import msgpack

from gossipkv.errors import (
    BadRequest,
    GossipKVError,
    NotReady,
    Overloaded,
    ProtocolError,
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
    from collections.abc import Iterable, Sequence

    from gossipkv.replication.changes.pages import ChangeFeeds
    from gossipkv.replication.deadlines import ParkedRequest
    from gossipkv.replication.shell import Replication
    from gossipkv.table.records.forward import RecordServices
    from gossipkv.table.records.router import PartitionRoute, TableRoute
    from gossipkv.wire.arguments import Arguments
    from gossipkv.wire.results import Completion
    from gossipkv.wire.rpc import Raw, Value

SNAPSHOT: Final = "snapshot"
MAX_WAIT_MS: Final = 60_000
LIMIT: Final = 1000  # Changes of a page, unless the client asks for fewer or more.
MAX_LIMIT: Final = 10_000
MAX_PARTITIONS: Final = 1 << 14  # A token has about 100 bytes of each.
GATHER_S: Final = 0.01  # After the first changes, other hosts may answer for so long.
RETRY_S: Final = 0.1  # Until hosts are asked again that could not answer; twice as long each time.
MAX_RETRY_S: Final = 2.0
ANSWER_S: Final = 1.0  # Time for an answer beyond the wait.
WOKEN: Final = 4  # Feeds that are woken before other tasks run.
WAKE_S: Final = 0.001  # Other tasks run for at least so long then, and `OTHERS` times as long as the feeds took.
OTHERS: Final = 3
REFRESH_S: Final = 300.0  # Other nodes are asked again after so long, if a word of theirs was lost.
PLACE_BYTES: Final = 512  # Approximate memory of a place.


@final
class TableChanges:
    """The methods of change feeds, for clients and for other nodes."""

    def __init__(self, services: RecordServices, max_feeds: int) -> None:
        self.services, self._max_feeds = services, max_feeds
        self.open: dict[ChangeFeed, None] = {}  # Feeds of which a client waits.
        # By partition: feeds to tell once, each with the number of its row.
        self.followers: dict[tuple[bytes, int], dict[ChangeFeed, int]] = {}
        # Feeds between two polls by table and token, the oldest first; several may have the same token.
        self._kept: dict[tuple[str, bytes], list[ChangeFeed]] = {}
        self._kept_count = 0
        self._replication: Replication | None = None  # The last one that feeds were asked by.
        self._woken: dict[ChangeFeed, None] = {}  # Open feeds that may get more.

    def changes(self, arguments: Arguments) -> Later:
        """`changes [table, {token, prefix, start, limit, wait_ms}]`: `[[[key, value or nil, expires], ...], token]`."""
        name = arguments.text("table")
        given = arguments.options("token", "prefix", "start", "limit", "wait_ms")
        token, start = given.blob("token") or b"", given.text("start")
        prefix = given.key("prefix", self.services.most_key)
        limit = min(given.number("limit", least=1) or LIMIT, MAX_LIMIT)
        wait_s = (given.number("wait_ms", most=MAX_WAIT_MS) or 0) / 1000
        if start not in {None, SNAPSHOT} or (start is not None and token):
            words = f"changes: start is {SNAPSHOT!r} or absent, and a token goes without it"
            raise BadRequest(words, {"option": "start"})
        if len(self.open) >= self._max_feeds:
            raise Overloaded("as many change feeds wait on this node as `max_feeds` allows", {"limit": self._max_feeds})
        kept = self._kept.get((name, token))
        feed = kept[-1] if kept else ChangeFeed(self, name, token, prefix or b"", is_snapshot=start is not None)
        if prefix not in {None, feed.prefix}:
            raise BadRequest("changes: the token was given for another prefix", {"option": "prefix"})
        if kept:
            self._take((name, token))
        return Later(partial(feed.poll, limit, wait_s))

    def keep(self, feed: ChangeFeed, name: str, token: bytes) -> None:
        """Keep a feed for its next poll, instead of older ones if there are too many."""
        self._kept.setdefault((name, token), []).append(feed)
        self._kept_count += 1
        while self._kept_count and self._kept_count + len(self.open) > self._max_feeds:
            self._take(next(iter(self._kept))).drop()

    def _take(self, key: tuple[str, bytes]) -> ChangeFeed:
        feeds = self._kept[key]
        if len(feeds) == 1:
            del self._kept[key]
        self._kept_count -= 1
        return feeds.pop()

    def changes_here(self, arguments: Arguments) -> Later:
        """`table_changes [node, table id, prefix, limit, bytes, places]`.

        The answer is `[[[place, has more] or error, ...], count, changes]`, the first and the last packed.
        """
        node, table, prefix = arguments.blob("node"), arguments.blob("table"), arguments.blob("prefix")
        limits = arguments.whole("limit", MAX_LIMIT), arguments.whole("bytes", PAGE_BYTES)
        places = [decode_place(row) for row in arguments.packed_rows("places", MAX_PARTITIONS)]
        arguments.end()
        feeds = self.shared(self.services.service.replicating())
        page = ChangePage(feeds, table, places, bounds_of(prefix), limits=limits, watcher=node)
        return Later(partial(_answer, page))

    def changed_here(self, arguments: Arguments) -> Value:
        """`table_changed [[[table id, partition], ...]]`: partitions of which a feed of this node may get more."""
        partitions = []
        for row in arguments.packed_rows("partitions", MAX_PARTITIONS):
            match row:
                case [bytes(table), int(partition)]:
                    partitions.append((table, partition))
                case _:
                    raise ProtocolError("a changed partition is [table, partition]")
        arguments.end()
        self.changed(partitions)
        return None

    def changed(self, partitions: Iterable[tuple[bytes, int]]) -> None:
        """Ask for changes of partitions."""
        is_idle = not self._woken
        for partition in partitions:
            for feed, number in self.followers.pop(partition, {}).items():
                feed.outdate([number])
                if feed in self.open:
                    self._woken[feed] = None
        if is_idle:
            self._wake()

    def _wake(self) -> None:
        """Let a few feeds ask, and others after other tasks have run: each makes a page."""
        if not self._woken:
            return
        assert self._replication is not None
        now = self._replication.now
        begun = now()
        for feed in [*islice(self._woken, WOKEN)]:
            del self._woken[feed]
            feed.look()
        if self._woken:
            pause_s = max(WAKE_S, OTHERS * (now() - begun))
            self._replication.waiting.begin(now() + pause_s, 0, self._wake)

    def shared(self, replication: Replication) -> ChangeFeeds:
        """Return the shared state of feeds, which tells this object of changes from now on."""
        shared, self._replication = replication.feeds, replication
        shared.tell, shared.lost = partial(self._tell, replication), self._lost
        return shared

    def _tell(self, replication: Replication, node: bytes, partitions: Sequence[tuple[bytes, int]]) -> None:
        if node == replication.replicas.me:
            self.changed(partitions)
        else:
            replication.ask(node, "table_changed", [msgpack.packb(partitions)], lambda _: None, ANSWER_S)

    def _lost(self, node: bytes) -> None:
        """Ask for what a node would have told."""
        for feed in [*chain.from_iterable(self._kept.values()), *self.open]:
            feed.lost(node)
            feed.look()


def bounds_of(prefix: bytes) -> KeyBounds:
    """Return the keys with a prefix."""
    return KeyBounds(prefix, prefix_end(prefix) if prefix else None)


def _answer(page: ChangePage, complete: Completion[Value | Packed]) -> None:
    """Give a page to another node."""

    def done(page: ChangePage) -> None:
        rows: list[Value] = []
        for number, place in enumerate(page.places):
            error = page.refused.get(number)
            if error is None:
                rows.append([place.encode(), number in page.unread])
            else:
                rows.append([error.code, error.message, error.details])
        complete([msgpack.packb(rows), page.count, page.body])

    page.begin(done)


@final
class _Ask:
    """A page that a node was asked for, with the numbers of its rows."""

    def __init__(self, node: bytes, rows: Sequence[int]) -> None:
        self.node, self.rows = node, rows


@final
class ChangeFeed:
    """A feed at the node that its client asks."""

    def __init__(self, feeds: TableChanges, name: str, token: bytes, prefix: bytes, *, is_snapshot: bool) -> None:
        """Begin with a token; an empty one: now, or with a snapshot. Raises BadRequest."""
        self._feeds, self._services, self._name = feeds, feeds.services, name
        given = feed_token.decode(token, self._services.service.register) if token else None
        self.prefix = given.prefix if given is not None else prefix
        self._token, self._is_snapshot = token, is_snapshot
        self._table = b"" if given is None else given.table
        self._rows: list[FeedRow] = [] if given is None else [*given.rows]
        self._replication: Replication | None = None
        self._config = 0  # The rows were made by the map of this config.
        self._hosts: list[tuple[bytes, ...]] = []
        self._rank: dict[bytes, tuple[bool, int]] = {}  # By node: dead ones come last.
        self._outdated: dict[int, None] = {}  # Rows to ask for.
        self._asked: dict[_Ask, None] = {}
        self._errors: dict[int, dict[bytes, GossipKVError]] = {}  # By row: the errors of its hosts.
        self._failed: set[int] = set()  # Rows of which all hosts have failed.
        self._retry_s, self._refresh_at = RETRY_S, 0.0
        self._has_moved = False  # A row has changed since the token.
        self._complete: Completion[Value | Packed] | None = None  # None: no client waits.
        self._count, self._bodies, self._limit = 0, list[bytes](), 0
        self._timer: ParkedRequest | None = None
        self._until = self._ends_at = 0.0  # Then the wait ends; then the poll ends, without the answers of slow hosts.

    def poll(self, limit: int, wait_s: float, complete: Completion[Value | Packed]) -> None:
        """Begin a poll; `complete` is called once, unless this call raises. Raises GossipKVError."""
        replication, route = self._services.service.replicating(self._name), self._services.routing.route(self._name)
        if replication is not self._replication or route.config != self._config:
            self._plan(replication, route)
        now, me = replication.now(), replication.replicas.me
        if now >= self._refresh_at:
            self._refresh_at = now + REFRESH_S
            self.outdate(number for number, row in enumerate(self._rows) if row.node != me)
        if not wait_s:
            self.outdate(range(len(self._rows)))
        self._complete, self._limit = complete, limit
        self._until = now + wait_s
        self._ends_at = self._until + ANSWER_S
        self._feeds.open[self] = None
        self._ask()
        self.look()

    def _plan(self, replication: Replication, route: TableRoute) -> None:
        """Find the place in each partition. Raises NotReady, TooOld, UnknownDatabase, BadRequest."""
        bounds = bounds_of(self.prefix)
        places = [place for place in route.places() if route.is_hash or _meets(place, bounds)]
        if len(places) > MAX_PARTITIONS:
            words = f"a feed follows at most {MAX_PARTITIONS:,} partitions, and here are {len(places):,}: give a prefix"
            raise BadRequest(f"changes: {words}", {"limit": MAX_PARTITIONS})
        if self._table not in {b"", route.table.id}:
            raise UnknownDatabase(f"the token is of another table than {self._name}, which may have been dropped")
        newest = max((row.place.delivered.config for row in self._rows if row.place.delivered), default=0)
        if newest > route.config:
            self._services.routing.look_at(route.table.id)
            raise NotReady("this node does not know the newest map of the table yet; try again")
        cursor = b"" if self._is_snapshot else None
        new = (FeedRow(place.first, b"", FeedPlace(place.partition, cursor=cursor)) for place in places)
        rows = [*rows_by(places, self._rows)] if self._rows else [*new]
        self.drop()
        self._replication, self._table, self._config = replication, route.table.id, route.config
        self._rows, self._hosts = rows, [place.hosts for place in places]
        nodes = {node for hosts in self._hosts for node in hosts}
        down = {*self._services.routing.down(nodes)}
        ordered = enumerate(self._services.routing.hosts(sorted(nodes)))
        self._rank = {node: (self._services.name_of(node) in down, number) for number, node in ordered}
        self._errors, self._failed = {}, set()
        self.outdate(range(len(rows)))

    def drop(self) -> None:
        """Follow no partition any more."""
        self._asked.clear()
        for row in self._rows:
            followers = self._feeds.followers.get((self._table, row.place.partition), {})
            followers.pop(self, None)
            if not followers:
                self._feeds.followers.pop((self._table, row.place.partition), None)

    def outdate(self, numbers: Iterable[int]) -> None:
        """Note that hosts may have more for rows."""
        self._outdated.update(dict.fromkeys(numbers))

    def lost(self, node: bytes) -> None:
        """Note that a node tells of no more changes."""
        self.outdate(number for number, row in enumerate(self._rows) if row.node == node)

    # -- hosts -------------------------------------------------------------------------------------------------------

    def _next_host(self, number: int) -> bytes | None:
        """Return the host to ask for a row; None: all have failed."""
        assert self._replication is not None
        row, me = self._rows[number], self._replication.replicas.me

        def order(node: bytes) -> tuple[bool, bool, bool, int]:
            is_dead, rank = self._rank[node]
            return is_dead, node != row.node, node != me, rank

        failed = self._errors.get(number, {})
        return min((node for node in self._hosts[number] if node not in failed), key=order, default=None)

    def _ask(self) -> None:
        """Ask a host for each outdated row, together where they have the same one."""
        assert self._replication is not None
        groups: dict[bytes, list[int]] = {}
        for number in self._outdated:
            node = self._next_host(number)
            if node is None:
                self._failed.add(number)
            else:
                groups.setdefault(node, []).append(number)
        self._outdated.clear()
        shares = max(1, len(groups) + len(self._asked))
        limits = max(1, self._limit // shares), max(PAGE_BYTES // 16, PAGE_BYTES // shares)
        asks = [_Ask(node, rows) for node, rows in groups.items()]
        self._asked.update(dict.fromkeys(asks))  # All of them before the first answer.
        for ask in asks:
            rows = [self._rows[number] for number in ask.rows]
            for number, row in zip(ask.rows, rows, strict=True):
                self._feeds.followers.setdefault((self._table, row.place.partition), {})[self] = number
            # A position is of one node's log.
            known = [row.place if row.node == ask.node else replace(row.place, space=0, position=0) for row in rows]
            if ask.node == self._replication.replicas.me:
                self._ask_here(ask, [*map(replace, known)], limits)
            else:
                self._ask_elsewhere(ask, known, limits)

    def _ask_here(self, ask: _Ask, places: list[FeedPlace], limits: tuple[int, int]) -> None:
        def done(page: ChangePage) -> None:
            answers = [page.refused.get(at) or (place, at in page.unread) for at, place in enumerate(page.places)]
            self._answered(ask, answers, page.count, page.body)

        assert self._replication is not None
        shared, bounds = self._feeds.shared(self._replication), bounds_of(self.prefix)
        ChangePage(shared, self._table, places, bounds, limits=limits, watcher=ask.node).begin(done)

    def _ask_elsewhere(self, ask: _Ask, places: Sequence[FeedPlace], limits: tuple[int, int]) -> None:
        def done(answer: Value | GossipKVError) -> None:
            match answer:
                case [bytes(packed), int(count), bytes(body)]:
                    try:
                        answers = [_answer_of(row) for row in msgpack.unpackb(packed)]
                    except (ValueError, GossipKVError):
                        answers = []
                    if len(answers) == len(ask.rows):
                        self._answered(ask, answers, count, body)
                        return
            error = answer if isinstance(answer, GossipKVError) else Unavailable("a node answered with no page")
            self._answered(ask, [error] * len(ask.rows), 0, b"")

        assert self._replication is not None
        rows = msgpack.packb([place.encode() for place in places])
        params: list[Value] = [self._replication.replicas.me, self._table, self.prefix, *limits, rows]
        left_s = max(0.0, self._until - self._replication.now())
        self._replication.ask(ask.node, "table_changes", params, done, left_s + ANSWER_S)

    def _answered(
        self, ask: _Ask, answers: Sequence[tuple[FeedPlace, bool] | GossipKVError], count: int, body: bytes
    ) -> None:
        """Take a host's answer; ask others for the rows that the host refused."""
        if ask not in self._asked:
            return
        assert self._replication is not None
        del self._asked[ask]
        rows = self._rows
        for number, answer in zip(ask.rows, answers, strict=True):
            if isinstance(answer, GossipKVError):
                self._errors.setdefault(number, {})[ask.node] = answer
                self._outdated[number] = None
                continue
            place, has_more = answer
            self._errors.pop(number, None)
            if has_more:
                self._outdated[number] = None
            row, rows[number] = rows[number], rows[number]._replace(node=ask.node, place=place)
            # A position alone may be found again.
            known = replace(row.place, space=place.space, position=place.position)
            self._has_moved |= (row.node, known) != (ask.node, place) or not row.place.position
        if count:
            self._count += count
            self._bodies.append(body)
            self._ends_at = min(self._ends_at, self._replication.now() + GATHER_S)
        self.look()

    # -- the end -----------------------------------------------------------------------------------------------------

    def look(self) -> None:
        """Ask for outdated rows, end the poll, or wait for more."""
        if self._complete is None:
            return
        assert self._replication is not None
        now = self._replication.now()
        is_new = not (self._token or self._is_snapshot)
        if self._outdated and not self._asked and not self._count and (now < self._until or self._errors):
            self._ask()
            self.look()
            return
        has_begun = is_new and all(row.place.delivered is not None for row in self._rows)
        if any(map(self._is_too_old, self._failed)):
            self._end(_TOO_OLD)
        elif self._asked:
            self._wait(self._ends_at)
        elif self._count or has_begun or now >= self._until:
            self._end()
        else:
            self._wait(min(self._until, now + self._retry_s) if self._failed else self._until)

    def _is_too_old(self, number: int) -> bool:
        """Return True if no host that is up has what the feed lacks."""
        errors = self._errors.get(number, {})
        return any(isinstance(error, TooOld) for error in errors.values()) and all(
            isinstance(error, TooOld) or self._rank[node][0] for node, error in errors.items()
        )

    def _wait(self, until: float) -> None:
        assert self._replication is not None
        self._wait_no_more()
        try:
            size_bytes = PLACE_BYTES * len(self._rows) + sum(map(len, self._bodies))
            self._timer = self._replication.waiting.begin(until, size_bytes, self._timed)
        except Overloaded as error:
            self._end(error)

    def _wait_no_more(self) -> None:
        if self._timer is not None:
            assert self._replication is not None
            self._replication.waiting.end(self._timer)
            self._timer = None

    def _timed(self) -> None:
        """End the poll, or ask again for rows of which all hosts have failed, by the map of this time."""
        assert self._replication is not None
        self._timer = None
        now = self._replication.now()
        if now >= (self._ends_at if self._asked else self._until):
            self._end()
            return
        self._retry_s, config = min(MAX_RETRY_S, self._retry_s * 2), self._config
        failed = dict.fromkeys(self._failed)
        try:
            self._plan(self._replication, self._services.routing.route(self._name))
        except GossipKVError as error:
            self._end(error)
            return
        self._outdated = failed if self._config == config else self._outdated
        self.look()

    def _end(self, error: GossipKVError | None = None) -> None:
        complete, self._complete = self._complete, None
        assert complete is not None
        self._wait_no_more()
        self._feeds.open.pop(self, None)
        if error is None and not self._count and self._failed:
            error = self._failure()
        self.outdate(number for ask in self._asked for number in ask.rows)
        self.outdate(self._failed)
        self._asked, self._errors, self._failed, self._retry_s = {}, {}, set(), RETRY_S
        if error is not None:
            self.drop()
            complete(error)
            return
        if self._has_moved or not self._token:
            token = FeedToken(self._table, self.prefix, self._rows)
            self._token, self._has_moved = feed_token.encode(token, self._services.service.register), False
        head = b"\x92" + msgpack.Packer().pack_array_header(self._count)
        page = Packed(b"".join([head, *self._bodies, msgpack.packb(self._token)]))
        self._count, self._bodies = 0, []
        self._feeds.keep(self, self._name, self._token)
        complete(page)

    def _failure(self) -> GossipKVError:
        """Return the error of a poll without changes, of which some partitions have no host that can answer."""
        number = min(self._failed)
        name_of, errors = self._services.name_of, self._errors.get(number, {})
        reasons = "; ".join(f"{name_of(node)}: {error.message}" for node, error in errors.items())
        words = f"{len(self._failed)} partitions of {self._name} have no host that can answer now"
        return Unavailable(f"{words}: {reasons or 'no host is known'}", {"asked": reasons})


_TOO_OLD: Final = TooOld(
    "the log of every replica begins after this token, or its range was re-created; call `changes` with "
    'start="snapshot", which gives all present records and goes on from there'
)


def _meets(place: PartitionRoute, bounds: KeyBounds) -> bool:
    """Return True if a range has keys within bounds."""
    return (bounds.end is None or place.first < bounds.end) and (place.end is None or bounds.first < place.end)


def _answer_of(row: Value) -> tuple[FeedPlace, bool] | GossipKVError:
    """Read the place or the error in a host's answer. Raises GossipKVError."""
    match row:
        case [str(code), str(message), dict(details)]:
            return from_wire(code, message, details)
        case [place, bool(has_more)]:
            return decode_place(cast("Raw", place)), has_more
    raise ProtocolError("the answer to table_changes is a place and a flag, or an error")
