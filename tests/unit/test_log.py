"""The log limits repeated lines and lines about strangers."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from math import inf

from hypothesis import given
from hypothesis import strategies as st

from gossipkv.log import (
    LIMITED_PERIOD_S,
    LINES_PER_S,
    MAX_BURST_LINES,
    MAX_SPARED,
    MAX_WARNINGS,
    LineLimits,
    Log,
    RepeatedWarnings,
    Sparing,
)
from tests.world.logs import capture_logs


def test_the_same_is_told_again_after_a_pause() -> None:
    """The pause applies to each address alone."""
    sparing = Sparing(1.0)
    told = [sparing.lets(tick / 4, address) for tick in range(9) for address in ("10.0.0.1", "10.0.0.2")]
    assert told == [tick % 4 == 0 for tick in range(9) for _ in range(2)]


def test_of_strangers_without_end_some_are_told() -> None:
    """Strangers fill neither memory nor log; after a pause other strangers are logged."""
    sparing = Sparing(1.0)
    assert sum(sparing.lets(0.5, number) for number in range(2 * MAX_SPARED)) == MAX_SPARED
    assert len(sparing._logged) == MAX_SPARED
    assert sum(sparing.lets(1.5, -1 - number) for number in range(2 * MAX_SPARED)) == MAX_SPARED


def test_each_line_is_said_once_and_no_more_than_so_many():
    with capture_logs() as logs:
        notices = RepeatedWarnings(Log("gossipkv.test"))
        for _ in range(2):
            for number in range(MAX_WARNINGS + 5):
                notices.say("odd", f"line {number}")
    assert [line["reason"] for line in logs] == [f"line {number}" for number in range(MAX_WARNINGS)]


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 400), st.integers(0, 300)), max_size=30))
def test_lines_of_each_event_are_let_through_or_counted(steps):
    """An event has at most a burst and its share of the time, and does not affect other events."""
    limits, now, said, let, told = LineLimits(), 0.0, Counter(), Counter(), Counter()
    told_at = []
    for event, lines, pause_s in steps:
        now += pause_s
        let[event] += sum(limits.lets(event, now) for _ in range(lines))
        said[event] += lines
        assert let[event] <= MAX_BURST_LINES + now * LINES_PER_S
        assert let[event] == said[event] or said[event] > MAX_BURST_LINES
        if left_out := limits.left_out(now):
            told += left_out
            told_at.append(now)
    assert all(later - earlier >= LIMITED_PERIOD_S for earlier, later in pairwise(told_at))
    assert told + limits.left_out(inf) == said - let


def test_a_place_has_one_traceback_a_minute():
    """The limit holds whatever other places raise."""
    limits = LineLimits()
    let = [limits.lets_traceback(place, tick * 20.0) for tick in range(6) for place in ("a.py:1", "b.py:2")]
    assert let == [tick % 3 == 0 for tick in range(6) for _ in range(2)]
