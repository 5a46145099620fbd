"""A state machine over gathered writes: drawn steps at which replicas leave and enter the fast path, and stores fail.

Each write is answered once, and in time: what is acknowledged was synced, and confirmed as its level says, before the
answer, and is there after the store was opened again; what is refused is nowhere; and the writes of a connection to a
key keep their order. No value is written twice, so deletes are not judged.
"""

from __future__ import annotations

import random
from functools import partial
from typing import NamedTuple

from gossipkv.errors import LimitExceeded, Overloaded, StorageError
from gossipkv.register.metadata.partitions import RANGE
from gossipkv.replication.replica import clock, record
from gossipkv.replication.replica.keys import RECORD
from gossipkv.storage.engine._engine import operations
from gossipkv.storage.engine.shell import PUT, Batch
from gossipkv.table.calm import HELD_S
from gossipkv.table.session.token import decode
from tests.unit.table.gathering_nodes import Client, GatheringNode
from tests.unit.table.record_nodes import CONFIG, TOKEN_KEYS, Records

STEPS = 40
TABLE = "ranges"
KEYS = (b"a1", b"a2", b"h1", b"q1")
CLIENTS = 3
NEEDED = {"one": 0, "majority": 1, "all": 2}  # The other hosts that must confirm.
LATE_S = HELD_S + 0.01
SURE_S = 10.0  # All deadlines pass within this time.


class Asked(NamedTuple):
    values: dict  # By key; None: it is deleted.
    level: str
    due_s: float
    seen: dict  # The counters in its token, by assignment.


class Synced(NamedTuple):
    """Where a value was synced first."""

    node: object
    space: int
    assignment: int
    counter: int


class Machine:
    """A node with two others, its connections, and what it may answer."""

    def __init__(self, seed):
        self.draw = random.Random(seed)
        records = Records(3)
        records.make(TABLE, RANGE, firsts=[b"", b"g", b"p"], holders=lambda _: records.nodes)
        self.node, self.store = GatheringNode(records, records.nodes[0]), records.nodes[0]
        self.store.syncs = False
        self.clients = [self.node.client, *(Client(self.node.listener) for _ in range(CLIENTS - 1))]
        self.asked = {client: {} for client in self.clients}
        self.open = {client: set() for client in self.clients}
        self.acknowledged = {}  # By client and key: values, in order.
        self.refused, self.synced, self.tokens = set(), {}, []
        self.confirmed = {}  # By assignment: the counters that the two others have confirmed.
        self.group, self.config, self.values, self.has_failed = 0, CONFIG, 0, False
        for node in records.nodes:
            node.sync = partial(self._sync, node, node.sync)

    @property
    def now_s(self):
        return self.node.records.now

    def _sync(self, node, sync, *most):
        space_of = {replica.space: replica for replica in node.replicas.by_partition.values()}
        for batch, _ in node.unsynced[: most[0] if most else None]:
            for kind, space, key, data in operations(batch.payload):
                if kind == PUT and key.startswith(RECORD) and space in space_of:
                    row = record.decode(data)
                    self.synced.setdefault(row.value, Synced(node, space, space_of[space].assignment, row.counter))
        sync(*most)

    # -- steps ---------------------------------------------------------------------------------------------------------

    def ask(self):
        for _ in range(self.draw.randrange(1, 5)):
            self._ask(self.draw.choice(self.clients))
        self.round()

    def _ask(self, client):
        draw, method = self.draw, self.draw.choice(("put", "put", "delete", "put_many"))
        keys = draw.choices(KEYS, k=draw.choice((1, 2, 2, 3)) if method == "put_many" else 1)
        rows = [(key, None if method == "delete" else self._value()) for key in keys]
        timeout_ms, level = draw.choice((30, 500, 1000, 4000)), draw.choice([*NEEDED])
        token, seen = draw.choice(self.tokens) if self.tokens and draw.random() < 0.3 else (None, {})
        options = {"level": level, "timeout_ms": timeout_ms, "token": token}
        sent = [rows] if method == "put_many" else [part for part in rows[0] if part is not None]
        msgid = client.ask(method, TABLE, *sent, options)
        self.asked[client][msgid] = Asked(dict(rows), level, self.now_s + timeout_ms / 1000, seen)
        self.open[client].add(msgid)

    def _value(self):
        self.values += 1
        return b"%d" % self.values

    def round(self):
        for client in self.clients:
            client.send()
        self.node.round()
        for client in self.clients:
            client.take()
            for msgid in sorted(self.open[client] & client.answers.keys()):
                self.open[client].discard(msgid)
                self._judge(client, msgid, self.asked[client][msgid])
            late = [self.asked[client][msgid] for msgid in self.open[client]]
            assert all(self.now_s <= write.due_s + LATE_S for write in late), "each write is answered in time"

    def begin_group(self):
        if self.store.unsynced and not self.store.is_writing and not self.has_failed:
            self.group, self.store.is_writing = len(self.store.unsynced), True
            self.store.unsynced[-1][0].is_open = False

    def end_group(self):
        if self.store.is_writing:
            self.store.is_writing = False
            self.store.sync(self.group)
            self._written()

    def fail_sync(self):
        """Let the sync of a group fail: a part of it is on the disk. Nothing is written until the next opening."""
        if self.store.is_writing:
            self.store.is_writing, self.has_failed = False, True
            self.store.refuses = StorageError("its log cannot be written")
            for batch, _ in self.store.unsynced:
                batch.is_open = False
            kept = self.draw.randrange(self.group + 1)
            self.store.unsynced = [(batch, lambda: None) for batch, _ in self.store.unsynced[:kept]]
            self._written()

    def _written(self):
        self.node.store.on_written()
        self.round()

    def reopen(self):
        if self.has_failed:
            self.has_failed, node = False, self.node
            self.store.sync()
            self.store.reopen()
            node.link()
            node.calm.end()
            node.open_tables()
            node.calm.look()

    def confirm(self):
        if (replica := self._replica()) is not None:
            counter, hosts = clock.counter(replica.synced, replica.assignment), self.draw.choice((1, 2))
            confirmed = self.confirmed.setdefault(replica.assignment, [0, 0])
            confirmed[:hosts] = [max(counter, before) for before in confirmed[:hosts]]
            self.node.confirm(replica, hosts=hosts)
            self.round()

    def _replica(self):
        return self.draw.choice([None, *self.store.replicas.by_partition.values()])

    def leave(self):
        if (replica := self._replica()) is not None:
            replica.leave_fast_path()
            replica.is_frozen = self.draw.random() < 0.3

    def drop(self):
        replica = self._replica()
        if replica is not None and self.draw.random() < 0.1:
            self.store.replicas.drop(replica, Batch())

    def change_map(self):
        replicas = self.store.replicas.by_partition.values()
        if not self.has_failed and not any(replica.is_frozen for replica in replicas):
            self.config += 1
            self.node.records.renew(TABLE, self.config)
            self.node.calm.map_changed(self.node.records.tables()[TABLE].id)
            if self.draw.random() < 0.7 and self.store.refuses is None:
                self.node.records.adopt(TABLE)

    def look(self):
        self.node.calm.look()

    def pass_s(self):
        self.node.records.pass_s(self.draw.choice((0.001, HELD_S, 0.06, 0.6)))
        self.round()

    def lose_client(self):
        if len(self.clients) > 1 and self.draw.random() < 0.2:
            self.clients.pop().stream.is_broken = True
            self.round()

    def refuse(self):
        if not self.has_failed:
            self.store.refuses = self.draw.choice((Overloaded("full"), LimitExceeded("long"), None, None))

    def run(self):
        """Run drawn steps; at the end the node is lost, or each write gets an answer."""
        often = (self.ask,) * 8 + (
            self.round,
            self.look,
            self.look,
            self.pass_s,
            self.pass_s,
            self.confirm,
            self.confirm,
        )
        groups = (self.begin_group,) * 3 + (self.end_group,) * 4 + (self.fail_sync, self.reopen, self.reopen)
        seldom = self.leave, self.leave, self.drop, self.change_map, self.lose_client, self.refuse
        for _ in range(STEPS):
            self.draw.choice(often + groups + seldom)()
        if self.draw.random() < 0.2:
            self.node.loop.close()
        elif self.draw.random() < 0.8:
            self.node.records.pass_s(SURE_S)
            self.round()
            self.end_group()
            self.node.records.pass_s(SURE_S)
            self.round()
            assert not any(self.open[client] for client in self.clients), "each write is answered"
            assert (self.store.waiting.bytes, self.node.loop_core.counters()["in_flight"]) == (0, 0)
        self.has_failed = True  # All that is synced is there in the next life.
        self.store.unsynced = []
        self.reopen()
        self._judge_all()
        return sum(self.node.begun)

    # -- what must hold ------------------------------------------------------------------------------------------------

    def _judge(self, client, msgid, write):
        outcome, values = client.outcome(msgid), {value for value in write.values.values() if value is not None}
        if outcome != "ok":
            self.refused |= values if outcome != "UNKNOWN" else set()
            return
        token = client.token(msgid)
        entries = dict(clock.entries(decode(token, TOKEN_KEYS)[self.node.records.tables()[TABLE].id].clock))
        self.tokens = [*self.tokens[-4:], (token, entries)]
        for value in values:
            assert value in self.synced, "what is acknowledged is synced"
            where = self.synced[value]
            if where.node is self.store:
                confirmed = sorted(self.confirmed.get(where.assignment, (0, 0)), reverse=True)
                needed = confirmed[: NEEDED[write.level]]
                assert all(counter >= where.counter for counter in needed), "it is answered at its level"
                self._judge_entry(entries, where.assignment, where.counter)
        for assignment, counter in write.seen.items():
            self._judge_entry(entries, assignment, counter)
        for key, value in write.values.items():
            self.acknowledged.setdefault((client, key), []).append((msgid, value))

    def _judge_entry(self, entries, assignment, counter):
        is_settled = counter <= min(self.confirmed.get(assignment, (0, 0)))
        assert is_settled or assignment not in self.confirmed or entries.get(assignment, 0) >= counter, "it is seen"

    def _judge_all(self):
        assert not self.refused & self.synced.keys(), "what is refused is nowhere"
        for (client, key), written in self.acknowledged.items():
            last = {}
            for msgid, value in sorted(written, key=lambda each: each[0]):
                if value is None:
                    continue
                where = self.synced[value]
                row = record.decode(where.node.spaces[where.space][RECORD + key])
                assert row.counter > where.counter or row.value == value, "it is there after a restart"
                if where.node is self.store and not self.asked[client][msgid].seen:  # Others may wait, or were sent on.
                    assert last.get(where.assignment, 0) < where.counter, "writes to a key keep their order"
                    last[where.assignment] = where.counter
