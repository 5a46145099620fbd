"""The time in keys: the span of a range, keys without a time, and invalid time keys."""

from __future__ import annotations

from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossipkv.errors import ProtocolError
from gossipkv.keyspace.time_key import ISO, MAX_END, WIDTHS, TimeKey, parse_time_key, time_key_of
from gossipkv.settings.tables import MAX_KEY_BYTES

SECONDS = TimeKey(2, 4, "s")
MINUTE = 60


def key(seconds, before=b"ab", behind=b""):
    """Return a key that fits `SECONDS`."""
    return before + seconds.to_bytes(4, "big") + behind


@pytest.mark.parametrize(("first", "end", "is_short"), [
    (key(1000), key(1059), True), (key(1000), key(1060), False), (key(1000), key(1000, behind=b"x"), True),
    (key(1000, behind=b"x"), key(1059, behind=b"\xff" * 9), True), (key(1000), None, False), (b"", key(5), False),
    (b"", key(5, b"\0\0"), True), (key(1000), key(1001, b"ac"), False), (b"ab", b"ab\0", True),
    (b"ab\xff\xff\xff\xff", b"ac", False), (key((1 << 32) - 1), b"\xff" * 9, False), (b"", b"a", False),
])  # fmt: skip
def test_ranges_of_less_than_a_minute(first, end, is_short):
    """The bounds must share their prefix; bytes that a bound lacks count as 0."""
    assert SECONDS.is_short(first, end) is is_short


@pytest.mark.parametrize(("unit", "minute"), [("s", 60), ("ms", 60_000), ("us", 60_000_000), ("ns", 60_000_000_000)])
def test_a_minute_in_each_unit(unit, minute):
    time_key = TimeKey(0, 8, unit)
    for span, is_short in ((minute - 1, True), (minute, False)):
        assert time_key.is_short((7 << 40).to_bytes(8, "big"), ((7 << 40) + span).to_bytes(8, "big")) is is_short


def test_keys_without_time():
    """The fault names the bytes in which the time belongs."""
    assert SECONDS.fault_of(key(0)) is None
    assert (
        SECONDS.fault_of(key(0)[:5])
        == "the keys of this table have their time in s at bytes 2 to 5, so a key needs at least 6 bytes"
    )
    assert "at byte 3, " in TimeKey(3, 1, "ns").fault_of(b"abc")
    assert TimeKey(3, 1, "ns").fault_of(b"abcd") is None


@pytest.mark.parametrize(
    ("time_key", "time"), [(TimeKey(2, 8, "ms"), 10**12), (TimeKey(2, 5, "s"), 10**9), (TimeKey(2, 8, "ns"), 10**18)]
)
def test_ranges_of_old_times(time_key, time):
    """A range is over if its end has a time before; a range with several prefixes, or without an end, never is."""
    end = b"ab" + time_key.key_time(time)
    first = b"ab" + time_key.key_time(5)
    assert time_key.is_over(first, end, 10**12 + 1)
    assert not time_key.is_over(first, end, 10**12)
    assert time_key.is_over(b"ab", end, 10**12 + 1)
    for low, high in ((first, None), (b"aa" + first[2:], end), (b"", end), (b"ab", b"ac"), (b"ab", b"ab")):
        assert not time_key.is_over(low, high, 10**15)


def test_ranges_of_old_times_in_text():
    """The time counts from 1970; an end that is no time is never over."""
    time_key = TimeKey(0, 19, ISO)
    assert time_key.is_over(b"", b"2001-09-09T01:46:40", 10**12 + 1)
    assert not time_key.is_over(b"", b"2001-09-09T01:46:40", 10**12)
    assert time_key.is_over(b"1999", b"2001-09-09", 10**12)
    assert not time_key.is_over(b"nonsense", b"p", 10**15)


MOMENTS = st.datetimes(min_value=datetime(1, 1, 1), max_value=datetime(9999, 12, 31)).map(  # noqa: DTZ001  # Keys tell no zone.
    lambda moment: moment.replace(microsecond=0)
)


@pytest.mark.parametrize("width", WIDTHS[ISO])
@given(st.data())
def test_text_of_iso_8601(width, data):
    """Text order is time order; each time has one text, and damaged text has no time."""
    time_key = TimeKey(2, width, ISO)
    one, other = (b"ab" + data.draw(MOMENTS).isoformat().encode() for _ in range(2))
    assert time_key.fault_of(one) is None
    assert (time_key.time_of(one) < time_key.time_of(other)) is (one[: 2 + width] < other[: 2 + width])
    assert b"ab" + time_key.key_time(time_key.time_of(one)) == one[: 2 + width]
    at = data.draw(st.integers(2, 1 + width))
    broken = one[:at] + b"x" + one[at + 1 :]
    assert "have their time as text such as 2026-11-27" in time_key.fault_of(broken)
    assert time_key.fault_of(one[:at]) is not None
    assert 0 <= time_key.time_of(data.draw(st.binary(max_size=30))) < time_key.most


def test_ranges_of_less_than_a_minute_in_text():
    """A bound may name a whole day or hour."""
    time_key = TimeKey(0, 19, ISO)
    for first, end, is_short in (
        (b"2026-11-27T13:37:00", b"2026-11-27T13:37:59", True), (b"2026-11-27T13", b"2026-11-27T13:01", False),
        (b"2026-11-27", b"2026-11-27T00:00:59.5", True), (b"2026-11-27T13:37+01:00", b"2026-11-28", False),
        (b"", b"2026", False), (b"nonsense", b"p", True), (b"2026", None, False),
    ):  # fmt: skip
        assert time_key.is_short(first, end) is is_short, (first, end)


def test_what_people_write():
    """Offset, width and unit are parsed and written in the same form."""
    assert parse_time_key("2:4:s") == SECONDS
    assert str(SECONDS) == "2:4:s"
    assert parse_time_key("3:19:iso") == TimeKey(3, 19, ISO)
    assert time_key_of([MAX_END - 8, 8, "ns"]).end == MAX_END == MAX_KEY_BYTES


BAD = ["", "2", "2:4", "2:4:h", "-1:4:s", "2:0:s", "2:9:s", "65515:8:s", "0:8:iso", "0:20:iso", "2:4:s:", "a:4:s"]
BAD += ["٢:4:s"]


@pytest.mark.parametrize("text", BAD)
def test_what_people_write_wrongly(text):
    with pytest.raises(ProtocolError, match="a time key is"):
        parse_time_key(text)


@pytest.mark.parametrize(
    "value", [None, [], [0, 8], [0, 8, "s", 1], [True, 8, "s"], [0, True, "s"], [0, 8, b"s"], [0, 8, "S"], {}]
)
def test_what_is_none(value):
    with pytest.raises(ProtocolError, match="a time key is"):
        time_key_of(value)
