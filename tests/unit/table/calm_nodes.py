"""A node with records of tables whose serving loop reads calm replicas: the core answers, or Python does."""

from __future__ import annotations

from types import SimpleNamespace

import msgpack

from gossipkv.register.metadata.partitions import RANGE
from gossipkv.serving._serving import PublishedTable
from gossipkv.storage.engine._engine import Batch, Memtable, ReadGate
from gossipkv.table.calm import CalmTables, OpenedTables
from gossipkv.wire import rpc
from tests.unit.serving.driven import NODE, Peer, make_core
from tests.unit.table.record_nodes import CLUSTER, MEMTABLE_BYTES, TOKEN_KEYS, Records, packed

RESPONSE = msgpack.packb([1, 0, None, None])[:2]  # The head of an array, and the kind of message.


class CalmNode:
    """One of the nodes of `Records`, and the core of its serving loop."""

    def __init__(self, records, node):
        self.records, self.node = records, node
        self.gate, self.core = ReadGate(), make_core()
        self.peer = Peer(self.core)
        self.msgid = 0
        records.register = CLUSTER
        node.name = NODE
        self.store = SimpleNamespace(gate=self.gate, serve=self.gate.serve)
        self.reported = set()  # Tables of which another node has reported settled entries before.
        self.open_tables()
        self.look()

    def open_tables(self):
        """Let the loop read the store, after each opening."""
        self.calm = CalmTables(
            self, OpenedTables(self.store, self.records, self.records, self.node, lambda: TOKEN_KEYS), self.reported
        )
        self.node.deciding.note_reports = self.calm.note_reports
        self.node.deciding.hold_writes = self.calm.hold_writes

    guards = ()

    def expire_from(self, least_ms, most_ahead_ms):
        self.core.expire_from(least_ms, most_ahead_ms)

    def serve_tables(self, tables):
        self.core.publish(PublishedTable((), [*tables]))

    def look(self):
        """Let calm replicas on the fast path, and show the records that the node's store has now."""
        memtable, batch = Memtable(MEMTABLE_BYTES), Batch()
        for space, rows in self.node.spaces.items():
            for key, value in rows.items():
                batch.put(space, key, value)
        self.gate.apply(memtable, batch)
        self.gate.show([memtable], [])
        self.calm.look()

    def from_core(self, method, *params):
        """Return the bytes with which the core answers; None: it hands the request to Python."""
        self.msgid += 1
        hand_offs = self.peer.send(rpc.request(self.msgid, method, params))
        if hand_offs:
            assert self.peer.driver.reply(self.peer.handle, self.msgid, rpc.response(self.msgid, None))
        self.peer.take()
        answer, self.peer.received = self.peer.received, b""
        return None if hand_offs else answer

    def token_of(self, method, *params):
        """Return the token in the core's answer."""
        answer = self.from_core(method, *params)
        _, _, error, (_, token) = msgpack.unpackb(answer)
        assert error is None
        return token

    def from_python(self, method, *params):
        """Return the bytes with which Python answers at once."""
        answers = self.node.begin(method, *params)
        self.records.run()
        (answer,) = answers
        assert not isinstance(answer, Exception), answer
        return RESPONSE + msgpack.packb(self.msgid) + b"\xc0" + packed(answer)

    def is_alike(self, method, *params):
        """Return True if the core answered, as Python does; False if it handed the request to Python."""
        before = self.requests()
        answer = self.from_core(method, *params)
        counted = self.requests() - before
        if answer is None:
            assert counted == 0
            return False
        assert answer == self.from_python(method, *params), (method, params)
        assert self.requests() - before == 2 * counted, "each way counts the same requests"
        return True

    def requests(self):
        replicas = self.node.replicas.by_partition.values()
        for replica in replicas:
            replica.requests += 0 if replica.calm is None else replica.calm.take_requests()
        return sum(replica.requests for replica in replicas)


def made_node(hosts):
    records = Records(hosts)
    records.make("hashed", firsts=4, holders=lambda _: records.nodes)
    records.make("ranges", RANGE, firsts=[b"", b"g", b"p"], holders=lambda _: records.nodes)
    return CalmNode(records, records.nodes[0])


def put(calm, table, key, value, **options):
    """Write here, and return the token."""
    token = calm.node.call("put", table, key, value, {"level": "one", **options})
    calm.look()
    return token
