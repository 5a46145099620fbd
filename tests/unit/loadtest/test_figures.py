"""Numbers in readable form."""

import pytest

from gossipkv.loadtest import figures


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0"),
        (0.00123, "0.00123"),
        (1.234, "1.23"),
        (12.34, "12.3"),
        (123.4, "123"),
        (1234.5, "1,234"),
        (9.999, "10"),
    ],
)
def test_three_digits_count(number, text):
    """A number has three significant digits, and 0 has no decimals."""
    assert figures.rounded(number) == text


@pytest.mark.parametrize(
    ("us", "text"),
    [
        (None, "-"),
        (0.5, "0.5 us"),
        (850, "850 us"),
        (999.6, "1 ms"),
        (1234, "1.23 ms"),
        (999_600, "1 s"),
        (2.5e6, "2.5 s"),
    ],
)
def test_a_latency_has_the_unit_that_fits(us, text):
    """The unit is microseconds, milliseconds or seconds, with less than a thousand of each."""
    assert figures.latency(us) == text


@pytest.mark.parametrize(
    ("number", "text"),
    [(2.5, "2.5 s"), (119, "119 s"), (120, "2 min"), (150, "2 min 30 s"), (3600, "1 h"), (4200, "1 h 10 min")],
)
def test_a_length_of_time_has_the_largest_units(number, text):
    """Short times are in seconds, longer ones in minutes or hours."""
    assert figures.seconds(number) == text


def test_counts_and_shares():
    """Counts have thousands separators or short units; a share of 0 is unknown."""
    assert figures.count(1_234_567) == "1,234,567"
    assert [figures.short_count(n) for n in (0, 9500, 12_000, 1_500_000, 3e9)] == ["0", "9,500", "12 k", "1.5 M", "3 G"]
    assert (figures.share(1, 800), figures.share(1, 0)) == ("0.125 %", "-")
    assert (figures.rate(None), figures.count(None)) == ("-", "-")
