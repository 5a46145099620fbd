"""Rumours spread in a fair order and a limited number of times."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gossipkv.gossip.membership.rumours import Rumours


def test_told_so_often_and_no_more():
    rumours = Rumours()
    rumours.add(b"a", b"about a")
    assert [rumours.take(100, 3) for _ in range(4)] == [[b"about a"]] * 3 + [[]]
    assert len(rumours) == rumours.size == 0


def test_the_newer_takes_the_place_of_the_older():
    """The newer statement about a subject replaces the older one and spreads the full number of times."""
    rumours = Rumours()
    rumours.add(b"a", b"old")
    rumours.take(100, 3)
    rumours.add(b"a", b"newer")
    assert [rumours.take(100, 3) for _ in range(4)] == [[b"newer"]] * 3 + [[]]


def test_what_was_told_least_goes_first():
    """A fresh rumour precedes those that were sent before, and the newest goes first."""
    rumours = Rumours()
    rumours.add(b"a", b"a")
    rumours.take(1, 9)
    rumours.add(b"b", b"b")
    rumours.add(b"c", b"c")
    # All rumours were sent once by now; the latest to reach that number goes first.
    assert [rumours.take(1, 9) for _ in range(5)] == [[b"c"], [b"b"], [b"b"], [b"c"], [b"a"]]


def test_what_does_not_fit_waits():
    """A part larger than the room lets smaller ones pass, and goes when there is room."""
    rumours = Rumours()
    rumours.add(b"small", b"s")
    rumours.add(b"large", b"l" * 50)
    assert rumours.take(10, 9) == [b"s"]
    assert rumours.take(60, 9) == [b"l" * 50, b"s"]


def test_removed():
    rumours = Rumours()
    rumours.add(b"a", b"a")
    rumours.remove(b"a")
    rumours.remove(b"a")
    assert rumours.take(9, 9) == []
    assert b"a" not in rumours


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("add"), st.binary(min_size=1, max_size=1), st.binary(min_size=1, max_size=40)),
            st.tuples(st.just("take"), st.integers(0, 80), st.integers(1, 5)),
            st.tuples(st.just("remove"), st.binary(min_size=1, max_size=1), st.none()),
        ),
        max_size=60,
    )
)
def test_it_fits_and_adds_up(steps):
    """Parts fit the room, each subject once, and the size matches the waiting parts."""
    rumours = Rumours()
    waiting: dict[bytes, bytes] = {}
    for step, first, second in steps:
        if step == "add":
            rumours.add(first, second)
            waiting[first] = second
        elif step == "remove":
            rumours.remove(first)
            waiting.pop(first, None)
        else:
            taken = rumours.take(first, second)
            assert sum(map(len, taken)) <= first
            assert len(taken) <= len(waiting)
            assert all(part in waiting.values() for part in taken)
            waiting = {subject: part for subject, part in waiting.items() if subject in rumours}
        assert rumours.size == sum(map(len, waiting.values()))
        assert len(rumours) == len(waiting)


@given(st.integers(1, 60), st.integers(1, 12), st.integers(10, 100))
def test_nobody_is_told_twice_before_all_were_told_once(subjects, limit, room):
    """No part goes out a second time while another of the same size has not gone out at all."""
    rumours = Rumours()
    for subject in range(subjects):
        rumours.add(bytes([subject]), bytes([subject]) * 10)
    told: dict[bytes, int] = {}
    while rumours:
        for part in rumours.take(room, limit):
            told[part] = told.get(part, 0) + 1
        assert max(told.values()) <= min([told.get(bytes([one]) * 10, 0) for one in range(subjects)]) + 1
    assert set(told.values()) == {limit}
