"""Hybrid time: greater than all seen times, and close to the wall clock."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gossipkv.replication.replica.hlc import JUDGED_MS, LATELY_S, ClockSkew, ms_of, next_time

wall = st.integers(0, 40) | st.integers(0, 2**47)
steps = st.lists(st.tuples(st.booleans(), wall, st.integers(0, 2**16 - 1)))


@given(taken=steps, start=wall)
def test_time_is_greater_than_all_seen(taken: list[tuple[bool, int, int]], start: int) -> None:
    """The time is the wall clock's, or one more than the greatest seen time."""
    seen = start << 16
    for merged, ms, count in taken:
        if merged:
            seen = max(seen, ms << 16 | count)
        else:
            given_out = next_time(seen, ms)
            assert given_out == (seen + 1 if seen >= ms << 16 else ms << 16)
            seen = given_out


def test_the_count_goes_on_into_the_next_millisecond() -> None:
    """If the count of a millisecond overflows, times stay unique and ordered."""
    times = [next_time(0, 5)]
    for _ in range(2**16 + 1):
        times.append(next_time(times[-1], 5))
    assert times == sorted({*times})
    assert [ms_of(times[place]) for place in (0, -3, -2, -1)] == [5, 5, 6, 6]
    assert next_time(times[-1], 6) == times[-1] + 1
    assert next_time(times[-1], 7) == 7 << 16


def test_a_clock_that_goes_back() -> None:
    """The count continues from the last time until the wall clock catches up."""
    before = next_time(0, 1_000)
    assert [next_time(before, ms) for ms in (10, 999, 1_000)] == [before + 1] * 3
    assert ms_of(next_time(before, 1_001)) == 1_001


class Clocks:
    """A monotonic clock, and a time of day that may be set."""

    def __init__(self) -> None:
        self.now_s, self.ahead_ms, self.readings = 100.0, 1_000_000, 0

    def now(self) -> float:
        self.readings += 1
        return self.now_s

    def now_ms(self) -> int:
        return int(self.now_s * 1000) + self.ahead_ms


def test_a_clock_that_is_set_or_contradicted_is_judged_at_once() -> None:
    """Otherwise a judgement holds for a second, since all records of that second ask for it."""
    clocks = Clocks()
    skew = ClockSkew(clocks.now, clocks.now_ms)
    usual_ms = clocks.now_ms()
    for node in (b"1", b"2"):
        skew.hears(node, usual_ms, clocks.now_s)
    assert skew.refusal() is None
    before = clocks.readings
    clocks.now_s += (JUDGED_MS - 1) / 1000
    assert skew.refusal() is None
    assert clocks.readings == before
    for set_ms in (-3_600_000, 3_600_000):
        clocks.ahead_ms += set_ms
        refusal = skew.refusal()
        assert refusal is not None
        assert "from those of 2 of 2 nodes" in refusal
        clocks.ahead_ms -= set_ms
        assert skew.refusal() is None
    for node in (b"3", b"4", b"5"):
        skew.hears(node, clocks.now_ms() + 3_600_000, clocks.now_s)
    assert "3 of 5" in (skew.refusal() or "")
    skew.forget(b"5")
    assert skew.refusal() is None
    clocks.now_s += LATELY_S + 1
    skew.hears(b"5", clocks.now_ms() + 3_600_000, clocks.now_s)
    assert skew.refusal() == "its clock and that of the only other node heard differ by 3600 s (max_clock_skew)"


def test_the_time_of_expiry_goes_back_only_from_too_far_ahead() -> None:
    """An expired record is not read again after a step back, also by an earlier life, within `max_clock_skew`."""
    clocks = Clocks()
    begin_ms = clocks.now_ms()
    skew = ClockSkew(clocks.now, clocks.now_ms, 60.0)
    skew.expires_from(begin_ms + 20_000)
    assert skew.expiry_ms() == begin_ms + 20_000
    clocks.ahead_ms += 30_000
    assert skew.expiry_ms() == begin_ms + 30_000
    clocks.ahead_ms -= 50_000
    assert skew.expiry_ms() == begin_ms + 30_000
    clocks.ahead_ms += 20_000 + 86_400_000  # A wrong clock, for one read.
    assert skew.expiry_ms() == begin_ms + 86_400_000
    clocks.ahead_ms -= 86_400_000
    assert skew.expiry_ms() == begin_ms + 60_000
    clocks.now_s += 61
    assert skew.expiry_ms() == begin_ms + 61_000
