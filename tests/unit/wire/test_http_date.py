from __future__ import annotations

from email.utils import formatdate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossipkv.wire import http_date

SECONDS = st.integers(min_value=0, max_value=253_402_300_799)


@given(SECONDS)
def test_times_are_written_as_the_standard_library_does(seconds):
    """Every second to the end of the year 9999 is written and read back."""
    assert http_date.write(seconds) == formatdate(seconds, usegmt=True).encode()
    assert http_date.read(http_date.write(seconds)) == seconds


@pytest.mark.parametrize(
    "value",
    [b"Sun, 06 Nov 1994 08:49:37 GMT", b"Sunday, 06-Nov-94 08:49:37 GMT", b"Sun Nov  6 08:49:37 1994"],
)
def test_the_three_forms(value):
    """RFC 9110 requires all three."""
    assert http_date.read(value) == 784_111_777


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (b"Sun, 6 Nov 1994 8:49:37 GMT", 784_111_777),
        (b"Thursday, 01-Jan-70 00:00:00 GMT", 0),
        (b"Friday, 01-Jan-68 00:00:00 GMT", 3_092_601_600),
        (b"Sat, 31 Dec 2016 23:59:60 GMT", 1_483_228_800),
    ],
)
def test_short_numbers_and_leap_seconds(value, seconds):
    """One digit is enough, two-digit years mean 1969 to 2068, and second 60 is the first of the next minute."""
    assert http_date.read(value) == seconds


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"yesterday",
        b"0",
        b"Sun, 31 Feb 1994 08:49:37 GMT",
        b"Sun, 06 Nov 1994 24:49:37 GMT",
        b"Sun, 06 Nov 1994 08:49:37 CET",
        b"Sun, 06 Nov 0000 08:49:37 GMT",
        b"Sun, 06 Nov 1994 08:49:37 GMT ",
        "Sun, 0٦ Nov 1994 08:49:37 GMT".encode(),
        b"\xff" * 30,
    ],
)
def test_what_is_no_time(value):
    assert http_date.read(value) is None
