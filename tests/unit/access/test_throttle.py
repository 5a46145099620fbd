"""Wrong tokens: how long whoever comes with them waits."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossipkv.access.throttle import EACH_S, FREE, MAX_ADDRESSES, Throttle


def after(count, address="10.0.0.1"):
    """A throttle that has seen so many wrong ones at once."""
    throttle = Throttle()
    for _ in range(count):
        throttle.wrong(address, 100.0)
    return throttle


def test_five_are_free_and_each_further_one_waits():
    """Longer and longer, and less as time goes by; nobody else does."""
    assert [after(count).wait_s("10.0.0.1", 100.0) for count in (0, 1, 4, 5, 6)] == [0, 0, 0, EACH_S, 2 * EACH_S]
    assert after(5).wait_s("10.0.0.2", 100.0) == 0
    assert after(5).wait_s("10.0.0.1", 100.75) == 0.25
    assert after(50).wait_s("10.0.0.1", 1000.0) == 0


@given(st.lists(st.floats(0, 3), max_size=60))
def test_no_more_than_one_a_second(pauses):
    """However it is tried: whoever waits as told has no more than five and one a second looked at."""
    throttle, now, tries = Throttle(), 0.0, []
    for pause in pauses:
        now += pause
        while (wait := throttle.wait_s("10.0.0.1", now)) > 0:
            now += wait
        throttle.wrong("10.0.0.1", now)
        tries.append(now)
    for begin in range(len(tries) - FREE):
        assert tries[begin + FREE] - tries[begin] >= EACH_S * 0.999


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
    assert (after(FREE, one).wait_s(other, 100.0) > 0) == is_same


def test_memory_is_bounded_and_the_oldest_goes():
    """Whoever was wrong just now is still known after a flood of others, but for the last few thousand."""
    throttle = after(FREE, "10.255.0.1")
    for number in range(2 * MAX_ADDRESSES):
        throttle.wrong(f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}", 100.0)
        if number == MAX_ADDRESSES // 2:
            throttle.wrong("10.255.0.1", 100.0)
        if number == MAX_ADDRESSES + 9:
            assert throttle.wait_s("10.255.0.1", 100.0) > 0
    assert throttle.wait_s("10.255.0.1", 100.0) == 0
    assert len(throttle._clear_at) == MAX_ADDRESSES
