"""The order in which requests are answered."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossipkv.serving._serving import Backlog
from tests.oracle import backlog as oracle


def test_connections_take_turns() -> None:
    """A connection's requests keep their order, and connections take turns."""
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
    """The requests of a closed connection are dropped; an unknown connection is ignored."""
    backlog = Backlog()
    backlog.add([(1, 0, b"scan", b"12345"), (2, 0, b"scan", b"123"), (1, 1, b"scan", b"12345")])
    backlog.forget(1)
    backlog.forget(7)
    assert (bool(backlog), backlog.size_bytes) == (True, 7)
    assert backlog.take() == (2, 0, b"scan", b"123")
    assert (bool(backlog), backlog.size_bytes) == (False, 0)


def test_a_connection_that_is_parked() -> None:
    """Parked requests keep their order with later ones, and take turns again after `resume`."""
    backlog = Backlog()
    backlog.add([(1, 0, b"scan", b"12345"), (2, 0, b"scan", b"123"), (1, 1, b"scan", b"12345")])
    assert backlog.turn == 1
    backlog.park(1)
    backlog.add([(1, 2, b"scan", b"1")])
    assert (backlog.turn, backlog.size_bytes, backlog.parked_bytes) == (2, 7, 23)
    assert backlog.take()[:2] == (2, 0)
    assert not backlog
    backlog.add([(3, 0, b"scan", b"12")])
    backlog.resume([1, 7])
    assert (backlog.size_bytes, backlog.parked_bytes) == (29, 0)
    assert [backlog.take()[:2] for _ in range(4)] == [(3, 0), (1, 0), (1, 1), (1, 2)]
    assert (bool(backlog), backlog.size_bytes) == (False, 0)


def test_a_parked_connection_that_is_gone() -> None:
    backlog = Backlog()
    backlog.add([(1, 0, b"scan", b"12345")])
    backlog.park(1)
    backlog.forget(1)
    backlog.resume([1])
    assert (bool(backlog), backlog.size_bytes, backlog.parked_bytes) == (False, 0, 0)


def test_an_empty_one_has_no_turn() -> None:
    with pytest.raises(IndexError):
        _ = Backlog().turn
    with pytest.raises(IndexError):
        Backlog().take()


def test_a_slot_that_is_used_again() -> None:
    """The earlier connection's requests are dropped when the later one asks, even if parked."""
    backlog = Backlog()
    for parked in (False, True):
        backlog.add([(5, 0, b"scan", b"123"), (6, 0, b"scan", b"1")])
        if parked:
            backlog.park(5)
        backlog.add([(5 + (1 << 32), 9, b"scan", b"12345")])
        assert (backlog.size_bytes, backlog.parked_bytes) == (14, 0)
        assert [backlog.take()[:2] for _ in range(2)] == [(6, 0), (5 + (1 << 32), 9)]
        assert not backlog


HANDLES = st.builds(
    lambda slot, generation: slot + (generation << 32), st.sampled_from([0, 1, 2, 3, 40, 200]), st.integers(0, 1)
)
STEPS = st.one_of(
    st.tuples(st.just("add"), HANDLES, st.integers(0, 5)),
    st.tuples(st.sampled_from(["take", "take", "park", "resume", "forget"]), HANDLES, st.just(0)),
)


@given(st.lists(STEPS, max_size=80))
def test_any_order_of_steps_is_the_oracle_s(steps: list[tuple[str, int, int]]) -> None:
    """Turns, order, drops and both sums agree with the oracle."""
    ours, expected = Backlog(), oracle.Backlog()
    for number, (step, handle, size) in enumerate(steps):
        if step == "add":
            request = [(handle, number, b"m" * size, b"p" * size)]
            ours.add(request)
            expected.add(request)
        elif step == "take":
            assert bool(ours) is bool(expected)
            if expected:
                assert ours.turn == expected.turn
                assert ours.take() == expected.take()
        elif step == "park":
            ours.park(handle)
            expected.park(handle)
        elif step == "resume":
            ours.resume([handle])
            expected.resume([handle])
        else:
            ours.forget(handle)
            expected.forget(handle)
        assert (ours.size_bytes, ours.parked_bytes) == (expected.size_bytes, expected.parked_bytes)
    while expected:
        assert ours.take() == expected.take()
    assert not ours
