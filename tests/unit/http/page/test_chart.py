"""Charts of rates and latencies."""

from __future__ import annotations

import pytest

from gossipkv.http.page.chart import (
    HEIGHT,
    WIDTH,
    duration_us_text,
    latency_chart,
    nice,
    path_of,
    rate_chart,
    rate_text,
)
from gossipkv.http.page.history import Interval, IntervalLatency


def interval(end_s, rate=0.0, errors=0.0, here=None, elsewhere=None):
    return Interval(end_s, 1.0, rate, errors, here or IntervalLatency(), elsewhere or IntervalLatency())


def test_rates_are_drawn_up_to_a_round_number():
    """The newest value is at the right end, and the words say the same as the line."""
    chart = rate_chart([interval(1.0, 150.0), interval(2.0, 300.0, 1.5)])
    assert chart is not None
    assert chart.lines[0].path == f"M298 {HEIGHT - 18:.1f}H299L300 {HEIGHT - 36:.1f}"
    assert [tick.label for tick in chart.ticks] == ["0", "250", "500"]
    assert chart.words == "now 300/s, at most 300/s; errors now 1.5/s"


def test_latency_is_drawn_on_a_logarithmic_axis():
    """The axis spans the powers of ten around the values; a line without values is left out."""
    chart = latency_chart(
        [interval(1.0, here=IntervalLatency(20, 2000)), interval(2.0, here=IntervalLatency(20, 1000))]
    )
    assert chart is not None
    assert [line.name for line in chart.lines] == ["p50", "p99"]
    assert [tick.label for tick in chart.ticks] == ["10 µs", "100 µs", "1 ms", "10 ms"]
    assert chart.lines[1].path.endswith(f"L{WIDTH} {HEIGHT / 3:.1f}")
    assert chart.words == "p50 20 µs, p99 1 ms"


def test_of_a_node_without_buckets_the_mean_is_drawn():
    chart = latency_chart([interval(1.0, here=IntervalLatency(mean_us=15))])
    assert chart is not None
    assert [(line.name, line.now) for line in chart.lines] == [("mean", "15 µs")]


def test_nothing_known_is_nothing_drawn():
    """No samples give no chart; samples without requests give a chart that says so."""
    assert rate_chart([]) is None
    assert latency_chart([]) is None
    chart = latency_chart([interval(1.0)])
    assert chart is not None
    assert (chart.lines, chart.ticks, chart.words) == ((), (), "no request was answered")


def test_a_line_is_broken_off_where_nothing_is_known():
    """The line skips unknown times, and a single point stays visible."""
    points = [(1.0, 5.0), (2.0, None), (3.0, 5.0), (4.0, 5.0), (20.0, 5.0)]
    path = path_of(points, 20.0, lambda value: value)
    assert path == "M280 5.0H281M282 5.0H283L284 5.0M299 5.0H300"


@pytest.mark.parametrize(("value", "top"), [(0, 10), (10, 10), (10.1, 20), (200, 200), (201, 500), (9_999, 10_000)])
def test_the_top_of_an_axis(value, top):
    """The top is the next of 1, 2, 5 times a power of ten."""
    assert nice(value) == top


def test_numbers_in_words():
    """Times have three digits, and only small rates have a fraction."""
    assert [duration_us_text(value) for value in (0.5, 999, 1000, 1_234, 2_500_000)] == [
        "0.5 µs", "999 µs", "1 ms", "1.23 ms", "2.5 s",
    ]  # fmt: skip
    assert [rate_text(value) for value in (0, 0.25, 3, 1234.5)] == ["0", "0.2", "3", "1,234"]
