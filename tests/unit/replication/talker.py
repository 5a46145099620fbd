"""A node whose copy is talked to by hand, as by the node that holds the copy beside it."""

from __future__ import annotations

import msgpack

from gossipkv.replication.replica import record
from tests.unit.table.record_nodes import CONFIG, Records

MINE, YOURS, THIRD = 1, 2, 3  # Assignments: of the node here, of who talks, of the third.
LINK = 77


class Talker:
    """Who talks, and the node."""

    def __init__(self):
        self.records = Records(3)
        self.table = self.records.make("t", firsts=1, holders=lambda _: self.records.nodes)
        self.node, self.peer, self.third = self.records.nodes
        self.replicas = self.node.replicas
        self.asked = []  # Method, parameters and on_reply of what the node has asked.
        self.asides = []
        self.node.ask = lambda *question: self.asked.append(question[1:])
        self.node.barred = self.asides.append
        self.node.look = self._look
        (self.copy,) = self.replicas.by_partition.values()
        self.begin()

    def _look(self, node, look):
        """The log has nothing of before this copy was there."""
        self.replicas.peers[node].sender.read(look, [], self.replicas.tail.first)

    def begin(self, counters=(0, 0, 0), config=CONFIG):
        """Begin a link, and tell what is had."""
        return self.name(counters, config, whole=True)

    def name(self, counters=(0, 0, 0), config=CONFIG, *, whole=False):
        """Name the copy anew, so what the node has of it is answered."""
        row = [0, self.table, 0, YOURS, config, [MINE, YOURS, THIRD], [*counters], True, False]
        return msgpack.unpackb(self.replicas.take_report(self.peer.uuid, LINK, [row], whole=whole))

    def tell(self, counters, config=CONFIG):
        row = [0, config, [*counters], True, False]
        return msgpack.unpackb(self.replicas.take_report(self.peer.uuid, LINK, [row], whole=False))

    def feed(self, *entries, syncs=True):
        answers = []
        self.replicas.take_entries(self.peer.uuid, LINK, msgpack.unpackb(msgpack.packb(entries)), answers.append)
        if syncs:
            self.records.run()
        return [msgpack.unpackb(answer) for answer in answers]

    def connect(self, counters=(0, 0, 0), config=CONFIG):
        """Have the node connect, and hear the answer to its first question."""
        self.replicas.connected(self.peer.uuid)
        (_, _, on_reply) = self.asked.pop()
        on_reply(msgpack.packb([[0, [*counters], YOURS, config, True]]))

    def pump(self):
        """Have the node do what is due; what it has asked since."""
        self.asked.clear()
        self.replicas.pump()
        return [method for method, _, _ in self.asked]

    @property
    def clock(self):
        return self.name()[1][1]

    def value(self, key=b"k"):
        """What the node can read of a key."""
        data = self.node.get(self.copy.space, b"\1" + key)
        return None if data is None else record.value(data)


def made(counter, value=b"", *, origin=YOURS, time=None, key=b"k"):
    """A key and a record of it; its time is that of its counter unless told."""
    return [key, record.encode(counter if time is None else time, origin, counter, record.PUT, b"", value)]


def entry(begin, end, *, after=None, **more):
    """Records of the origin beside, from one counter on up to another."""
    flat = [part for count in range(begin, end + 1) for part in made(count, b"%d" % count, **more)]
    return [0, [0, begin - 1, 0], after, flat]
