"""A serving loop with a thread of its own reads a table, while another thread changes records, views and rows."""

from __future__ import annotations

import random
import select
import socket
import threading
import time

import msgpack
import pytest

from gossipkv.replication._replication import CalmReplica, CalmTable
from gossipkv.replication.replica import clock, record
from gossipkv.replication.replica.keys import RECORD
from gossipkv.serving._serving import Core, Loop, LoopGroup, PublishedTable
from gossipkv.serving._transport import Sockets
from gossipkv.storage.engine._engine import Batch, Memtable, ReadGate
from gossipkv.wire import rpc
from tests.unit.serving.driven import LIMITS, NODE
from tests.unit.storage.engine.layers import run_of
from tests.unit.table.record_nodes import TOKEN_KEYS
from tests.unit.table.test_calm import REQUESTS, drawn

SPACE = 1
TABLE = bytes(16)
KEYS = [b"%04d" % number for number in range(600)]  # More than the slice of a batch that is applied at once.
RUN_S = 3.0
STATES = 60  # In each part of the drawn ones.
MEMTABLE_BYTES = 1 << 22


class World:
    """The second loop of a node, which a thread serves, and a store that this thread changes."""

    def __init__(self):
        group = LoopGroup(2, max_connections=9, max_of_address=0, max_in_flight=99, max_held=1 << 24)
        limits = {name: limit for name, limit in LIMITS.items() if not name.startswith(("max_connections", "max_held"))}
        del limits["max_in_flight_total"]
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.listener.settimeout(0)
        self.first = Loop(Core(**limits, node=NODE, group=group), Sockets(self.listener, polls=False))
        self.loop = Loop(Core(**limits, node=NODE, group=group, pump=1), Sockets(None, polls=False))
        self.lock = self.loop.core.lock
        self.gate = ReadGate()
        self.gate.serve([self.lock])
        self.table = CalmTable("t", TABLE, TOKEN_KEYS, self.gate, 0)
        self.memtable, self.old, self.run = Memtable(MEMTABLE_BYTES), None, None
        self.counter = 0
        self.show()
        self.write(0)
        with self.lock:
            self.loop.core.publish(PublishedTable((), [self.table]))

    def write(self, number):
        """Put a number under each key, in one batch."""
        batch = Batch()
        for key in KEYS:
            self.counter += 1
            data = record.encode(self.counter, 1, self.counter, record.PUT, b"", b"%d" % number)
            batch.put(SPACE, RECORD + key, data)
        self.gate.apply(self.memtable, batch)
        self.serve()

    def serve(self):
        """Replace the replica in the table's rows, as after a map change."""
        replica = CalmReplica(SPACE, b"", None, (1,), 1, 1)
        replica.syncs(clock.of([(1, self.counter)]))
        self.table.serve(1, [replica], has_all=True)

    def turn(self):
        """Close the memtable, and later replace it by a run, as a flush does."""
        if self.old is None:
            self.old, self.memtable = self.memtable, Memtable(MEMTABLE_BYTES)
        else:
            rows = dict(self.old.list_records())
            self.run, self.old = run_of(rows), None
        self.show()

    def show(self):
        memtables = [self.memtable] if self.old is None else [self.memtable, self.old]
        self.view = self.gate.show(memtables, [] if self.run is None else [self.run])

    def client(self):
        """Return a connection that the thread serves."""
        clients = self.clients = [socket.create_connection(self.listener.getsockname(), timeout=60) for _ in range(2)]
        while self.first.connection_count < 1 or self.count() < 1:
            self.first.round(_never, 1000, 1000)
        for client in clients:
            client.sendall(rpc.request(1, "ping", []))
        (served,), _, _ = select.select(clients, [], [], 60)
        assert served.recv(100) == rpc.response(1, "pong")
        return served

    def answer(self):
        """Answer what the thread has handed to Python with nil."""
        with self.lock:
            self.loop.round(lambda _method, _params, _caller: b"\xc0", 1000, 1000)

    def count(self):
        with self.lock:
            return self.loop.connection_count


def _never(method, params, _caller):
    raise AssertionError(method, params)


@pytest.fixture
def world():
    world = World()
    thread = threading.Thread(target=world.loop.serve_alone, args=(1000,))
    thread.start()
    try:
        yield world
    finally:
        with world.lock:
            world.loop.stop()
        thread.join()
        with world.lock:
            world.loop.close()
        world.first.close()
        world.listener.close()


def read(client, over, failures, counts):
    """Read keys, each alone or together with others; no number may fall."""
    draw, last, unpacker = random.Random(1), dict.fromkeys(KEYS, 0), msgpack.Unpacker()
    while not over.is_set():
        keys = draw.sample(KEYS, 40)
        client.sendall(b"".join(rpc.request(number, "get", ["t", key]) for number, key in enumerate(keys)))
        client.sendall(rpc.request(99, "get_many", ["t", keys]))
        client.sendall(rpc.request(100, "scan", ["t", {"start": keys[0], "limit": 300}]))
        answers = {}
        while len(answers) < len(keys) + 2:
            unpacker.feed(client.recv(1 << 16))
            answers.update({msgid: (error, result) for _, msgid, error, result in unpacker})
        values = [answers[number][1][0] for number in range(len(keys))]
        together = answers[99][1] or [values]  # Nil if the rows changed between two windows.
        page = answers[100][1][0]
        for key, value in [*zip(keys, values, strict=True), *zip(keys, together[0], strict=True), *page]:
            if int(value) < last[key]:
                failures.append((key, value, last[key]))
                return
            last[key] = int(value)
        counts.append(len(keys))


def test_no_reader_meets_a_change_in_the_making(world):
    """Values never go back, while a writer applies batches in slices, and replaces views and rows."""
    client, over, failures, counts = world.client(), threading.Event(), [], []
    reader = threading.Thread(target=read, args=(client, over, failures, counts))
    reader.start()
    until, number = time.monotonic() + RUN_S, 0
    while time.monotonic() < until and not failures:
        number += 1
        world.write(number)
        world.answer()
        if number % 5 == 0:
            world.turn()
    over.set()
    while reader.is_alive():
        world.answer()
    for one in world.clients:
        one.close()
    assert not failures
    assert number > 10
    assert len(counts) > 10


@pytest.mark.parametrize("part", range(4))
def test_drawn_requests_get_the_same_bytes_from_both(part):
    for number in range(STATES):
        drawn(1000 + part * STATES + number, REQUESTS)
