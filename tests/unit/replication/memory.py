"""In-memory nodes that hold replicas of one partition, with a log and packed messages.

Time moves only by `Cluster.pass_s`, and a message takes one step. Appended batches are synced at once, or by
`Node.sync`.
"""

from __future__ import annotations

import random

import msgpack

from gossipkv.errors import GossipKVError, Unknown
from gossipkv.replication._replication import LogPage
from gossipkv.replication.maintenance.digests import DigestExchange
from gossipkv.replication.maintenance.tombstone_gc import TombstoneCollector
from gossipkv.replication.ports import ReplicationLimits
from gossipkv.replication.replica import clock, record
from gossipkv.replication.replica.keys import LOADING, RECORD, TOMBSTONE, ReplicaIdentity
from gossipkv.replication.replica.record import RecordWrite
from gossipkv.replication.replica.replica import AssignedReplica
from gossipkv.replication.replica_set import ReplicaSet
from gossipkv.replication.snapshot.transfer import LoadPage, serve
from gossipkv.storage.engine._engine import operations
from gossipkv.storage.engine.shell import DELETE, PUT

TABLE = b"tableid_tableid_"
STEP_S = 0.01


def order_of(data):
    """Return the bytes that decide which of two records wins."""
    return data[:24]


class Node:
    """A node, as `Outside`."""

    def __init__(self, cluster, number):
        self.cluster = cluster
        self.number = number
        self.uuid = bytes([number]) * 16
        self.spaces, self.log, self.floor, self.position, self.reserved = {}, [], 0, 0, 0
        self.syncs = True
        self.keeps_spaces = False  # If set, batches that drop a space wait for `sync`.
        self.skew_s = 0
        self.refuses = None  # The error that the store raises.
        self.told = []  # Reports of loads.
        self.is_up = True
        self.begin()

    def begin(self):
        self.life, self.is_woken = object(), True
        self.unsynced, self.position = [], self.synced()
        limits = ReplicationLimits(relay_s=0.2, stall_s=2.0)
        self.replicas = ReplicaSet(self.uuid, self, random.Random(self.number), self.position, limits)
        self.replicas.tail._most_bytes = 0  # Feeds read the log, which a test may trim.
        self.collector = TombstoneCollector(self.replicas, self)
        self.digests = DigestExchange(self.replicas, self)
        for space, records in self.spaces.items():
            kept = [(key, value) for key, value in records.items() if key[:1] == b"\0"]
            for copy in self.replicas.spaces.found(space, kept, self.position):
                self.replicas.found(copy)
            if LOADING in records:
                self.replicas.loader.litter.append(space)

    @property
    def copy(self):
        (copy,) = self.replicas.by_partition.values()
        return copy

    @property
    def live(self):
        """Return the values that clients can read, by key."""
        found = {key[1:]: record.value(data) for key, data in self.spaces[self.copy.space].items() if key[:1] == RECORD}
        return {key: value for key, value in found.items() if value is not None}

    @property
    def ahead(self):
        """Return the keys whose records the replica's clock does not cover."""
        records = [(key, data) for key, data in self.spaces[self.copy.space].items() if key[:1] == RECORD]
        return [key for key, data in records if not clock.covers(self.copy.synced, record.dot(data))]

    @property
    def tombstones(self):
        return {key[9:] for key in self.spaces[self.copy.space] if key[:1] == TOMBSTONE}

    def write(self, **values):
        for key, value in values.items():
            self.replicas.originate({self.copy: [RecordWrite(key.encode(), value)]})
        self.cluster.run()

    # The methods of `Outside`.

    def append(self, batch, on_synced):
        if self.refuses is not None:
            raise self.refuses
        self.position += 1
        for _, last, _ in self.unsynced[-1:]:
            last.is_open = False
        batch.is_open = True
        self.unsynced.append((self.position, batch, on_synced))
        self.syncs &= not (self.keeps_spaces and batch.dropped)
        if self.syncs:
            self.cluster.soon(self.sync)
        return self.position

    def extend(self, batch, more):
        assert batch is self.unsynced[-1][1], "an open batch is the last"
        if self.refuses is None:
            batch.extend(more)
        return self.refuses is None

    def sync(self):
        while self.unsynced:
            position, batch, on_synced = self.unsynced.pop(0)
            changes, batch.is_open = operations(batch.payload), False
            for kind, space, key, value in changes:
                if kind == PUT and key[:1] == RECORD:
                    self.cluster.durable[key[1:]] = max(value, self.cluster.durable.get(key[1:], b""), key=order_of)
                if kind == PUT:
                    self.spaces.setdefault(space, {})[key] = value
                elif kind == DELETE:
                    self.spaces[space].pop(key, None)
            for space in batch.dropped:
                self.spaces.pop(space)
            self.log.append((position, changes))
            on_synced()

    def synced(self):
        return self.log[-1][0] if self.log else self.floor

    def get(self, space, key):
        return self.spaces[space].get(key)

    def scan(self, space, start, end, *, reverse, limit):
        """Return a page of two records, so that scans have many pages."""
        assert not reverse
        inside = sorted(key for key in self.spaces[space] if start <= key < end)
        keys, rest = inside[: min(limit, 2)], inside[min(limit, 2) :]
        return [(key, self.spaces[space][key]) for key in keys], rest[0] if rest else None

    def read_log(self, spaces, position, on_log):
        def read(life=self.life):
            if life is not self.life:
                return
            if position < self.floor:
                on_log(None, position)
                return
            found = [one for one in self.log if one[0] > position][:8]
            touching = [(at, [one for one in done if one[1] in spaces]) for at, done in found]
            on_log([one for one in touching if one[1]], found[-1][0] if found else position)
            self.wake()

        self.cluster.soon(read)

    def look(self, node, look):
        """Pass the whole log to a feed."""

        def read(life=self.life):
            if life is not self.life:
                return
            peer = self.replicas.peers[node]
            feed = peer.sender
            batches = [(at, done) for at, done in self.log if at > max(look.position, self.floor)]
            entries = self.replicas.spaces.read(batches, feed.lacks)
            is_cut, position = look.position < self.floor, max(self.synced(), look.position)
            page = LogPage()
            page.add(entries, joins=look.slices > 1)
            feed.read(look, page.entries, position, is_cut=is_cut)
            peer.due = 0.0
            self.wake()

        self.cluster.soon(read)

    def trim(self):
        self.floor = self.synced()
        self.log.clear()

    def reserve_space(self):
        self.reserved += 1
        return self.reserved

    def ask(self, node, method, params, on_reply):
        self.cluster.ask(self, node, method, params, on_reply)

    def wake(self):
        self.is_woken = True

    def now(self):
        return self.cluster.now

    def now_ms(self):
        return int((self.cluster.now + self.skew_s) * 1000) + 1_000_000

    def barred(self, copy):
        self.told.append("aside")

    def loads(self, copy, source, what):
        self.told.append(what)

    def differs(self, copy, node):
        self.told.append(("differs", node[0]))

    def log_too_small(self, copy):
        self.told.append("too small")

    # The entry point for requests of peers.

    def answer(self, method, params, on_result):
        node = params[0]
        if method == "replica_tell":
            rows = msgpack.unpackb(params[3])
            on_result(self.replicas.take_report(node, params[1], rows, whole=bool(params[2])))
        elif method == "replica_feed":
            self.replicas.take_entries(node, params[1], msgpack.unpackb(params[2]), on_result)
        elif method == "replica_digest":
            on_result(self.digests.digest(self.replicas.by_partition[params[1], params[2]], *params[3:]))
        else:
            serve(self, self.replicas.by_partition[params[1], params[2]], LoadPage(*params[3:]), on_result)


class Cluster:
    """Nodes that hold one partition; assignments are 1, 2, ... as the nodes are."""

    def __init__(self, nodes=3, *, config=1, adopts=True):
        self.now = 0.0
        self._soon, self._on_way = [], []
        self._pending = []  # Per request: asker, asked, and the callback for the only answer.
        self.asked = []  # Method and asker.
        self.before_answer = []  # Called with (asker, asked, method, params) before each answer.
        self.cuts = set()
        self.durable = {}  # The latest synced record of each key on any node.
        self.nodes = [Node(self, number) for number in range(1, nodes + 1)]
        if adopts:
            self.adopt(config)
            self.connect()
            self.pass_s(0.3)

    def adopt(self, config, *nodes):
        """Place the replicas of the map on these nodes, or on all."""
        hosts = [
            AssignedReplica(node.number, node.uuid, node.number - 1, counts=True, available=True) for node in self.nodes
        ]
        for node in nodes or self.nodes:
            node.replicas.place(ReplicaIdentity(TABLE, 7, node.number), config, hosts)
        self.run()

    def node(self, uuid):
        return next(node for node in self.nodes if node.uuid == uuid)

    def connect(self, *nodes):
        """Connect these nodes, or all, with all running nodes."""
        for node in nodes or self.nodes:
            for other in self.nodes:
                if other is not node and node.is_up and other.is_up:
                    self.cuts -= {(node, other), (other, node)}
                    node.replicas.connected(other.uuid)
                    other.replicas.connected(node.uuid)
        self.run()

    def cut(self, node):
        for other in self.nodes:
            if other is not node:
                self.cuts |= {(node, other), (other, node)}
                node.replicas.disconnected(other.uuid)
                other.replicas.disconnected(node.uuid)
        for pending in [one for one in self._pending if node in one]:
            self._reply(pending, Unknown("cut"))

    def crash(self, node):
        """End a life, and begin the next one disconnected."""
        self.cut(node)
        node.begin()
        self.adopt(node.config if hasattr(node, "config") else 1, node)

    def ask(self, asker, uuid, method, params, on_reply):
        asked, life = self.node(uuid), asker.life
        packed = msgpack.packb(params)
        pending = (asker, asked, lambda result: on_reply(result) if asker.life is life else None)
        self._pending.append(pending)

        def reply(result):
            if not isinstance(result, GossipKVError):
                result = msgpack.unpackb(msgpack.packb(result))
            self._on_way.append(lambda: self._reply(pending, result))

        def arrive():
            self.asked.append((method, asker))
            for do in [*self.before_answer]:
                do(asker, asked, method, msgpack.unpackb(packed))
            if (asker, asked) in self.cuts:
                reply(GossipKVError("cut"))
                return
            try:
                asked.answer(method, msgpack.unpackb(packed), reply)
            except GossipKVError as error:
                reply(error)

        self._on_way.append(arrive)

    def _reply(self, pending, result):
        if pending in self._pending:
            self._pending.remove(pending)
            pending[2](result)

    def soon(self, do):
        self._soon.append(do)

    def run(self):
        while self._soon:
            self._soon.pop(0)()

    def pass_s(self, seconds):
        end = self.now + seconds
        while self.now < end:
            self.now += STEP_S
            arrived, self._on_way = self._on_way, []
            for do in arrived:
                do()
            self.run()
            for node in self.nodes:
                node.is_woken |= node.replicas.due <= self.now
                for _ in range(3):
                    if node.is_woken:
                        node.is_woken = False
                        node.replicas.pump()
                        self.run()

    def until(self, holds, *, most_s=20.0):
        end = self.now + most_s
        while not holds():
            assert self.now < end, "it never came to that"
            self.pass_s(STEP_S)

    @property
    def is_caught_up(self):
        """Return True if all nodes have the same clock and records."""
        return all(clock.compare(node.copy.synced, self.nodes[0].copy.synced) == clock.EQUAL for node in self.nodes)
