"""A node whose peer is played by the test."""

from __future__ import annotations

import msgpack

from gossipkv.replication.replica import record
from tests.unit.table.record_nodes import CONFIG, Records

MINE, YOURS, THIRD = 1, 2, 3  # The assignments of the node under test, of its peer and of the third node.
LINK = 77


class Talker:
    """The peer that the test plays, and the node under test."""

    def __init__(self):
        self.records = Records(3)
        self.table = self.records.make("t", firsts=1, holders=lambda _: self.records.nodes)
        self.node, self.peer, self.third = self.records.nodes
        self.replicas = self.node.replicas
        self.asked = []  # Method, parameters and on_reply of each question of the node.
        self.asides = []
        self.node.ask = lambda *question: self.asked.append(question[1:])
        self.node.barred = self.asides.append
        self.node.look = self._look
        (self.copy,) = self.replicas.by_partition.values()
        self.begin()

    def _look(self, node, look):
        """Answer that the log has no entries from before this replica."""
        self.replicas.peers[node].sender.read(look, [], self.replicas.tail.first)

    def begin(self, counters=(0, 0, 0), config=CONFIG):
        """Begin a link, and report the counters."""
        return self.name(counters, config, whole=True)

    def name(self, counters=(0, 0, 0), config=CONFIG, *, whole=False):
        """Report the replica with all names, so that the node answers with its own."""
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
        """Connect the node, and answer its first question."""
        self.replicas.connected(self.peer.uuid)
        (_, _, on_reply) = self.asked.pop()
        on_reply(msgpack.packb([[0, [*counters], YOURS, config, True]]))

    def pump(self):
        """Run the due work of the node; return the methods that it has called."""
        self.asked.clear()
        self.replicas.pump()
        return [method for method, _, _ in self.asked]

    @property
    def clock(self):
        return self.name()[1][1]

    def value(self, key=b"k"):
        data = self.node.get(self.copy.space, b"\1" + key)
        return None if data is None else record.value(data)


def made(counter, value=b"", *, origin=YOURS, time=None, key=b"k"):
    """Return a key and a record; the default time is the counter."""
    return [key, record.encode(counter if time is None else time, origin, counter, record.PUT, b"", value)]


def entry(begin, end, *, after=None, **more):
    """Return an entry with the origin's records from one counter to another."""
    flat = [part for count in range(begin, end + 1) for part in made(count, b"%d" % count, **more)]
    return [0, [0, begin - 1, 0], after, flat]
