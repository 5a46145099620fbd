"""Timers run in order, once, and none is lost."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossipkv.gossip.membership.timers import NEVER, Timers


@given(st.lists(st.integers(0, 100)), st.lists(st.integers(0, 120)))
def test_each_runs_once_when_it_is_due(times, wakes):
    """Each timer runs once and in the order of times, however early or late the wake-ups."""
    timers = Timers()
    ran: list[tuple[int, int]] = []
    for number, at in enumerate(times):
        timers.at(at, lambda now, number=number: ran.append((number, now)))
    assert timers.next_ms == min(times, default=NEVER)
    last = 0
    for wake in [*sorted(wakes), 200]:
        timers.run(wake)
        assert all(now == wake for _, now in ran[last:])
        last = len(ran)
        assert sorted(number for number, _ in ran) == [number for number, at in enumerate(times) if at <= wake]
    assert [times[number] for number, _ in ran] == sorted(times)
    assert timers.next_ms == NEVER


def test_a_timer_that_sets_itself_for_now_does_not_spin():
    """A timer set for now runs at the next call, not in the current one."""
    timers = Timers()
    ran = []

    def again(now_ms):
        ran.append(now_ms)
        timers.at(now_ms, again)

    timers.at(5, again)
    timers.run(5)
    assert ran == [5]
    assert timers.next_ms == 5
    timers.run(5)
    assert ran == [5, 5]


def test_one_that_fails_takes_no_other_with_it():
    """Timers that were set meanwhile or due later run the next time."""
    timers, ran = Timers(), []

    def fail(now_ms):
        timers.at(now_ms, lambda _: ran.append("set meanwhile"))
        raise AssertionError("planted")

    timers.at(5, lambda now_ms: timers.at(5, lambda _: ran.append("set before")))
    timers.at(6, fail)
    timers.at(7, lambda _: ran.append("later"))
    with pytest.raises(AssertionError, match="planted"):
        timers.run(10)
    assert timers.next_ms == 5
    timers.run(10)
    assert ran == ["set before", "later", "set meanwhile"]
    assert timers.next_ms == NEVER
