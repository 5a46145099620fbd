"""A node whose serving loop gathers plain writes of tables, over streams and a clock that a test moves by hand."""

from __future__ import annotations

import random
from types import SimpleNamespace

import msgpack

from gossipkv.errors import Unauthorized
from gossipkv.node.methods import Handlers
from gossipkv.replication.replica import clock
from gossipkv.replication.replica.replica import AssignedReplica
from gossipkv.serving._serving import Loop, PublishedTable
from gossipkv.wire import rpc
from tests.unit.serving.driven import make_core
from tests.unit.serving.test_rounds import HandClock, HandListener, HandStream
from tests.unit.table.calm_nodes import CalmNode
from tests.world.nodes.streams import over_streams


class Client:
    """A connection to the node, and its answers by request: each has its bytes."""

    def __init__(self, listener):
        self.stream = HandStream()
        self.stream.room_bytes = 1 << 30
        self.sent, self._read = 0, 0
        self._unsent, self.answers = b"", {}
        listener.waiting.append(self.stream)

    def ask(self, method, *params):
        self.sent += 1
        self._unsent += rpc.request(self.sent, method, params)
        return self.sent

    def send(self):
        """Send all requests at once."""
        if self._unsent:
            self.stream.arrived.append(self._unsent)
            self._unsent = b""

    def take(self):
        """Read what has come. Each request has at most one answer."""
        data, self._read = self.stream.sent[self._read :], len(self.stream.sent)
        unpacker = msgpack.Unpacker()
        unpacker.feed(data)
        begin = 0
        for _, msgid, _, _ in unpacker:
            assert msgid not in self.answers, "a request is answered once"
            self.answers[msgid] = data[begin : unpacker.tell()]
            begin = unpacker.tell()
        assert begin == len(data)

    def outcome(self, msgid):
        """Return the code of the error, "ok", or None: there is no answer yet."""
        if msgid not in self.answers:
            return None
        _, _, error, _ = msgpack.unpackb(self.answers[msgid])
        return "ok" if error is None else error[0]

    def token(self, msgid):
        assert self.outcome(msgid) == "ok"
        return msgpack.unpackb(self.answers[msgid])[3]


class GatheringNode(CalmNode):
    """A node of `Records`, and a whole loop; `gathers`: the loop gathers plain writes."""

    def __init__(self, records, node, *, gathers=True):
        self.loop_core = make_core()
        super().__init__(records, node)
        node.is_writing = False
        self.link()
        self.forbidden = set()  # The tables that the client may not write to.
        self._table = ""  # The table of the request that Python answers now.
        access = SimpleNamespace(
            now=float, is_open=False, judge=self._judge, may=lambda _, __, table: table not in self.forbidden
        )
        known = {**node.methods.methods, **node.methods.reads}
        self.handlers = Handlers(known, {}, access, None, random.Random(1), writer=node.methods.begin_writes)
        self.listener = HandListener()
        self.loop = Loop(self.loop_core, over_streams(HandClock())(self.listener, polls=False))
        self.begun = []  # How many rows of each replica were begun together.
        if gathers:
            self.loop.gather(SimpleNamespace(begin_writes=self._begin, may_write=self.handlers.may_write), lambda: None)
        self.client = Client(self.listener)
        self.round()

    def serve_tables(self, tables):
        super().serve_tables(tables)
        self.loop_core.publish(PublishedTable((), [*tables]))

    def link(self):
        """Let all other nodes be reached."""
        for other in self.records.nodes:
            if other is not self.node:
                peer = self.node.replicas._peer(other.uuid)
                peer.link, peer.greeted = 1, True

    def forbid(self, *tables):
        """Take the right to write to these tables from the client."""
        self.forbidden = set(tables)
        self.loop_core.let_read([None])

    def _judge(self, _arguments, _caller):
        if self._table in self.forbidden:
            raise Unauthorized("the user may not write here")

    def _answer(self, method, params, caller):
        first = msgpack.unpackb(params, raw=True)[0]
        self._table = first.decode(errors="replace") if isinstance(first, bytes) else ""
        return self.handlers.answer(method, params, caller)

    def _begin(self, gathered, *, may_wait):
        is_over = self.handlers.begin_writes(gathered, may_wait=may_wait)
        self.begun += [len(writes.writes) for writes in gathered if writes.has_begun]
        return is_over

    def begin_writes(self):
        """Begin the writes that the loop has held, as the pump does."""
        self._go_on(self.loop.begin_writes(self._answer))

    def round(self):
        """Let the loop read and answer, without a sync of the store."""
        self.client.send()
        self._go_on(self.loop.round(self._answer, 1000, 1000))
        while self.loop.has_work:
            self._go_on(self.loop.round(self._answer, 1000, 1000))
        self.client.take()

    def _go_on(self, pending):
        for request in pending:
            self._complete(request)

    def _complete(self, request):
        self.handlers.begin(request.method, request.waiting, lambda answer: self.loop.complete(request, answer))

    def settle(self):
        """Sync what was written, and take the answers."""
        self.records.run()
        self.round()

    def confirm(self, replica, at=None, hosts=8):
        """Let other hosts confirm a clock of a replica, or all that is synced."""
        others = [host for host in replica.hosts if host.assignment != replica.assignment]
        for host in others[:hosts]:
            status = SimpleNamespace(assignment=AssignedReplica(*host).assignment, config=replica.config)
            self.node.hears(replica, status, replica.synced if at is None else at)

    def counters(self):
        return {
            (replica.partition, dict(clock.entries(replica.synced))[replica.assignment])
            for replica in self.node.replicas.by_partition.values()
        }
