"""Wrong tokens: which of an address are too many."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossipkv.access.throttle import EACH_S, FREE, MAX_ADDRESSES, Throttle

NOW = 100.0


def after(count, address="10.0.0.1"):
    """A throttle that has seen so many wrong ones at once."""
    throttle = Throttle()
    for _ in range(count):
        throttle.wrong(address, NOW)
    return throttle


def test_five_are_free_and_each_second_one_more():
    """However many there were; nobody else pays for it."""
    assert [after(count).wrong("10.0.0.1", NOW) for count in (0, 1, 4, 5, 6)] == [False, False, False, True, True]
    assert not after(50).wrong("10.0.0.2", NOW)
    for count in (FREE, 50):
        throttle = after(count)
        later = [throttle.wrong("10.0.0.1", NOW + at) for at in (0.75, 1.0, 1.0, 1.5, 3.0, 3.0, 3.0, 100.0)]
        assert later == [True, True, True, True, False, True, True, False]


@given(st.lists(st.floats(0, 3), max_size=60))
def test_no_more_than_one_a_second(pauses):
    """However it is tried: of a stretch of time no more than five and one a second are free."""
    throttle, now, free = Throttle(), 0.0, []
    for pause in pauses:
        now += pause
        free += [] if throttle.wrong("10.0.0.1", now) else [now]
    for begin in range(len(free) - FREE):
        assert free[begin + FREE] - free[begin] >= EACH_S * 0.999


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        ("2001:db8::1", "2001:db8::ffff:1", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("::ffff:10.0.0.1", "10.0.0.1", True),
        ("::ffff:10.0.0.1", "::ffff:10.0.0.2", False),
        ("fe80::1%eth0", "fe80::2%eth0", True),
    ],
)
def test_who_counts_as_one(one, other, is_same):
    """A network of IPv6 is one; an IPv4 address is one, however it is written."""
    assert after(FREE, one).wrong(other, NOW) == is_same


def test_memory_is_bounded_and_the_oldest_goes():
    """Whoever was wrong just now is still known after a flood of others, but for the last few thousand."""
    throttle = after(FREE, "10.255.0.1")
    for number in range(2 * MAX_ADDRESSES):
        throttle.wrong(f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}", NOW)
        if number in {MAX_ADDRESSES // 2, MAX_ADDRESSES + 9}:
            assert throttle.wrong("10.255.0.1", NOW)
    assert throttle.wrong("10.255.0.1", NOW)
    for number in range(MAX_ADDRESSES):
        throttle.wrong(f"11.{number >> 16}.{number >> 8 & 255}.{number & 255}", NOW)
    assert not throttle.wrong("10.255.0.1", NOW)
    assert len(throttle._clear_at) == MAX_ADDRESSES
