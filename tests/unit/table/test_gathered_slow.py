"""Plain writes through both loops of a real node: each loop gathers, and each answer and value is right."""

from __future__ import annotations

import random
import socket
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import msgpack
import trio

from gossipkv.environment.trio_world import real
from gossipkv.node import wiring
from gossipkv.serving import pumps
from gossipkv.settings.config import load
from gossipkv.wire import rpc

TABLE = {"kind": "hash", "partitions": 4, "replication": 1, "timeout_ms": 60_000}
WRITERS = 4


def ask(connection, *requests):
    """Return the results in the order of the requests, each of which is answered once."""
    connection.sendall(b"".join(map(rpc.request, range(len(requests)), *zip(*requests, strict=True))))
    unpacker, results = msgpack.Unpacker(), {}
    while len(results) < len(requests):
        unpacker.feed(connection.recv(1 << 16))
        for _, msgid, error, result in unpacker:
            assert (msgid in results, error) == (False, None)
            results[msgid] = result
    return [results[at] for at in range(len(requests))]


def write(number, pair):
    """Write own keys in bursts, each through the next loop, and read them in that session through the other."""
    draw, known = random.Random(number), {}
    for turn in range(60):
        burst, written = [], {}
        for place in range(draw.randrange(1, 40)):
            rows = [(b"%d/%d" % (number, draw.randrange(40)), b"%d %d" % (turn, place)) for _ in range(3)]
            method = draw.choice(("put", "put", "delete", "put_many"))
            sent = {"put": rows[0], "delete": rows[0][:1], "put_many": [rows]}[method]
            burst.append((method, ["t", *sent, {"level": "majority", "timeout_ms": 60_000}]))
            written.update({"put": rows[:1], "delete": [(rows[0][0], None)], "put_many": rows}[method])
        session = {"token": b"".join({*ask(pair[turn % 2], *burst)})}
        read = ask(pair[1 - turn % 2], *(("get", ["t", key, session]) for key in written))
        assert [value for value, *_ in read] == [*written.values()]
        known.update(written)
    return known


def ask_all(address):
    connections = [socket.create_connection(address, 60) for _ in range(2 * WRITERS)]
    ask(connections[0], ("create_table", ["t", TABLE]))
    for number in range(40):  # Each range answers now: until then writes wait in any order.
        ask(connections[0], ("delete", ["t", b"%d" % number, {"timeout_ms": 60_000}]))
    while not all(GATHERED.values()):  # The loops know calm replicas only after the node's next look at them.
        for each in connections[:2]:
            ask(each, ("delete", ["t", b"0", {"timeout_ms": 60_000}]))
    GATHERED.update(dict.fromkeys(GATHERED, 0))
    pairs = zip(connections[::2], connections[1::2], strict=True)  # A loop with fewer connections takes the next.
    with ThreadPoolExecutor(WRITERS) as writers:
        known = [row for rows in writers.map(write, range(WRITERS), pairs) for row in rows.items()]
    expected = sorted([key, value] for key, value in known if value is not None)
    for each in connections[:2]:
        info, page = ask(each, ("info", []), ("scan", ["t", {"limit": 1000}]))
        assert ([loop["connections"] for loop in info["pumps"]], page[0]) == ([WRITERS] * 2, expected)
    for each in connections:
        each.close()


GATHERED = {}  # By loop: how many rows were begun.


class CountingPump(pumps.Pump):
    def __init__(self, core, loop, sockets, answers, *others, **settings):
        super().__init__(core, loop, sockets, answers, *others, **settings)

        def begin(writes, *, may_wait):
            is_over = answers.begin_writes(writes, may_wait=may_wait)
            GATHERED[loop] += sum(each.has_begun * len(each.writes) for each in writes)
            return is_over

        GATHERED[loop] = 0
        loop.gather(SimpleNamespace(begin_writes=begin, may_write=answers.may_write), self._wake)


async def test_both_loops_gather_and_no_write_is_lost(tmp_path, monkeypatch):
    monkeypatch.setattr(pumps, "Pump", CountingPump)
    settings = {"data": str(tmp_path / "data"), "listen": "127.0.0.1:0", "pumps": "2"}
    async with trio.open_nursery() as nursery:
        address = await nursery.start(wiring.run, load(None, {}, settings), real())
        await trio.to_thread.run_sync(ask_all, address)
        nursery.cancel_scope.cancel()
    assert min(GATHERED.values()) > 0
