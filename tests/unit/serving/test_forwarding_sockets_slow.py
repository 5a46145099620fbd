"""Reads that other nodes answer, over real sockets between loops."""

from __future__ import annotations

import socket
import sys
from typing import TYPE_CHECKING

import msgpack
import pytest

from gossipkv.serving._serving import Refusal
from gossipkv.wire import rpc
from tests.unit.serving.asker import (
    ALL,
    AWAY,
    IDENTITY,
    PARTITIONS,
    RECORDS,
    table,
)
from tests.unit.serving.driven import make_version
from tests.unit.serving.test_serving_slow import PATIENCE_S, Asked, Served
from tests.world._world import Driver

if TYPE_CHECKING:
    from pathlib import Path

    from gossipkv.serving._serving import Caller
    from gossipkv.wire.rpc import Value


class Cluster:
    """Two loops over real sockets; the first has partition 0 and asks the second for the rest."""

    def __init__(self, directory: Path, **limits: int) -> None:
        self.asker, self.owner = Served(directory, **limits), Served(directory)
        files = make_version(directory, "db", "v1", RECORDS, PARTITIONS).files
        self.asker.core.publish(table([files[0], None, None, None]))
        self.owner.core.publish(table([None, *files[1:]], active=False))
        self.asker.core.set_peer(0, "owner:1", 0)
        self.asker.core.set_holder(IDENTITY, PARTITIONS, 0, ALL)
        to_owner = socket.create_connection(self.owner.address)
        self.asker.loop.adopt(0, to_owner.detach())

    def exchange(self, client: socket.socket, data: bytes, count: int) -> list[list[Value]]:
        unpacker = msgpack.Unpacker()
        answers: list[list[Value]] = []
        client.sendall(data)

        def done() -> bool:
            self.owner.step()
            try:
                unpacker.feed(client.recv(1 << 16))
            except BlockingIOError:
                return False
            answers.extend(unpacker)
            return len(answers) == count

        self.asker.until(done)
        return answers

    def close(self) -> None:
        self.asker.close()
        self.owner.close()


def test_over_sockets(tmp_path: Path) -> None:
    """All keys are answered, and Python is called for none of them."""
    cluster = Cluster(tmp_path)
    client = cluster.asker.connect()
    requests = b"".join(rpc.request(number, "get", ["db", key]) for number, key in enumerate(RECORDS))
    answers = cluster.exchange(client, requests, len(RECORDS))
    assert {msgid: result for _, msgid, _, result in answers} == {
        number: [value, "v1"] for number, value in enumerate(RECORDS.values())
    }
    assert cluster.asker.counters("forward_answers") == len(AWAY)
    assert cluster.asker.counters("handed_off") == cluster.owner.counters("handed_off") == 0
    assert (cluster.asker.loop.connection_count, cluster.asker.counters("peers")) == (1, 1)
    cluster.close()


def test_who_is_of_another_cluster_is_told_so_and_goes(tmp_path: Path) -> None:
    """The refused hello ends the connection only if the refusal says so."""
    owner = Served(tmp_path)
    client = owner.connect()
    for msgid, ends in enumerate((False, True)):
        error = ["UNAUTHORIZED", "no", {}]
        client.sendall(rpc.request(msgid, "hello", [{}]))
        owner.until(lambda: bool(owner.hand_offs))
        owner.loop.complete(owner.hand_offs.pop(), Refusal(msgpack.packb(error), ends=ends))
        expected = msgpack.packb([1, msgid, error, None])
        assert (owner.ends(client) if ends else owner.receive(client, len(expected))) == expected
    client.close()
    owner.until(lambda: owner.loop.connection_count == 0)
    assert owner.counters("closed_unauthorized") == 1
    owner.close()


def test_no_python_call_for_what_is_forwarded(tmp_path: Path) -> None:
    """The profile of 5,000 pipelined reads, amid which a peer dies, shows only the few calls of the rounds."""
    cluster = Cluster(tmp_path)
    second = socket.create_connection(cluster.owner.address)
    cluster.asker.core.set_peer(1, "second:1", 0)
    cluster.asker.core.set_holder(IDENTITY, PARTITIONS, 1, ALL)
    cluster.asker.loop.adopt(1, second.detach())
    dead, peer = socket.socketpair()
    cluster.asker.core.set_peer(2, "dead:1", 0)
    cluster.asker.core.set_holder(IDENTITY, PARTITIONS, 2, ALL)
    cluster.asker.loop.adopt(2, dead.detach())
    client = cluster.asker.connect()
    unpacker = msgpack.Unpacker()
    events = rounds = answers = sent = 0

    def watch(_frame: object, _event: str, _argument: object) -> None:
        nonlocal events
        events += 1

    serve = cluster.asker.loop.round
    while answers < 5_000:
        if answers == sent:
            client.settimeout(PATIENCE_S)
            client.sendall(b"".join(rpc.request(n, "get", ["db", AWAY[n % len(AWAY)]]) for n in range(500)))
            client.settimeout(0)
            sent += 500
        rounds += 1
        sys.setprofile(watch)
        handed_off = serve(Asked, 100_000, 1000)
        sys.setprofile(None)
        assert handed_off == []
        if answers > 0 and peer.fileno() >= 0:
            peer.close()
        cluster.owner.step()
        try:
            unpacker.feed(client.recv(1 << 20))
        except BlockingIOError:
            continue
        for _, _, error, (value, _) in unpacker:
            assert error is None
            assert value.startswith(b"value")
            answers += 1
    assert cluster.asker.counters("forwarded") == 5_000
    assert cluster.asker.core.take_peer_events()[0][:2] == (2, "lost")
    each = 14 if Driver(cluster.asker.core).checks else 4  # A traced build shows more of a round.
    assert 0 < events <= each * rounds
    cluster.close()


def test_a_peer_that_is_silent_costs_a_stage(tmp_path: Path) -> None:
    """Only the timer makes the loop ask the next owner."""
    cluster = Cluster(tmp_path, proxy_timeout_ms=60_000, proxy_stage_timeout_ms=25)
    silent, peer = socket.socketpair()
    cluster.asker.core.set_peer(0, "owner:1", 1)
    cluster.asker.core.set_peer(1, "silent:1", 0)
    cluster.asker.core.set_holder(IDENTITY, PARTITIONS, 1, ALL)
    cluster.asker.loop.adopt(1, silent.detach())
    client = cluster.asker.connect()
    ((_, _, error, result),) = cluster.exchange(client, rpc.request(1, "get", ["db", AWAY[0]]), 1)
    assert (error, result) == (None, [RECORDS[AWAY[0]], "v1"])
    assert cluster.asker.counters("forward_silences") > 0  # On a busy machine the owner may be silent as well.
    peer.close()
    cluster.close()


def test_a_report_reaches_python(tmp_path: Path) -> None:
    """The hand-off has no method; Python's answer is the client's error."""
    cluster = Cluster(tmp_path, proxy_timeout_ms=100, proxy_stage_timeout_ms=25)
    cluster.asker.core.forget_peer(0)
    client = cluster.asker.connect()
    client.sendall(rpc.request(1, "get", ["db", AWAY[0]]))
    reports = []

    def answer(method: bytes | None, params: bytes, _caller: Caller) -> bytes:
        assert method is None
        reports.append(msgpack.unpackb(params))
        return msgpack.packb("given up")

    while not reports:
        assert cluster.asker.loop.round(answer, 1000, 1000) == []
    assert reports[0][0] == ["db", AWAY[0]]
    expected = rpc.response(1, "given up")
    assert cluster.asker.receive(client, len(expected)) == expected
    cluster.close()


def test_draining_does_not_wait_for_peers(tmp_path: Path) -> None:
    """Connections to other nodes are not counted, and end with the loop."""
    cluster = Cluster(tmp_path)
    client = cluster.asker.connect()
    cluster.exchange(client, rpc.request(1, "get", ["db", AWAY[0]]), 1)
    client.sendall(rpc.request(2, "get", ["db", AWAY[1]]))
    cluster.asker.loop.drain()
    cluster.asker.until(lambda: bool(cluster.owner.step()) or cluster.asker.counters("forward_answers") == 2)
    assert cluster.asker.ends(client) == rpc.response(2, [RECORDS[AWAY[1]], "v1"])
    client.close()
    cluster.asker.until(lambda: cluster.asker.loop.connection_count == 0)
    assert cluster.asker.counters("peers") == 1
    cluster.close()


def test_a_connection_for_a_loop_that_is_over_is_closed(tmp_path: Path) -> None:
    """A dialler need not know that the loop has ended."""
    cluster = Cluster(tmp_path)
    cluster.close()
    here, there = socket.socketpair()
    cluster.asker.loop.adopt(0, here.detach())
    assert there.recv(1) == b""
    there.close()


def test_a_descriptor_for_nobody_stays_the_caller_s(tmp_path: Path) -> None:
    """`adopt` of a column without a peer changes nothing."""
    cluster = Cluster(tmp_path)
    here, there = socket.socketpair()
    with pytest.raises(KeyError):
        cluster.asker.loop.adopt(5, here.fileno())
    here.send(b"x")
    assert there.recv(1) == b"x"
    here.close()
    there.close()
    cluster.close()
