"""The order in which requests are answered."""

from __future__ import annotations

from gossipkv.node.backlog import Backlog


def test_connections_take_turns() -> None:
    """Each connection's requests in order; one that asks for much gets one answer where the others get one."""
    backlog = Backlog()
    backlog.add([(1, number, b"scan", b"\x90") for number in range(4)])
    backlog.add([(2, 0, b"scan", b"\x90"), (3, 0, b"info", b"\x90"), (2, 1, b"scan", b"\x90")])
    taken = []
    while backlog:
        taken.append(backlog.take()[:2])
        if len(taken) == 2:
            backlog.add([(4, 0, b"info", b"\x90")])
    assert taken == [(1, 0), (2, 0), (3, 0), (1, 1), (2, 1), (4, 0), (1, 2), (1, 3)]
    assert backlog.size_bytes == 0


def test_a_connection_that_is_gone() -> None:
    """Its requests are dropped, their bytes with them; one that has none is no matter."""
    backlog = Backlog()
    backlog.add([(1, 0, b"scan", b"12345"), (2, 0, b"scan", b"123"), (1, 1, b"scan", b"12345")])
    backlog.forget(1)
    backlog.forget(7)
    assert (bool(backlog), backlog.size_bytes) == (True, 3)
    assert backlog.take() == (2, 0, b"scan", b"123")
    assert (bool(backlog), backlog.size_bytes) == (False, 0)


def test_a_connection_that_is_parked() -> None:
    """Its requests keep their order, also with those that come later, and take their turn when it goes on."""
    backlog = Backlog()
    backlog.add([(1, 0, b"scan", b"12345"), (2, 0, b"scan", b"123"), (1, 1, b"scan", b"12345")])
    assert backlog.turn == 1
    backlog.park(1)
    backlog.add([(1, 2, b"scan", b"1")])
    assert (backlog.turn, backlog.size_bytes, backlog.parked_bytes) == (2, 3, 11)
    assert backlog.take()[:2] == (2, 0)
    assert not backlog
    backlog.add([(3, 0, b"scan", b"12")])
    backlog.resume([1, 7])
    assert (backlog.size_bytes, backlog.parked_bytes) == (13, 0)
    assert [backlog.take()[:2] for _ in range(4)] == [(3, 0), (1, 0), (1, 1), (1, 2)]
    assert (bool(backlog), backlog.size_bytes) == (False, 0)


def test_a_parked_connection_that_is_gone() -> None:
    """Nothing is left of it."""
    backlog = Backlog()
    backlog.add([(1, 0, b"scan", b"12345")])
    backlog.park(1)
    backlog.forget(1)
    backlog.resume([1])
    assert (bool(backlog), backlog.size_bytes, backlog.parked_bytes) == (False, 0, 0)
