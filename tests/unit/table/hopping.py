"""Sessions that change nodes with each request, on in-memory nodes with random replication."""

from __future__ import annotations

import random
from collections import Counter

import msgpack

from gossipkv.errors import NotReady, NotServed
from gossipkv.register.metadata.partitions import RANGE
from gossipkv.replication._replication import LogEntry
from gossipkv.replication.maintenance.tombstone_gc import TombstoneCollector
from gossipkv.replication.stream.receiver import ReceivedEntries
from tests.unit.table.record_nodes import Records
from tests.world.replication.sessions import READS, WRITES, Did, Guarantees

NODES = 4
TABLES = ("hash", "range")
MAX_LOOKS = 4  # Enough to look at all replicas of a node.
KEYS = [b"%d" % number for number in range(6)]


class Hopping:
    """Four nodes, two tables of three partitions with three replicas each, and sessions on all of them."""

    def __init__(self, seed, sessions=3):
        self.chance = random.Random(seed)
        self.records = Records(NODES)
        nodes = self.records.nodes
        self.records.make("hash", firsts=3, holders=lambda number: [nodes[(number + at) % NODES] for at in range(3)])
        self.records.make(
            "range", RANGE, firsts=[b"", b"2", b"4"],
            holders=lambda number: [nodes[(number + at + 1) % NODES] for at in range(3)],
        )  # fmt: skip
        self.tokens = dict.fromkeys(range(sessions), b"")
        self.history = []
        self.ends = Counter()
        self._read_to = Counter()  # By two nodes: the position up to which the first one's log was read for the second,
        self._left = {(one, other): [] for one in nodes for other in nodes}  # and the entries that did not fit yet.
        self._value = 0
        self.collector = {node: TombstoneCollector(node.replicas, node) for node in nodes}

    def feed(self, one, other):
        """Merge the own entries of `one` at `other`, as far as they fit."""
        tail, left = one.replicas.tail, self._left[one, other]
        while batch := tail.next(max(self._read_to[one, other], 1)):
            self._read_to[one, other] = batch[0].position
            left += [one for one in batch if one.is_own and one.replica.partition in other.replicas.by_partition]
        still = []
        for entry in left:
            copy = other.replicas.by_partition[entry.replica.identity[:2]]
            taking = ReceivedEntries(other.get)
            if taking.take(LogEntry(copy, entry.records, entry.before, entry.after, is_own=False)):
                other.replicas._append(*taking.finish())
                self.records.run()
            else:
                still.append(entry)
        self._left[one, other] = still

    @staticmethod
    def tell(one, other):
        """Report the clocks of one node's replicas to another node."""
        for identity, copy in one.replicas.by_partition.items():
            if (theirs := other.replicas.by_partition.get(identity)) is not None and one is not other:
                other.hears(theirs, copy, copy.synced)

    def collect(self, one, _):
        """Collect the tombstones that all replicas have."""
        for _ in range(MAX_LOOKS):
            self.collector[one].look()
            self.records.run()

    def settle(self, *_):
        """Replicate and collect everything in the middle of a run."""
        self.heal()
        for node in self.records.nodes:
            self.collect(node, None)

    @property
    def collected(self):
        return sum(one.collected for one in self.collector.values())

    def step(self):
        chance = self.chance
        one, other = chance.sample(self.records.nodes, 2)
        what = chance.choices(["feed", "tell", "do", "collect", "settle"], [20, 20, 40, 10, 1])[0]
        if what == "do":
            self._do(one, chance.choice([*self.tokens]))
        else:
            getattr(self, what)(one, other)

    def _do(self, node, session):
        chance = self.chance
        table, key = chance.choice(TABLES), chance.choice(KEYS)
        method = chance.choice(["put", "put", "delete", "get", "get", "get", "get_many", "scan", "put_many"])
        self._value += 1
        value = b"%d" % self._value
        options = {"token": self.tokens[session], **chance.choice([{}, {"local": True}])}
        try:
            if method in {"put", "delete", "put_many"}:
                given = {"put": [key, value], "delete": [key], "put_many": [[[key, value]]]}[method]
                token = node.call(method, table, *given, {"token": options["token"], "level": "one"})
                self.history.append([Did(session, WRITES, (table, key), None if method == "delete" else value)])
            else:
                pages, token = self._read(node, method, table, key, options)
                self.history += ([Did(session, READS, (table, one), page[one]) for one in page] for page in pages)
            self.tokens[session] = token
            self.ends[method] += 1
        except (NotReady, NotServed) as error:
            self.ends[error.code] += 1

    def _read(self, node, method, table, key, options):
        if method == "get":
            value, token = node.call("get", table, key, options)
            return [{key: value}], token
        if method == "get_many":
            values, token = node.call("get_many", table, KEYS, options)
            return [dict(zip(KEYS, values, strict=True))], token
        pages, cursor, begin = [], None, b""
        while True:
            given = options if cursor is None else {**options, "cursor": cursor}
            rows, cursor, token = node.call("scan", table, {**given, "limit": 3})
            end = b"\xff" if cursor is None else msgpack.unpackb(cursor)[0]
            pages.append({key: dict(rows).get(key) for key in KEYS if begin <= key < end})
            begin = end
            if cursor is None:
                return pages, token

    def heal(self):
        for _ in range(20):
            for one in self.records.nodes:
                for other in self.records.nodes:
                    self.feed(one, other)
        for one in self.records.nodes:
            for other in self.records.nodes:
                self.tell(one, other)


def hop(seed, steps):
    """Run sessions, then replicate everything; return the world and the violations."""
    world = Hopping(seed)
    for _ in range(steps):
        world.step()
    return world, Guarantees().judge(world.history)
