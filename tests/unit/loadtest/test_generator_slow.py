"""Slow tests of the generator; the fast ones are in `test_generator.py`."""

from __future__ import annotations

import socket

from gossipkv.loadtest._loadtest import Generator, RpcDialect
from tests.unit.loadtest.scripted import MS, RECORDS, Peer, right


def test_a_broken_connection_is_made_again() -> None:
    """The first attempt is immediate, and later ones are ever rarer; only requests in flight are lost."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        where = listener.getsockname()
        ours = socket.create_connection(where)
        theirs, _ = listener.accept()
        generator = Generator(
            RpcDialect("db", RECORDS), [ours], in_flight=2, batch=1, timeout_ms=1000, seed=1, redial=True
        )
        generator.begin(duration_ns=5000 * MS, now_ns=0)
        peer = Peer(theirs)
        peer.send(right(peer.asked()[0]))
        generator.step_at(1 * MS)
        theirs.close()
        generator.step_at(2 * MS)
        assert (generator.connections, generator.tally.lost, generator.tally.reconnects) == (0, 2, 0)
        generator.step_at(3 * MS)
        theirs, _ = listener.accept()
        generator.step_at(4 * MS)
        assert (generator.connections, generator.tally.reconnects) == (1, 1)
        peer = Peer(theirs)
        assert len(peer.asked()) == 2
    theirs.close()
    moments = []
    for now in range(5, 1000):
        before = generator.tally.lost
        generator.step_at(now * MS)
        moments += [now] * (generator.tally.lost > before)
    assert (generator.tally.lost, generator.tally.broken().keys() <= {"closed", "reset"}) == (4, True)
    with socket.create_server(where) as listener:
        for now in range(1000, 2100):
            generator.step_at(now * MS)
        theirs, _ = listener.accept()
        assert (generator.connections, generator.tally.reconnects) == (1, 2)
        theirs.close()
        assert generator.step_at(2101 * MS)
    while generator.step_at(5001 * MS):
        pass
    generator.close()


def test_an_open_loop_goes_on_with_connections_that_came_again() -> None:
    """The slots of a broken connection become free once it is back."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ours = socket.create_connection(listener.getsockname())
        theirs, _ = listener.accept()
        generator = Generator(
            RpcDialect("db", RECORDS), [ours], in_flight=3, batch=1, timeout_ms=1000, seed=1, redial=True
        )
        generator.begin(rate=1000, duration_ns=30 * MS, now_ns=0)
        for now in range(1, 70):
            generator.step_at(now * MS)
            peer = Peer(theirs)
            for asked in peer.asked() if 0 < now % 10 < 7 else ():  # All slots are busy when the connection breaks.
                peer.send(right(asked))
            if now == 10:
                theirs.close()
                while generator.connections:
                    generator.step_at(now * MS)
                generator.step_at(now * MS)
                theirs, _ = listener.accept()
                theirs.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # Real time passes unnoticed in this test.
            generator.step_at(now * MS)
        tally = generator.tally
        assert (tally.reconnects, tally.answered + tally.lost, generator.unsent) == (1, 30, 0)
        theirs.close()
        generator.close()
