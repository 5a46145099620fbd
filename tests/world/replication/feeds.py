"""Change feeds that ask another node now and then, on nodes that crash; `fed` judges them.

Places, pages and tokens are production's; finding a host is not: a feed asks any host of a partition, and goes on with
the others' places as they are. Now and then an answer is lost.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TYPE_CHECKING, final

import msgpack
import trio

from gossipkv.errors import GossipKVError, TooOld
from gossipkv.replication.changes.pages import ChangePage
from gossipkv.replication.changes.places import FeedPlace
from gossipkv.replication.replica import clock, record
from gossipkv.replication.replica.keys import WHOLE
from gossipkv.table.records.feed_token import FeedToken, decode, encode, places_by
from gossipkv.table.records.router import TableRoute
from tests.world.metadata.chance import happens
from tests.world.replication.copies import order_of
from tests.world.replication.fed import faults_of
from tests.world.replication.register import CATALOGUE

if TYPE_CHECKING:
    from random import Random

    from gossipkv.replication.changes.pages import PlaceResult
    from tests.world.replication.copies import Model
    from tests.world.replication.node import Life, Node
    from tests.world.replication.world import Cluster

    Key = tuple[int, bytes]  # The number of a shard, and the key in it.

LIMIT_S = 20.0  # In the end, until a feed has all.
PAUSE_S = 0.05


@dataclass(eq=False)
class Feed:
    """A feed from one token on."""

    table: bytes
    places: list[FeedPlace]
    is_snapshot: bool
    limits: tuple[int, ...] = (1, 3, 100)
    begun: int | None = None  # So many writes were issued when the feed had begun everywhere.
    shown: defaultdict[Key, list[bytes | None]] = field(default_factory=lambda: defaultdict(list))
    lacks: defaultdict[int, set[bytes]] = field(default_factory=lambda: defaultdict(set))  # Hosts with too short logs.


def may_lack(place: FeedPlace, model: Model) -> bool:
    """Return True if a feed at a place may lack records of a replica.

    The clock of the replica omits the assignments that have ended by its config. A place of an earlier config may lack
    some of their records, though it covers that clock.
    """
    if place.cursor is not None or place.config < model.config:
        return True
    return any(clock.counter(place.counters, origin) < count for origin, count in model.clock.items())


@final
class Following:
    """The feeds of a run."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._feeds: list[Feed] = []

    async def follow(self, random: Random) -> None:
        """Run a feed that begins now, and anew after it is told to be too old."""
        feed = self._begin(is_snapshot=happens(random, 0.5))
        node = random.choice(self._cluster.nodes)
        while True:
            await trio.sleep(random.expovariate(1 / PAUSE_S))
            if happens(random, 0.3):
                node = random.choice(self._cluster.nodes)
            is_there = feed.table == self._cluster.table
            if not is_there or await self._poll(feed, node, random) is None:
                self._feeds.remove(feed)
                feed = self._begin(is_snapshot=True)

    def _begin(self, *, is_snapshot: bool) -> Feed:
        feed = Feed(self._cluster.table, [FeedPlace(0, b"", cursor=b"" if is_snapshot else None)], is_snapshot)
        self._feeds.append(feed)
        self._cluster.witness.counts["feeds"] += 1
        return feed

    def _places(self, feed: Feed, node: Node) -> tuple[TableRoute, list[FeedPlace]] | None:
        """Return the places by a node's map; None: the map is older than the feed.  Raises TooOld."""
        tree = self._cluster.register.tree(feed.table, node.known.get(feed.table))
        route = TableRoute(tree)
        if max(place.config for place in feed.places) > route.config:
            return None
        return route, [*places_by(route.places(), feed.places)]

    async def _poll(self, feed: Feed, node: Node, random: Random, shard: int | None = None) -> int | None:
        """Poll a node; return the number of changes, or None if the feed must begin anew."""
        cluster, life = self._cluster, node.life
        try:
            found = self._places(feed, node)
        except TooOld:
            cluster.witness.counts["feeds: a range is new"] += 1
            return None
        if found is None or life is None or life.is_over or node.uuid not in cluster.network.lives:
            return 0
        route, known = found
        hosts = {one.partition: one.hosts for one in route.places()}
        mine = [
            number
            for number, place in enumerate(known)
            if node.uuid in {*hosts[place.partition]} - feed.lacks.get(place.partition, set())
        ]
        if not cluster.is_range and mine:  # Shards have keys of the same names, so each is polled alone.
            mine = (
                [one for one in mine if known[one].partition == shard] if shard is not None else [random.choice(mine)]
            )
        places = [replace(known[number]) for number in mine]
        page = await self._page(life, feed, places, random)
        if page is None or not places or happens(random, 0.05):
            return 0  # The answer is lost.
        for at, number in enumerate(mine):
            partition = places[at].partition
            if not self._takes(feed, page.results[at], partition, node, {*hosts[partition]} - cluster.lost):
                return None
            if isinstance(page.results[at], tuple):
                known[number] = places[at]
        feed.places = decode(encode(FeedToken(feed.table, b"", route.config, known), CATALOGUE), CATALOGUE).places
        self._shows(feed, page, 0 if cluster.is_range else places[0].partition)
        return page.count

    @staticmethod
    async def _page(life: Life, feed: Feed, places: list[FeedPlace], random: Random) -> ChangePage | None:
        """Poll a life of a node; return None if it ends before its answer."""
        done: list[ChangePage] = []
        page = ChangePage(
            life.replication.feeds, feed.table, places, WHOLE, limits=(random.choice(feed.limits), 1 << 20), watcher=b""
        )  # fmt: skip
        page.begin(done.append)
        while not done and not life.is_over:
            await trio.sleep(0.005)
        return page if done else None

    def _takes(self, feed: Feed, result: PlaceResult, partition: int, node: Node, hosts: set[bytes]) -> bool:
        """Return False if no host can continue a place."""
        error = result if isinstance(result, GossipKVError) else None
        self._cluster.witness.counts[f"feeds: {'done' if error is None else error.code}"] += 1
        if error is None:
            feed.lacks.pop(partition, None)
        elif isinstance(error, TooOld):
            feed.lacks[partition].add(node.uuid)
        return not feed.lacks.get(partition, set()) >= hosts

    def _shows(self, feed: Feed, page: ChangePage, shard: int) -> None:
        unpacker = msgpack.Unpacker()
        unpacker.feed(page.body)
        for key, value, _ in unpacker:
            feed.shown[shard, key].append(value)
        self._cluster.witness.counts["changes fed"] += page.count
        if feed.begun is None and all(place.config for place in feed.places):
            feed.begun = len(self._cluster.witness.issued)

    async def end(self) -> None:
        """Let all feeds come to the end, with all replicas equal, and judge them."""
        for feed in self._feeds if not self._cluster.is_short else ():
            feed.limits = (1000,)
            if feed.table == self._cluster.table:
                if await self._ends(feed):
                    self._judge(feed)
                else:
                    self._cluster.witness.counts["feeds: too old in the end"] += 1

    async def _ends(self, feed: Feed) -> bool:
        """Poll until all places are at the end; return False if the feed would have to begin anew."""
        cluster = self._cluster
        with trio.move_on_after(LIMIT_S):
            while True:
                counts = 0
                for node in cluster.nodes:
                    for partition in [None] if cluster.is_range else [*cluster.partitions]:
                        found = await self._poll(feed, node, cluster.streams["drained"], shard=partition)
                        if found is None:
                            return False
                        counts += found
                if not counts and self._is_at_end(feed):
                    return True
        cluster.witness.found("feeds", f"a feed does not come to the end: {feed.places}")
        return False

    def _is_at_end(self, feed: Feed) -> bool:
        cluster, places = self._cluster, {place.partition: place for place in feed.places}
        for partition, placed in cluster.map.items():
            place = places.get(partition)
            models = [cluster.witness.models[host.assignment] for host in placed.hosts if host.node not in cluster.lost]
            if place is None or any(may_lack(place, model) for model in models):
                return False
        return True

    def _judge(self, feed: Feed) -> None:
        cluster, witness = self._cluster, self._cluster.witness
        puts, deletes = {}, defaultdict(list)
        for key, data in witness.issued.values():
            value = record.value(data)
            if value is None or record.expires_ms(data):  # An expired record that has left the disk is shown as None.
                deletes[key].append(order_of(data))
            if value is not None:
                puts[key, value] = order_of(data)
        begun = len(witness.issued) if feed.begun is None else feed.begun
        later = {order_of(data) for _, data in islice(witness.issued.values(), begun, None)}
        due = {
            (0 if cluster.is_range else one.partition, one.key) for one in witness.acknowledged if one.order in later
        }
        witness.counts["feeds judged"] += 1
        for (shard, key), newest in self._last().items():
            shown = feed.shown[shard, key]
            last = None if newest is None else record.value(newest)
            if newest is not None and record.expires_ms(newest) and (not shown or shown[-1] is None):
                continue
            of_key = {value: order for (one, value), order in puts.items() if one == key}
            is_due = (shard, key) in due or (feed.is_snapshot and last is not None)
            for fault in faults_of(shown, of_key, sorted(deletes[key]), last, is_due=is_due):
                witness.found("feeds", f"{key!r} of {shard}: {fault}; shown were {shown}")

    def _last(self) -> dict[Key, bytes | None]:
        """Return the last record of each key."""
        cluster, found = self._cluster, {}
        for key, _ in cluster.witness.issued.values():
            for partition, placed in cluster.map.items():
                if cluster.is_range and not cluster.witness.moves.lineage.has(partition, key):
                    continue
                model = next(
                    cluster.witness.models[host.assignment] for host in placed.hosts if host.node not in cluster.lost
                )
                found[0 if cluster.is_range else partition, key] = model.records.get(key)
        return found
