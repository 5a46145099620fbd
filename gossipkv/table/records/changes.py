"""Change feeds of tables: a node asks a host of each partition, and then only those with changes.

The client's token has the place of the feed in each partition. The node that gave a place last is asked first, since
it knows the position in its log; any other host can continue as well. A host answers at once, and tells the asking
node later, once for all feeds, that a partition has changed. So a poll that waits costs nothing but a question a
second to each host: one that is silent, or has told in vain, is left or asked again.

A token is all that a feed needs; a feed in memory only saves questions. It is kept by the token of its last answer, and
what it has got since goes to all polls with that token that wait, or is dropped. So nothing is given that nobody gets,
and a poll that is repeated gets the same changes.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple, cast, final

import msgpack

from gossipkv.errors import (
    BadRequest,
    GossipKVError,
    NotReady,
    Overloaded,
    ProtocolError,
    TooOld,
    Unavailable,
    from_wire,
    to_wire,
)
from gossipkv.replication.changes.pages import HAS_MORE, WAITS, ChangePage
from gossipkv.replication.changes.places import FeedPlace, decode_place
from gossipkv.replication.replica.keys import KeyBounds
from gossipkv.replication.replica.record import PAGE_BYTES
from gossipkv.storage.sorted_file import prefix_end
from gossipkv.table.records import feed_token
from gossipkv.table.records.feed_token import ANEW, MAX_PARTITIONS, FeedToken, digest_of, places_by
from gossipkv.wire.results import Later, Packed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from gossipkv.replication.changes.pages import ChangeFeeds, PlaceResult
    from gossipkv.replication.deadlines import ParkedRequest
    from gossipkv.replication.shell import Replication
    from gossipkv.table.records.forward import RecordServices
    from gossipkv.table.records.router import PartitionRoute
    from gossipkv.wire.arguments import Arguments
    from gossipkv.wire.results import Completion
    from gossipkv.wire.rpc import Raw, Value

    FeedKey = tuple[str, bytes, int]  # The table's name, a token's digest or nothing, and the limit of pages.

SNAPSHOT: Final = "snapshot"
MAX_WAIT_MS: Final = 60_000
LIMIT: Final = 1000  # Changes of a page, unless the client asks for fewer or more.
MAX_LIMIT: Final = 10_000
ANSWER_S: Final = 1.0  # Time for a host's answer, which comes at once or after a few reads of the log.
RETRY_S: Final = 0.5  # Until hosts are asked again that could not answer.
LISTEN_S: Final = 1.0  # Between two questions to a host: within two seconds, one that is silent is left.
BEGIN_S: Final = 1.0  # A new feed waits so long at least for its beginning at all partitions.
WOKEN: Final = 4  # Feeds that are woken before other tasks run, each for a page.
WAKE_S: Final = 0.005  # Other tasks run for so long then.
PLACE_BYTES: Final = 512  # Approximate memory of a place.


class _Asked(NamedTuple):
    """A client's request for a page."""

    key: FeedKey
    token: bytes
    prefix: bytes | None
    start: str | None


@final
class TableChanges:
    """The methods of change feeds, for clients and for other nodes."""

    def __init__(self, services: RecordServices, max_feeds: int) -> None:
        self.services, self._max_feeds = services, max_feeds
        self.polls: dict[_Poll, None] = {}  # Polls of clients that wait.
        # By partition: feeds to tell once, each with the number of its place.
        self.followers: dict[tuple[bytes, int], dict[ChangeFeed, int]] = {}
        self.feeds: dict[FeedKey, ChangeFeed] = {}  # The feed that was answered last is the last one.
        self._woken: dict[ChangeFeed, None] = {}  # Feeds that may get more.
        self._hosts: dict[bytes, int] = {}  # The hosts that have answered, with their numbers (`ChangeFeeds.told`).
        self._listening: ParkedRequest | None = None

    def changes(self, arguments: Arguments) -> Later:
        """`changes [table, {token, prefix, start, limit, wait_ms}]`: `[[[key, value or nil, expires], ...], token]`."""
        name = arguments.text("table")
        given = arguments.options("token", "prefix", "start", "limit", "wait_ms")
        token, start = given.blob("token"), given.text("start")
        prefix = given.key("prefix", self.services.most_key)
        limit = given.number("limit")
        wait_s = (given.number("wait_ms", most=MAX_WAIT_MS) or 0) / 1000
        if start not in {None, SNAPSHOT} or (start is not None and token is not None):
            words = f"changes: start is {SNAPSHOT!r} or absent, and a token goes without it"
            raise BadRequest(words, {"option": "start"})
        if token == b"":
            raise BadRequest("changes: the token is empty; a new feed begins without the option", {"option": "token"})
        key = name, digest_of(token or b""), LIMIT if limit is None else min(limit, MAX_LIMIT)
        return Later(partial(self._begin, _Asked(key, token or b"", prefix, start), wait_s))

    def _begin(self, asked: _Asked, wait_s: float, complete: Completion[Value | Packed]) -> Callable[[], object]:
        """Begin a poll by what its token says now. Raises GossipKVError."""
        if len(self.polls) >= self._max_feeds:
            raise Overloaded("as many change feeds wait on this node as `max_feeds` allows", {"limit": self._max_feeds})
        key, token, prefix, start = asked
        if token:  # Also that of a kept feed: its key may have been removed.
            feed_token.check(token, self.services.service.token_keys)
        feed = self.feeds.get(key)
        if feed is None:
            given = FeedToken(b"", prefix or b"", 0, [FeedPlace(0, b"", cursor=None if start is None else b"")])
            feed = ChangeFeed(self, key, feed_token.decode(token) if token else given)
        if prefix not in {None, feed.prefix}:
            raise BadRequest("changes: the token was given for another prefix", {"option": "prefix"})
        return feed.poll(wait_s, token, complete)

    def keep(self, feed: ChangeFeed, key: FeedKey) -> None:
        """Keep a feed for polls with a token, instead of the oldest feed if there are too many."""
        self.let_go(feed)
        feed.key = key
        if self.feeds.setdefault(key, feed) is not feed:  # They have come to the same place.
            feed.drop()
        if len(self.feeds) > self._max_feeds:
            self.feeds.pop(next(iter(self.feeds))).drop()

    def let_go(self, feed: ChangeFeed) -> None:
        """Keep a feed no more."""
        if self.feeds.get(feed.key) is feed:
            del self.feeds[feed.key]

    def changes_here(self, arguments: Arguments) -> Later:
        """`table_changes [node, table id, prefix, limit, bytes, places]`.

        The answer is `[[[place, state] or error, ...], count, changes, number]`, the first and the third packed. A
        node without any places asks for the number alone (`ChangeFeeds.told`).
        """
        node, table, prefix = arguments.blob("node"), arguments.blob("table"), arguments.blob("prefix")
        limits = arguments.whole("limit", MAX_LIMIT), arguments.whole("bytes", PAGE_BYTES)
        places = [decode_place(row) for row in arguments.packed_rows("places", MAX_PARTITIONS)]
        arguments.end()
        feeds = self.shared(self.services.service.replicating())
        page = ChangePage(feeds, table, places, bounds_of(prefix), limits=limits, watcher=node)
        return Later(lambda complete: page.begin(partial(_hand_over, complete)))

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
                if feed.polls:
                    self._woken[feed] = None
        if is_idle:
            self._wake()

    def _wake(self) -> None:
        """Let a few feeds ask, and others after other tasks have run."""
        for feed in [*islice(self._woken, WOKEN)]:
            del self._woken[feed]
            feed.look()
        for feed in islice(self._woken, 1):
            feed.replication.waiting.begin(feed.replication.now() + WAKE_S, 0, self._wake)

    def shared(self, replication: Replication) -> ChangeFeeds:
        """Return the shared state of feeds, which tells this object of changes from now on."""
        shared = replication.feeds
        shared.tell, shared.lost = partial(self._tell, replication), self._lost
        return shared

    def _tell(self, replication: Replication, node: bytes, partitions: Sequence[tuple[bytes, int]]) -> None:
        def done(answer: Value | GossipKVError) -> None:
            if isinstance(answer, GossipKVError):
                replication.feeds.missed(node)

        if node == replication.replicas.me:
            self.changed(partitions)
        else:
            replication.ask(node, "table_changed", [msgpack.packb(partitions)], done, ANSWER_S)

    # -- hosts that no longer tell of changes ------------------------------------------------------------------------

    def listen(self, replication: Replication) -> None:
        """Hear of lost nodes, and ask hosts for their numbers after each poll's first second, and then each second."""
        self.shared(replication)
        if self._listening is None:
            self._listening = replication.waiting.begin(replication.now() + LISTEN_S, 0, self._ask_hosts)

    def _ask_hosts(self) -> None:
        self._listening = None
        replication = self.services.service.replicating()
        me = replication.replicas.me
        for node in [*self._hosts]:
            if node == me:
                self.heard(me, replication.feeds.told(me))
            else:
                params: list[Value] = [me, b"", b"", 0, 0, msgpack.packb([])]
                replication.ask(node, "table_changes", params, partial(self._answered, node), ANSWER_S)
        if self.polls:
            self.listen(replication)

    def _answered(self, node: bytes, answer: Value | GossipKVError) -> None:
        match answer:
            case [_, _, _, int(number)]:
                self.heard(node, number)
            case _:
                self._lost(node, Unavailable("the node does not answer"))

    def heard(self, node: bytes, number: int) -> None:
        """Take a host's number; ask it again if it has told in vain."""
        if self._hosts.setdefault(node, number) != number:
            self._lost(node)
            self._hosts[node] = number

    def _lost(self, node: bytes, error: GossipKVError | None = None) -> None:
        """Ask for what a node would have told, of others if it has failed."""
        self._hosts.pop(node, None)
        for feed in {feed: None for followers in self.followers.values() for feed in followers}:
            feed.lost(node, error)


def bounds_of(prefix: bytes) -> KeyBounds:
    """Return the keys with a prefix."""
    return KeyBounds(prefix, prefix_end(prefix) if prefix else None)


@dataclass(frozen=True, slots=True)
class _HostPage:
    """A page as another host has made it: the result of each place, the changes, and the host's number."""

    results: Sequence[PlaceResult]
    count: int
    body: bytes
    number: int | None


@dataclass(frozen=True, slots=True, eq=False)
class _Ask:
    """A page that a node was asked for."""

    node: bytes
    numbers: tuple[int, ...]


@final
class _Poll:
    """A client's poll that waits."""

    def __init__(self, feed: ChangeFeed, until: float, token: bytes, complete: Completion[Value | Packed]) -> None:
        self.feed, self.until, self.token, self.complete = feed, until, token, complete
        self.timer: ParkedRequest
        self.has_asked = False  # Hosts were asked since the poll began.


@final
class ChangeFeed:
    """A feed at the node that its clients ask, from a token on."""

    def __init__(self, feeds: TableChanges, key: FeedKey, given: FeedToken) -> None:
        """Go on from a token; one without a table: from now, or with a snapshot."""
        self._feeds, self._services, self.key = feeds, feeds.services, key
        self.polls: dict[_Poll, None] = {}  # They wait for the same page.
        # The page has no changes, and comes once all places have begun.
        self._begins = not key[2] or not (given.table or given.places[0].cursor is not None)
        self._table, self.prefix, self._config, self._places = given
        self._has_moved = False  # A place, or the map, has changed since the token.
        self.replication: Replication
        self._hosts: list[tuple[bytes, ...]] = []
        self._rank: dict[bytes, int] = {}  # By node: the order in which this feed asks them.
        self._outdated: dict[int, None] = {}  # Numbers of places to ask for.
        self._waiting: set[int] = set()  # Places with records that a majority lacks.
        self._asked: set[_Ask] = set()
        self._errors: dict[int, dict[bytes, GossipKVError]] = {}  # By place: the errors of its hosts.
        self._failed: set[int] = set()  # Places of which all hosts have failed.
        self._retry: ParkedRequest | None = None
        self._count, self._bodies = 0, list[bytes]()

    def poll(self, wait_s: float, token: bytes, complete: Completion[Value | Packed]) -> Callable[[], object]:
        """Begin a poll with the feed's token; return a function that ends its wait.

        `complete` is called once, unless this call raises.

        Raises:
            GossipKVError: the feed cannot begin, or too much waits.
        """
        self._follow_map()
        if not self.key[1]:
            wait_s = max(wait_s, BEGIN_S)
        elif not wait_s:
            self.outdate(range(len(self._places)))
        poll = _Poll(self, self.replication.now() + wait_s, token, complete)
        poll.timer = self.replication.waiting.begin(poll.until, PLACE_BYTES * len(self._places), self.look)
        self.polls[poll] = self._feeds.polls[poll] = None
        if self.key[1]:
            self._feeds.keep(self, self.key)
        self._feeds.listen(self.replication)
        self._forgive()
        self.look()
        return partial(self._end, [poll], Unavailable("the poll was ended"))

    def _follow_map(self) -> None:
        """Find the place in each partition. Raises NotReady, TooOld, UnknownDatabase, BadRequest."""
        name, services = self.key[0], self._services
        replication, route = services.service.replicating(name), services.routing.route(name)
        is_same = (route.table.id, route.config) == (self._table, self._config)
        if self._hosts and is_same and replication is self.replication:
            return
        bounds = bounds_of(self.prefix)
        partitions = [one for one in route.places() if route.is_hash or _meets(one, bounds)]
        if len(partitions) > MAX_PARTITIONS:
            words = f"a feed follows at most {MAX_PARTITIONS:,} partitions, and here are {len(partitions):,}"
            raise BadRequest(f"changes: {words}: give a prefix", {"limit": MAX_PARTITIONS})
        if self._table not in {b"", route.table.id}:
            raise TooOld(f"the token is of an earlier table named {name}, which was dropped; {ANEW}")
        if self._config > route.config:
            services.routing.look_at(route.table.id)
            raise NotReady("this node does not know the newest map of the table yet; try again")
        self._unfollow()
        over = {one.first for one in partitions if route.table.is_over((one.first, one.end), replication.now_ms())}
        self._places = [*places_by(partitions, self._places, over)]
        self._has_moved |= self._config != route.config
        self.replication, self._table, self._config = replication, route.table.id, route.config
        self._hosts = [one.hosts for one in partitions]
        nodes = sorted({node for hosts in self._hosts for node in hosts})
        self._rank = {node: number for number, node in enumerate(services.routing.hosts(nodes))}
        self._asked, self._errors, self._failed, self._waiting = set(), {}, set(), set()
        self._outdated = dict.fromkeys(range(len(self._places)))

    def drop(self) -> None:
        """Forget the feed, unless polls wait: another one begins with the token."""
        if not self.polls:
            self._feeds.let_go(self)
            self._unfollow()

    def _unfollow(self) -> None:
        for place in self._places:
            partition = self._table, place.partition
            followers = self._feeds.followers.get(partition, {})
            followers.pop(self, None)
            if not followers:
                self._feeds.followers.pop(partition, None)

    def outdate(self, numbers: Iterable[int]) -> None:
        """Note that hosts may have more for places, by their numbers."""
        self._outdated.update(dict.fromkeys(numbers))

    def lost(self, node: bytes, failure: GossipKVError | None) -> None:
        """Ask for the places of a node that tells of no more changes: of others, if it has failed."""
        numbers = [number for number, place in enumerate(self._places) if place.node == node]
        if failure is not None:
            for number in numbers:
                self._errors.setdefault(number, {})[node] = failure
        self.outdate(numbers)
        self.look()

    # -- hosts -------------------------------------------------------------------------------------------------------

    def _next_host(self, number: int) -> bytes | None:
        """Return the host to ask for a place; None: all have failed."""
        replicas, last, failed = self.replication.replicas, self._places[number].node, self._errors.get(number, {})
        left = [node for node in self._hosts[number] if node not in failed]
        order = {node: (not replicas.is_up(node), node != last, node != replicas.me, self._rank[node]) for node in left}
        return min(left, key=order.__getitem__, default=None)

    def _ask(self) -> None:
        """Ask a host for each outdated place, together where they have the same one, by the map of this time."""
        try:
            self._follow_map()
        except GossipKVError as error:
            self._end([*self.polls], error)
            return
        for poll in self.polls:
            poll.has_asked = True
        groups: dict[bytes, list[int]] = {}
        for number in self._refused if self._count else [*self._outdated]:
            del self._outdated[number]
            node = self._next_host(number)
            if node is None:
                self._failed.add(number)
            else:
                groups.setdefault(node, []).append(number)
        # A place that has begun gives nothing while others have not: the token would have places that begin later.
        most = 0 if self._begins else max(1, self.key[2] // max(1, len(groups)))
        limits = most, max(PAGE_BYTES // 16, PAGE_BYTES // max(1, len(groups)))
        asks = [_Ask(node, (*numbers,)) for node, numbers in groups.items()]
        self._asked.update(asks)  # All of them before the first answer.
        for ask in asks:
            places = [replace(self._places[number]) for number in ask.numbers]
            for number, place in zip(ask.numbers, places, strict=True):
                self._feeds.followers.setdefault((self._table, place.partition), {})[self] = number
            me = self.replication.replicas.me
            if ask.node == me:
                shared, bounds = self.replication.feeds, bounds_of(self.prefix)
                page = ChangePage(shared, self._table, places, bounds, limits=limits, watcher=me)
                page.begin(partial(self._answered, ask))
                continue
            params: list[Value] = [me, self._table, self.prefix, *limits]
            params.append(msgpack.packb([place.encode() for place in places]))
            self.replication.ask(ask.node, "table_changes", params, partial(self._heard, ask), ANSWER_S)
        self.look()

    def _heard(self, ask: _Ask, answer: Value | GossipKVError) -> None:
        self._answered(ask, _page_of(answer, len(ask.numbers)))

    def _answered(self, ask: _Ask, page: ChangePage | _HostPage) -> None:
        """Take a host's page; ask others for the places that the host refused."""
        if ask not in self._asked or not self.polls:  # The clients are gone, and do not get the page.
            return
        self._asked.remove(ask)
        for number, result in zip(ask.numbers, page.results, strict=True):
            if isinstance(result, GossipKVError):
                self._errors.setdefault(number, {})[ask.node] = result
                self.outdate([number])
                continue
            place, state = result
            self._errors.pop(number, None)
            if state == HAS_MORE and not self._begins:
                self.outdate([number])
            (self._waiting.add if state == WAITS else self._waiting.discard)(number)
            self._has_moved |= place != self._places[number]
            self._places[number] = place
        self._count += page.count
        self._bodies.append(page.body)
        if (told := page.number) is not None:
            self._feeds.heard(ask.node, told)
        self.look()

    # -- the end -----------------------------------------------------------------------------------------------------

    def look(self) -> None:
        """Ask for outdated places, end polls, or wait for more."""
        if not self.polls or self._asked:
            return
        now = self.replication.now()
        late = [poll for poll in self.polls if poll.until <= now]
        if any(map(self._is_too_old, self._failed)):
            self._end([*self.polls], _TOO_OLD)
        elif self._refused:
            self._ask()
        elif self._count or (self._begins and self._has_begun):
            self._answer([*self.polls])
        elif self._outdated and any(poll.until > now or not poll.has_asked for poll in self.polls):
            self._ask()
        else:
            if any(map(self._is_lost, self._failed)):
                self._end([*self.polls], self._failure())
            elif late and (self._failed or not (self.key[1] or self._has_begun)):
                self._end(late, self._failure())
            elif late:
                self._answer(late)
            if self._failed and self.polls and self._retry is None:
                self._retry = self.replication.waiting.begin(now + RETRY_S, 0, self._try_again)

    @property
    def _refused(self) -> list[int]:
        """The places to ask other hosts for: before any page, since others may have changes in each page."""
        return [number for number in self._errors if number in self._outdated]

    @property
    def _has_begun(self) -> bool:
        """True if each place has a clock of which no host's loss takes anything away."""
        return not (self._failed or self._waiting) and all(place.config for place in self._places)

    def _try_again(self) -> None:
        """Ask again for the places of which all hosts have failed."""
        self._retry = None
        self._forgive()
        self.look()

    def _forgive(self) -> None:
        """Let failed hosts be asked again."""
        self.outdate(self._failed)
        for number in self._failed:
            self._errors.pop(number, None)
        self._failed = set()

    def _is_too_old(self, number: int) -> bool:
        """Return True if most hosts lack what the feed needs, and no other one is up."""
        errors, is_up = self._errors.get(number, {}), self.replication.replicas.is_up
        lacking = {node for node, error in errors.items() if isinstance(error, TooOld)}
        return 2 * len(lacking) > len(errors) and not any(map(is_up, errors.keys() - lacking))

    def _is_lost(self, number: int) -> bool:
        """Return True if no majority of a partition's hosts is up, so none may give anything soon."""
        hosts = self._hosts[number]
        return 2 * sum(map(self.replication.replicas.is_up, hosts)) <= len(hosts)

    def _take(self, polls: Iterable[_Poll]) -> None:
        """Wait for polls no more."""
        for poll in polls:
            self.replication.waiting.end(poll.timer)
            self.polls.pop(poll, None)
            self._feeds.polls.pop(poll, None)

    def _end(self, polls: Sequence[_Poll], error: GossipKVError) -> None:
        """Answer polls with an error."""
        self._take(polls)
        self.drop()
        for poll in polls:
            poll.complete(error)

    def _answer(self, polls: Sequence[_Poll]) -> None:
        """Answer polls with what has come, and go on from there."""
        self._take(polls)
        name, digest, limit = self.key
        token = polls[0].token  # All polls of a feed have the same token.
        if self._has_moved:
            given = FeedToken(self._table, self.prefix, self._config, self._places)
            token = feed_token.encode(given, self._services.service.token_keys)
            digest = digest_of(token)
        head = b"\x92" + msgpack.Packer().pack_array_header(self._count)
        page = Packed(b"".join([head, *self._bodies, msgpack.packb(token)]))
        if self._begins:
            self.outdate(range(len(self._places)))
        self._count, self._bodies, self._has_moved, self._begins = 0, [], False, False
        self._feeds.keep(self, (name, digest, limit or LIMIT))
        for poll in self.polls:
            poll.token = token
        for poll in polls:
            poll.complete(page)

    def _failure(self) -> GossipKVError:
        """Return the error of a poll without changes, of which some partitions have no host that can answer."""
        if not self._failed:
            return NotReady("the feed cannot begin yet: a partition has records that a majority of its hosts lacks")
        name_of, errors = self._services.name_of, self._errors.get(min(self._failed), {})
        reasons = "; ".join(f"{name_of(node)}: {error.message}" for node, error in errors.items())
        words = f"{len(self._failed)} partitions of {self.key[0]} have no host that can answer now"
        return Unavailable(f"{words}: {reasons or 'no host is known'}", {"asked": reasons})


_TOO_OLD: Final = TooOld(f"the log of every replica begins after this token, or its range was re-created; {ANEW}")


def _meets(place: PartitionRoute, bounds: KeyBounds) -> bool:
    """Return True if a range has keys within bounds."""
    return (bounds.end is None or place.first < bounds.end) and (place.end is None or bounds.first < place.end)


def _hand_over(complete: Completion[Value], page: ChangePage) -> None:
    """Complete a node's request with a page."""
    rows = [to_wire(one) if isinstance(one, GossipKVError) else (one[0].encode(), one[1]) for one in page.results]
    complete([msgpack.packb(rows), page.count, page.body, page.number])


def _page_of(answer: Value | GossipKVError, places: int) -> _HostPage:
    """Read a host's answer."""
    error = answer if isinstance(answer, GossipKVError) else Unavailable("a node answered with no page")
    match answer:
        case [bytes(packed), int(count), bytes(body), int(number)]:
            with suppress(ValueError, GossipKVError):
                results = [_result_of(row) for row in msgpack.unpackb(packed)]
                if len(results) == places:
                    return _HostPage(results, count, body, number)
    return _HostPage([error] * places, 0, b"", None)


def _result_of(row: Value) -> PlaceResult:
    """Read the result of a place in a host's answer. Raises GossipKVError."""
    match row:
        case [str(code), str(message), dict(details)]:
            return from_wire(code, message, details)
        case [place, int(state)]:
            return decode_place(cast("Raw", place)), state
    raise ProtocolError("the answer to table_changes is a place and its state, or an error")
