"""Change feeds of clients at any node, also at those that hold none of the table, while nodes crash; `fed` judges.

Everything behind a client's request is production's. Clients do what makes a feed hard: they send a request twice at
once, and one or two of them go on; they leave before the answer comes; they lose an answer; they give up a snapshot.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from types import SimpleNamespace
from typing import TYPE_CHECKING, Final, cast, final

import msgpack
import trio

from gossipkv.errors import GossipKVError, TooOld, UnknownDatabase
from gossipkv.replication.replica import clock, record
from gossipkv.replication.replica.acks import MAJORITY
from gossipkv.replication.replica.record import RecordWrite
from gossipkv.table.records.changes import TableChanges
from gossipkv.table.records.feed_token import decode
from gossipkv.table.records.router import Router
from gossipkv.wire.arguments import Arguments
from gossipkv.wire.results import Packed
from tests.world.metadata.chance import happens
from tests.world.replication.copies import order_of
from tests.world.replication.fed import faults_of
from tests.world.replication.register import CATALOGUE, TOKEN_KEYS, Catalogue

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from random import Random

    from gossipkv.register.metadata.nodes import NodeList
    from gossipkv.replication.changes.places import FeedPlace
    from gossipkv.table.participant.participant import MetadataParticipant
    from gossipkv.table.records.forward import RecordServices
    from gossipkv.wire.rpc import Value
    from tests.world.replication.copies import Model
    from tests.world.replication.node import Life, Node
    from tests.world.replication.world import Cluster

LIMIT_S: Final = 20.0  # In the end, until a feed has all.
TOLD_S: Final = 1.0  # In the end, until feeds that wait have a change.
PAUSE_S: Final = 0.05
MAX_SAVED: Final = 12  # Feeds that clients save, to go on with them in the end.
MAX_TWINS: Final = 4  # Feeds that begin at the token of another one.
WAYS: Final = ("poll", "poll", "poll", "twice", "together", "leaves", "loses")


def feeds_of(life: Life) -> TableChanges:
    """Return the methods of feeds of a node's life."""
    replication, catalogue = life.replication, Catalogue(life.maps, cast("NodeList", None))

    def table(name: str) -> object:
        raise UnknownDatabase(name)

    catalogue.table = table  # type: ignore[attr-defined]  # The router asks for it if there is none.
    service = SimpleNamespace(
        metadata=life.maps, catalogue=catalogue, register=CATALOGUE, token_keys=TOKEN_KEYS, check_knows=lambda: None,
        taking_part=lambda _=None: (life.maps, catalogue), replicating=lambda _=None: replication,
    )  # fmt: skip
    seen = SimpleNamespace(members=list, name_of=bytes.hex)
    participant = SimpleNamespace(service=service, directory=seen, watcher=life, poll=None)
    services = SimpleNamespace(
        service=service, routing=Router(cast("MetadataParticipant", participant), life.random), name_of=bytes.hex,
        most_key=1000,
    )  # fmt: skip
    return TableChanges(cast("RecordServices", services), 1000)


@dataclass(eq=False)
class Feed:
    """A client's feed, by its token alone."""

    table: bytes
    is_snapshot: bool
    token: bytes = b""
    begun: int | None = None  # So many writes were issued when the feed had begun.
    shown: defaultdict[bytes, list[bytes | None]] = field(default_factory=lambda: defaultdict(list))

    def twin(self) -> Feed:
        """Return another client's feed with the same past."""
        shown = defaultdict(list, {key: [*values] for key, values in self.shown.items()})
        return Feed(self.table, self.is_snapshot, self.token, self.begun, shown)


def may_lack(place: FeedPlace, model: Model) -> bool:
    """Return True if a feed at a place may lack records of a replica.

    The clock of the replica omits the assignments that have ended by its config. A place of an earlier config may lack
    some of their records, though it covers that clock.
    """
    if place.cursor is not None or place.config < model.config:
        return True
    return any(clock.counter(place.counters, origin) < count for origin, count in model.clock.items())


@final
class Request:
    """A poll at a node; its end function is called if its client leaves."""

    def __init__(self, feed: Feed, life: Life, wait_s: float, limit: int) -> None:
        self.answer: Packed | GossipKVError | None = None
        self._life, self._come = life, trio.Event()
        options: dict[str, Value] = {"wait_ms": int(wait_s * 1000), "limit": limit}
        if feed.token:
            options["token"] = feed.token
        elif feed.is_snapshot:
            options["start"] = "snapshot"
        self._later = life.feeding.changes(Arguments(b"changes", msgpack.packb(["t", options])))
        self._end: Callable[[], object] | None = None

    def begin(self) -> None:
        try:
            self._end = self._later.begin(self._take)  # type: ignore[assignment]  # It is a function or None.
        except GossipKVError as error:
            self._take(error)

    def _take(self, answer: Value | Packed | GossipKVError) -> None:
        assert self.answer is None, "a poll is answered once"
        assert isinstance(answer, Packed | GossipKVError), answer
        self.answer = answer
        self._come.set()

    def leave(self) -> None:
        """End the poll, as the node does when its client's connection has ended."""
        if self._end is not None and self.answer is None:
            self._end()

    async def answered(self) -> Packed | GossipKVError | None:
        """Return the answer; None if the life ends first."""
        while self.answer is None and not self._life.is_over:
            with trio.move_on_after(0.05):
                await self._come.wait()
        return self.answer


@final
class Following:
    """The feeds of a run."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._feeds: list[Feed] = []
        self._saved: list[Feed] = []
        self._twins = 0

    async def follow(self, random: Random) -> None:
        """Run a feed that begins now, and anew after it is told to be too old."""
        feed = self._begin(is_snapshot=happens(random, 0.5))
        node = random.choice(self._cluster.nodes)
        while True:
            await trio.sleep(random.expovariate(1 / PAUSE_S))
            self._save(feed)
            if happens(random, 0.3):
                node = random.choice(self._cluster.nodes)
            if feed.table != self._cluster.table or not await self._go_on(feed, node, random):
                self._feeds.remove(feed)
                feed = self._begin(is_snapshot=True)

    def _save(self, feed: Feed) -> None:
        """Let the client save its feed now and then: in the end it goes on from there as well."""
        if feed.token and len(self._saved) < MAX_SAVED and happens(self._cluster.streams["saved"], 0.1):
            self._saved.append(feed.twin())

    def _begin(self, *, is_snapshot: bool) -> Feed:
        feed = Feed(self._cluster.table, is_snapshot)
        self._feeds.append(feed)
        self._cluster.witness.counts["feeds"] += 1
        return feed

    def _life(self, node: Node) -> Life | None:
        """Return the life of a node that answers clients."""
        life = node.life
        is_up = life is not None and not life.is_over and node.uuid in self._cluster.network.lives
        return life if is_up else None

    async def _go_on(self, feed: Feed, node: Node, random: Random) -> bool:
        """Poll a node in one of several ways; return False if the feed must begin anew."""
        life, way = self._life(node), random.choice(WAYS)
        wait_s, limit = random.choice((0.0, 0.1, 1.0)), random.choice((1, 3, 100))
        if life is None:
            return True
        self._cluster.witness.counts[f"feeds: {way}"] += 1
        if not feed.token and feed.is_snapshot and happens(random, 0.5):
            limit = 0
        make = partial(Request, feed, life, wait_s, limit)
        requests = [make(), make()] if way in {"twice", "together"} else [make()]
        for request in requests:  # Both are read before the first one runs.
            request.begin()
        if way == "leaves" or (way == "twice" and happens(random, 0.5)):
            await trio.sleep(random.uniform(0, 0.006))
            requests.pop(0).leave()
        twin = feed.twin() if way == "together" and feed.token and self._twins < MAX_TWINS else None
        if twin is not None and self._take(twin, await requests.pop().answered()):
            self._feeds.append(twin)
            self._twins += 1
        answers = [await request.answered() for request in requests]
        return way in {"leaves", "loses"} or not answers or self._take(feed, random.choice(answers))

    def _take(self, feed: Feed, answer: Packed | GossipKVError | None) -> bool:
        """Take an answer; return False if the feed must begin anew."""
        if not isinstance(answer, Packed):
            code = "lost" if answer is None else answer.code
            self._cluster.witness.counts[f"feeds: {code}"] += 1
            return not isinstance(answer, TooOld)
        changes, feed.token = msgpack.unpackb(answer.data)
        for key, value, _ in changes:
            feed.shown[key].append(value)
        self._cluster.witness.counts["changes fed"] += len(changes)
        if feed.begun is None:
            feed.begun = len(self._cluster.witness.issued)
        return True

    async def end(self) -> None:
        """Let all feeds come to the end, with all replicas equal, and judge them."""
        if self._cluster.is_short:
            return
        there = [feed for feed in self._feeds if await self._is_judged(feed)]
        random = self._cluster.streams["told"]
        for node in self._cluster.nodes if len(there) > 1 else ():
            if (life := self._life(node)) is not None:
                await self._are_told(there, life, random)
        for feed in self._saved:
            await self._is_judged(feed)

    async def _is_judged(self, feed: Feed) -> bool:
        """Let a feed come to the end and judge it; return False if it would have to begin anew."""
        if feed.table != self._cluster.table:
            return False
        if not await self._ends(feed):
            self._cluster.witness.counts["feeds: too old in the end"] += 1
            return False
        self._judge(feed)
        return True

    async def _are_told(self, feeds: Sequence[Feed], life: Life, random: Random) -> None:
        """Check that feeds which wait at a node get a change soon, though another one there reads it first."""
        cluster, last = self._cluster, feeds[-1]
        requests = [Request(feed, life, 60.0, number) for number, feed in enumerate(feeds[:-1], 100)]
        for request in requests:
            request.begin()
        await trio.sleep(random.uniform(0.5, 1.5))
        partition, placed = random.choice([one for one in cluster.map.items() if cluster.keys_of(one[0])])
        uuid = random.choice(placed.hosts).node
        host = next(node for node in cluster.nodes if node.uuid == uuid)
        key = cluster.keys_of(partition)[0] + b"/told"
        if cluster.have(host, partition, [RecordWrite(key, random.randbytes(8))], MAJORITY, 2.0) is not None:
            for _ in range(12):
                await trio.sleep(random.uniform(0, 0.01))
                request = Request(last, life, 0.0, 1000)
                request.begin()
                self._take(last, await request.answered())
            await trio.sleep(TOLD_S)
            late = [request for request in requests if request.answer is None]
            if late:
                cluster.witness.found("feeds", f"{len(late)} of {len(requests)} that wait are not told of {key!r}")
        for feed, request in zip(feeds, requests, strict=False):
            request.leave()
            if isinstance(request.answer, Packed):
                self._take(feed, request.answer)

    async def _ends(self, feed: Feed) -> bool:
        """Poll until all places are at the end; return False if the feed would have to begin anew."""
        cluster = self._cluster
        with trio.move_on_after(LIMIT_S):
            while True:
                before = sum(map(len, feed.shown.values()))
                for life in filter(None, map(self._life, cluster.nodes)):
                    request = Request(feed, life, 0.0, 1000)
                    request.begin()
                    if not self._take(feed, await request.answered()):
                        return False
                if before == sum(map(len, feed.shown.values())) and self._is_at_end(feed):
                    return True
        cluster.witness.found("feeds", f"a feed does not come to the end: {self._places(feed)}")
        return False

    @staticmethod
    def _places(feed: Feed) -> Sequence[FeedPlace]:
        return decode(feed.token).places if feed.token else []

    def _is_at_end(self, feed: Feed) -> bool:
        cluster, places = self._cluster, {place.partition: place for place in self._places(feed)}
        for partition, placed in cluster.map.items():
            place = places.get(partition)
            models = [cluster.witness.models[host.assignment] for host in placed.hosts if host.node not in cluster.lost]
            if place is None or any(may_lack(place, model) for model in models):
                return False
        return True

    def _judge(self, feed: Feed) -> None:
        witness = self._cluster.witness
        puts, deletes = {}, defaultdict(list)
        for key, data in witness.issued.values():
            value = record.value(data)
            if value is None or record.expires_ms(data):  # An expired record that has left the disk is shown as None.
                deletes[key].append(order_of(data))
            if value is not None:
                puts[key, value] = order_of(data)
        begun = len(witness.issued) if feed.begun is None else feed.begun
        later = {order_of(data) for _, data in islice(witness.issued.values(), begun, None)}
        due = {one.key for one in witness.acknowledged if one.order in later}
        witness.counts["feeds judged"] += 1
        for key, newest in self._last().items():
            shown = feed.shown[key]
            last = None if newest is None else record.value(newest)
            if newest is not None and record.expires_ms(newest) and (not shown or shown[-1] is None):
                continue
            of_key = {value: order for (one, value), order in puts.items() if one == key}
            # A snapshot may begin late at a partition, without the keys that are gone by then.
            is_due = last is not None if feed.is_snapshot else key in due
            for fault in faults_of(shown, of_key, sorted(deletes[key]), last, is_due=is_due):
                witness.found("feeds", f"{key!r}: {fault}; shown were {shown}")

    def _last(self) -> dict[bytes, bytes | None]:
        """Return the last record of each key."""
        cluster, found = self._cluster, {}
        for key in {key: None for key, _ in cluster.witness.issued.values()}:
            for partition, placed in cluster.map.items():
                if cluster.has(partition, key):
                    hosts = (host for host in placed.hosts if host.node not in cluster.lost)
                    found[key] = cluster.witness.models[next(hosts).assignment].records.get(key)
        return found
