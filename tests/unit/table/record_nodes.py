"""Nodes that keep records of tables, in one process without I/O: real methods and replicas on an in-memory store.

Time moves only by `Records.pass_s`. Appended batches are synced at once, or by `Node.sync`.
"""

from __future__ import annotations

import itertools
import random
from math import inf
from types import SimpleNamespace

import msgpack
import trio

from gossipkv.errors import NotReady, Unavailable, Unknown, UnknownDatabase, from_wire, to_wire
from gossipkv.gossip.member import MemberState
from gossipkv.placement.partition import Assignment, AssignmentState, Partition
from gossipkv.processes.pace import RateLimit
from gossipkv.register.metadata.known import KnownMap
from gossipkv.register.metadata.partitions import HASH, RANGE, TableMeta, decode_partition, decode_table, shard_key
from gossipkv.replication.changes.pages import ChangeFeeds
from gossipkv.replication.deadlines import ParkedRequests
from gossipkv.replication.ports import ReplicationLimits
from gossipkv.replication.replica.keys import RECORD, ReplicaIdentity
from gossipkv.replication.replica.token_keys import token_keys
from gossipkv.replication.replica_set import ReplicaSet
from gossipkv.replication.shell import Replication
from gossipkv.replication.stream.messages import ReplicaState
from gossipkv.storage.engine._engine import Memtable, operations
from gossipkv.storage.engine.shell import DELETE, PUT, Batch, View
from gossipkv.table.controllers.reconciler import Reconciler, hosts_of, parts_of
from gossipkv.table.controllers.smear_buffer import SmearBuffer
from gossipkv.table.controllers.smear_schedule import SmearSchedule
from gossipkv.table.controllers.write_stats import WriteStats
from gossipkv.table.records.endpoints import RecordMethods
from gossipkv.table.session.token import decode
from gossipkv.wire.arguments import Arguments
from gossipkv.wire.results import Later, NotAnswered, Packed
from tests.oracle.token import RING
from tests.unit.table.edited_maps import edited, first_base
from tests.unit.table.local_tables import local_tables
from tests.unit.table.made_up_participant import participant

CONFIG = 1 << 48 | 1
MEMTABLE_BYTES = 1 << 22
MAX_BYTES = 32 << 20  # Per node, for waiting requests.
CLUSTER = bytes(16)
TOKEN_KEYS, FOREIGN_KEYS = (token_keys(cluster, RING) for cluster in (CLUSTER, bytes([1]) * 16))
LIMITS = SimpleNamespace(
    max_key=65535, max_value=16 << 20, scan_limit=1000, stage_timeout=100, max_token=64 << 10, max_feeds=3
)


def packed(answer):
    return answer.data if isinstance(answer, Packed) else msgpack.packb(answer)


class _Token:
    def __eq__(self, other):
        return isinstance(other, bytes) and decode(other, TOKEN_KEYS) is not None

    __hash__ = None


TOKEN = _Token()  # Equal to every token.


class Node:
    """A node with its store, its replicas, its methods and a record of requests."""

    def __init__(self, records, number):
        self.records = records
        self.number = number
        self.store = number  # The id of its store.
        self.fails = None  # The error with which its store fails at a sync.
        self.uuid = bytes([number]) * 16
        self.name = f"n{number}"
        self.state = MemberState.ALIVE
        self.asked = []  # Methods that other nodes have called.
        self.looked = []  # Registers that the node would have read.
        self.hangs = False  # If set, requests get no answer.
        self.ends = 0  # Connections to the node that end with the next request.
        self.held = None  # Delayed requests, while the node is frozen or disconnected.
        self.skew_s = 0.0
        self.is_lost = False  # If set, the node is unreachable.
        self.refuses = None  # The error that its store raises on append.
        self.syncs = True
        self.reads = 0  # Reads of the log.
        self.viewed = 0  # The number of spaces of its store that pages of scans have read.
        self.spaces = {}
        self.unsynced = []
        self.log, self.floor, self.at = [], 1, {}  # Positions and operations of synced batches.
        self.positions, self.reserved = itertools.count(2), itertools.count(1)
        self.waiting = ParkedRequests(MAX_BYTES)
        self.woken, self.sleeps_until = False, inf  # See `ParkedRequests.run`.
        self.departed = {}
        self.gives = RateLimit()
        self.replicas = ReplicaSet(self.uuid, self, random.Random(number), 1, ReplicationLimits(relay_s=0.2))
        self.feeds = ChangeFeeds(self.replicas, self)
        self.maps = self.replicas.maps
        deciding = participant(
            catalogue=records, metadata=records, replication=self,
            taking_part=lambda *_: (records, records), replicating=lambda *_: self,
            members=lambda: records.nodes, name_of=lambda uuid: records.node(uuid).name,
            register=CLUSTER, token_keys=TOKEN_KEYS, look_at=lambda table, **_: self.looked.append(table),
            has_ended=lambda table: table in records.ended,
            check_knows=lambda: None, smear_buffer=None, note=lambda *_: None, note_reports=lambda _: None,
        )  # fmt: skip
        self.methods = RecordMethods(deciding, random.Random(number), LIMITS)
        self.smeared = None  # The space of accepted puts.
        self.deciding = deciding
        self.accepts()

    def accepts(self, **limits):
        """Begin a life of the smear buffer."""
        smearing = SmearSchedule(random.Random(self.number), **limits)
        self.accepting = self.deciding.smear_buffer = SmearBuffer(
            local_tables(replication=self, metadata=SimpleNamespace(me=self)), smearing, self.methods.forward
        )
        while not smearing.is_counted:
            self.accepting.count()

    def holding(self):
        """Return a reconciler of this node."""
        self.records.me = SimpleNamespace(node=self.uuid)
        tables = local_tables(metadata=self.records, catalogue=self.records, replication=self)
        reconciler = Reconciler(tables, WriteStats())
        self.records.reconcilers.append(reconciler)
        return reconciler

    # The interface of replication and its store for `ReplicaSet` and the methods.

    def append_told(self, batch, on_told):
        """Take a batch, and call `on_told` with the store's error, if any, after the sync."""
        return self.append(batch, lambda: on_told(self.fails))

    def append(self, batch, on_synced):
        """Take a batch, and sync it at once or later."""
        if self.refuses is not None:
            raise self.refuses
        for last, _ in self.unsynced[-1:]:
            last.is_open = False
        batch.is_open, self.at[id(batch)] = True, next(self.positions)
        self.unsynced.append((batch, on_synced))
        if self.syncs:
            self.records.soon.append(self.sync)
        return self.at[id(batch)]

    def extend(self, batch, more):
        """Add operations to the last batch that waits for its sync."""
        assert batch is self.unsynced[-1][0], "an open batch is the last"
        if self.refuses is None:
            batch.extend(more)
        return self.refuses is None

    def sync(self, most=inf):
        """Sync so many batches."""
        while self.unsynced and most > 0:
            most -= 1
            batch, on_synced = self.unsynced.pop(0)
            batch.is_open = False
            for space in batch.dropped:
                self.spaces.pop(space)
            for kind, space, key, value in operations(batch.payload):
                if kind == PUT:
                    self.spaces.setdefault(space, {})[key] = value
                elif kind == DELETE:
                    self.spaces[space].pop(key, None)
            self.log.append((self.at.pop(id(batch)), [*operations(batch.payload)]))
            on_synced()

    def log_floor(self):
        return self.floor

    def read_log(self, spaces, position, on_log):
        """Read four batches of the log."""
        self.reads += 1
        found = [one for one in self.log if one[0] > position][:4]
        mine = [(at, [one for one in done if one[1] in spaces]) for at, done in found]
        is_cut, behind = position < self.floor, found[-1][0] if found else position
        self.records.soon.append(lambda: on_log(None if is_cut else [one for one in mine if one[1]], behind))

    def reopen(self):
        """Open the store again, with what is synced: it had failed."""
        self.unsynced, self.refuses, before = [], None, self.replicas
        self.replicas = ReplicaSet(self.uuid, self, random.Random(self.number), 1, ReplicationLimits(relay_s=0.2))
        for space, rows in self.spaces.items():
            for replica in self.replicas.spaces.found(space, [row for row in rows.items() if row[0] < RECORD], 1):
                self.replicas.found(replica)
        for table in before.spaces.ranges:
            self.replicas.spaces.index_ranges(table)
        self.maps = self.replicas.maps
        self.maps.update(before.maps)

    def synced(self):
        return self.log[-1][0] if self.log else 1

    goes_by, let_go = Replication.goes_by, Replication.let_go

    def get(self, space, key):
        return self.spaces[space].get(key)

    def view(self, spaces):
        """Return a view of these spaces alone."""
        memtable, batch = Memtable(MEMTABLE_BYTES), Batch()
        for space in spaces:
            self.viewed += 1
            for key, value in self.spaces[space].items():
                batch.put(space, key, value)
        memtable.apply_batch(batch)
        return View([memtable], [])

    def scan(self, space, start, end, *, reverse, limit):
        inside = sorted(key for key in self.spaces[space] if start <= key < end)
        keys = (inside[::-1] if reverse else inside)[:limit]
        more = len(inside) > len(keys)
        bound = (keys[-1] if reverse else keys[-1] + b"\0") if more else None
        return [(key, self.spaces[space][key]) for key in keys], bound

    def reserve_space(self):
        return next(self.reserved)

    def now(self):
        return self.records.now

    def now_ms(self):
        return int((self.records.now + self.skew_s) * 1000) + 1

    def wake(self):
        """Note the wake-up, which ends a sleep until a deadline; no pump runs here."""
        self.woken = True

    def ask(self, node, method, params, complete, timeout_s=None):
        """Ask another node; do nothing for a feed, which sets no timeout: none runs here."""
        if timeout_s is None:
            return
        other = self.records.node(node)
        if other.is_lost:
            complete(Unavailable(f"{other.name} is not reached"))
            return
        other.asked.append(method)
        if other.ends:  # The connection ends once the request is sent.
            other.ends -= 1
            complete(NotAnswered(f"{other.name} has not answered"))
            return
        if other.hangs:
            self.records.later(timeout_s + 0.5, lambda: complete(Unknown(f"{other.name} has not answered")))
            return

        def on_result(result):
            if isinstance(result, Exception):
                complete(from_wire(*msgpack.unpackb(msgpack.packb(to_wire(result)))))
            else:
                complete(msgpack.unpackb(packed(result)))

        come = self.records.soon if other.held is None else other.held
        come.append(lambda: other.answer(method, params, on_result))

    # The entry point for clients and other nodes.

    def answer(self, method, params, on_result):
        try:
            arguments = Arguments(method.encode(), msgpack.packb(params))
            known = {**self.methods.methods, **self.methods.reads}
            result = known[method.encode()](arguments)
            if isinstance(result, Later):
                result.begin(on_result)
                return
        except Exception as error:  # noqa: BLE001  # A node also answers with the error.
            result = error
        on_result(result)

    def outcome(self, method, *params):
        """Send a request, let time pass until it ends, and return the answer or error."""
        answers = self.begin(method, *params)
        self.records.until(lambda: answers)
        (answer,) = answers
        return msgpack.unpackb(answer.data) if isinstance(answer, Packed) else answer

    def call(self, method, *params):
        answer = self.outcome(method, *params)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def hears(self, copy, theirs, told):
        peer = self.replicas._peer(next(host.node for host in copy.hosts if host.assignment == theirs.assignment))
        self.replicas._hear(peer, copy, told, ReplicaState(theirs.assignment, theirs.config, can_take=True))

    def begin(self, method, *params):
        """Send a request; return the list that collects its answers."""
        answers = []
        self.answer(method, list(params), answers.append)
        return answers


class Records:
    def __init__(self, nodes):
        self.now = 0.0
        self.soon = []
        self.timers = []
        self.catalogue = b"catalogue"  # Its register; a new map stands for a change of the tables.
        self.known, self.bases, self._tables = {self.catalogue: object()}, {}, {}
        self.ended, self.reconcilers = set(), []
        self.nodes = [Node(self, number) for number in range(1, nodes + 1)]

    def node(self, uuid):
        return next(node for node in self.nodes if node.uuid == uuid)

    def make(self, name, kind=HASH, *, firsts, holders, adopted=True, time_key=None, smears=True, **more):
        """Make a table with these first keys or number of shards; `holders` maps a partition number to nodes."""
        keys = [shard_key(number) for number in range(firsts)] if kind == HASH else firsts
        id_ = len(self.bases).to_bytes(16, "big")
        table = TableMeta(id_, name, kind, len(holders(0)), len(keys) if kind == HASH else 0)
        table = table._replace(**more)
        if time_key is not None:
            table = table._replace(time_key=time_key, smears=smears)
        partitions = {}
        for number, key in enumerate(keys):
            base = len(self.bases) << 32 | number << 8
            held = [Assignment(base + slot + 1, node.uuid, slot, AssignmentState.AVAILABLE)
                    for slot, node in enumerate(holders(number))]  # fmt: skip
            partitions[key] = Partition.of(base, held)
        self._tables[name] = SimpleNamespace(id=id_)
        self.begin(table, partitions, CONFIG)
        if adopted:
            self.adopt(name)
        return id_

    def renew(self, name, config):
        """Give the map of a table another config at all nodes, without adoption."""
        view = self.known[self._tables[name].id].view
        self.begin(
            decode_table(view.meta), {entry.key: decode_partition(entry.record) for entry in view.scan()}, config
        )

    def begin(self, table, partitions, config):
        self.tell(table.id, first_base(table, partitions, config, [node.uuid for node in self.nodes[:3]]))

    def tell(self, table, base):
        """Let all nodes know this map of a table."""
        self.bases[table], self.known[table] = base, KnownMap(base)
        self.known[self.catalogue] = object()
        for reconciler in self.reconcilers:
            reconciler.edited(table, None)

    def adopt(self, name, *nodes):
        """Place the replicas of a table's map on these nodes, or on all."""
        view = self.known[self._tables[name].id].view
        table = decode_table(view.meta)
        for part in parts_of(view):
            for one in part.partition.assignments:
                node = self.node(one.node)
                if not nodes or node in nodes:
                    identity = ReplicaIdentity(table.id, part.partition.id, one.id, part.bounds)
                    node.replicas.place(identity, part.version, hosts_of(part.partition))
        for node in nodes or self.nodes:
            if table.kind == RANGE:
                node.replicas.spaces.index_ranges(table.id)
            node.goes_by(table.id, view.config)
        self.run()

    def divide(self, name, middle, change=lambda partition: partition):
        """Split the only range of a table in the map, without adoption; return the former map.

        `change` modifies each child.
        """
        id_ = self._tables[name].id
        (entry,) = self.known[id_].view.scan()
        before, parent = self.bases[id_], decode_partition(entry.record)
        children = {
            key: Partition.of(number, [one._replace(id=16 * number + one.slot) for one in parent.assignments])._replace(
                former=parent.named
            )
            for number, key in ((1000, b""), (1001, middle))
        }
        self.tell(id_, edited(before, {key: change(child) for key, child in children.items()}))
        return before

    def change(self, name, change):
        """Change the only range of a table in the map, without adoption."""
        id_ = self._tables[name].id
        (entry,) = self.known[id_].view.scan()
        self.tell(id_, edited(self.bases[id_], {entry.key: change(decode_partition(entry.record))}))

    def forget(self, name, before):
        """Restore a former map as the known map, whatever the hosts have adopted."""
        id_ = self._tables[name].id
        self.bases[id_], self.known[id_] = before, KnownMap(before)

    def drop(self, name):
        del self._tables[name]
        self.known[self.catalogue] = object()

    # The interface of the catalogue and METADATA.

    def tables(self):
        return self._tables

    def table(self, name):
        raise UnknownDatabase(f"there is no table {name}")

    def view(self, table):
        if table not in self.known:
            raise NotReady("this node does not know the state of this table yet")
        return self.known[table].view

    # The clock.

    def later(self, after_s, do):
        self.timers.append((self.now + after_s, len(self.timers), do))
        self.timers.sort()

    def run(self):
        while self.soon:
            self.soon.pop(0)()

    def until(self, holds, *, most_s=10.0):
        end = self.now + most_s
        self.run()
        while not holds():
            for node in self.nodes:
                if node.woken or node.waiting.sooner.is_set():
                    node.woken, node.waiting.sooner, node.sleeps_until = False, trio.Event(), node.waiting.due
            dues = [node.sleeps_until for node in self.nodes] + [at for at, _, _ in self.timers[:1]]
            due = min(dues, default=end)
            assert due < end, "nobody has answered"
            self.now = max(self.now, due)
            while self.timers and self.timers[0][0] <= self.now:
                self.timers.pop(0)[2]()
            for node in self.nodes:
                if node.woken or node.sleeps_until <= self.now:
                    node.waiting.wake(self.now)
                    node.woken = True
            self.run()

    def pass_s(self, seconds):
        over = []
        self.later(seconds, lambda: over.append(True))
        self.until(lambda: over, most_s=seconds + 1)
