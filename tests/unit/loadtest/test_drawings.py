"""Plots as drawings: lines, marks and texts."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossipkv.loadtest import drawings, figures
from gossipkv.loadtest.drawings import Axis, Moment, PlotClock, Series
from tests.unit.loadtest import results

PLACE = re.compile(r"[ML]([\d.]+) ([\d.]+)")


def places(line):
    return [(float(x), float(y)) for x, y in PLACE.findall(line.d)]


def numbered(values):
    return Series("answered", "one", tuple(values))


def wide(found):
    assert [drawing.form for drawing in found] == ["wide", "narrow"]
    return found[0]


@given(st.lists(st.integers(1, 10**6), min_size=1, max_size=60))
def test_a_curve_says_how_many_took_longer(values):
    """Each point of the curve agrees with a count of the slower requests."""
    found = results.latency([float(value) for value in values])
    curve = drawings.curve("get", "one", [(upper, int(seen)) for upper, seen in found.buckets], float(max(values)))
    for one_in, us in curve.points:
        longer = sum(value > us for value in values)
        assert one_in == pytest.approx(len(values) / longer if longer else len(values))
    assert curve.points[-1][1] == max(values)


def test_a_bucket_ends_at_the_slowest():
    """The curve ends at the slowest request, not at the bound of its bucket."""
    assert drawings.curve("get", "one", [(10.0, 9), (20.0, 10)], 14.0).points[-1] == (10.0, 14.0)
    assert drawings.curve("get", "one", [], None).points == ()


def test_latency_by_percentile():
    """Powers of ten are evenly spaced, and the line never goes left or down."""
    curve = drawings.curve("all", "one", [(100.0, 9_000), (200.0, 9_900), (400.0, 9_990), (900.0, 10_000)], 900.0)
    drawing = wide(drawings.by_percentile("Latency", [curve]))
    assert [tick.label for tick in drawing.columns] == ["50 %", "90 %", "99 %", "99.9 %", "99.99 %"]
    at = [tick.at for tick in drawing.columns[1:]]
    assert at[1] - at[0] == pytest.approx(at[2] - at[1])
    (line,) = drawing.lines
    for (x, y), (later_x, later_y) in zip(places(line), places(line)[1:], strict=False):
        assert x <= later_x
        assert y >= later_y
    assert places(line)[2] == (round(drawing.columns[1].at, 1), places(line)[0][1])


def test_what_is_shorter_than_a_microsecond_has_no_decade():
    """Values below 1 us lie at the lower edge, and do not extend the axis."""
    curve = drawings.curve("sent late by", "one", [(0.001, 500), (0.1, 900), (200.0, 1000)], 200.0)
    drawing = wide(drawings.by_percentile("Latency", [curve]))
    assert drawing.rows[0].label == "200 us"
    assert places(drawing.lines[0])[0][1] == drawing.bottom


def test_labels_of_percentiles_do_not_touch():
    """A narrow page leaves some labels out."""
    curve = drawings.curve("all", "one", [(100.0, 999_999), (900.0, 1_000_000)], 900.0)
    for drawing in drawings.by_percentile("Latency", [curve]):
        gaps = [b.at - a.at for a, b in zip(drawing.columns, drawing.columns[1:], strict=False)]
        assert min(gaps) >= drawings.RARITY_PX


def test_values_over_time():
    """A second without a value leaves a gap."""
    clock = PlotClock(0.0, 4)
    drawing = wide(drawings.over_time("Rate", clock, [numbered([10.0, 40.0, None, 20.0])], Axis(figures.short_count)))
    (line,) = drawing.lines
    points = dict(places(line))
    assert len(points) == 3
    assert line.d.count("M") == 2
    heights = list(points.values())
    assert heights[1] < heights[2] < heights[0]
    assert [tick.label for tick in drawing.rows] == ["0", "10", "20", "30", "40"]
    assert all(drawing.left <= x <= drawing.right and drawing.top <= y <= drawing.bottom for x, y in places(line))


def test_many_seconds_are_folded():
    """The points of an hour fit the width, and the highest second stays visible."""
    values = [1.0] * 3600
    values[1234] = 100.0
    for drawing in drawings.over_time("max", PlotClock(0.0, 3600), [numbered(values)], Axis(figures.short_count)):
        points = places(drawing.lines[0])
        assert len(points) <= drawing.width
        assert min(y for _, y in points) == pytest.approx(drawing.top)
        assert drawing.rows[-1].label == "100"
    folded = drawings.over_time(
        "rate", PlotClock(0.0, 3600), [numbered(values)], Axis(figures.short_count, drawings.mean)
    )
    assert wide(folded).rows[-1].label != "100"


def test_nothing_has_no_place_on_a_logarithmic_axis():
    """A value of 0 is a gap."""
    axis = Axis(figures.latency, is_logarithmic=True)
    drawing = wide(drawings.over_time("Latency", PlotClock(0.0, 3), [numbered([0.0, 10.0, 20.0])], axis))
    assert len(set(places(drawing.lines[0]))) == 2


def test_marks():
    """A mark has its time and number; marks that would overlap share a flag."""
    clock = PlotClock(0.0, 60, (Moment(30.0, 2), Moment(10.0, 1), Moment(30.2, 3), Moment(50.0, 4)))
    drawing = wide(drawings.over_time("Rate", clock, [numbered([1.0] * 60)], Axis(figures.short_count)))
    assert [mark.label for mark in drawing.marks] == ["1", "2-3", "4"]
    width = drawing.right - drawing.left
    assert [mark.at for mark in drawing.marks] == pytest.approx([drawing.left + width * t / 60 for t in (10, 30, 50)])


def test_hints_tell_each_second():
    """A hint has its time, which is negative during the warm-up."""
    series = [numbered([1000.0, None]), Series("asked for", "two", (1.0, 2.0))]
    found = drawings.over_time("Rate", PlotClock(-1.0, 2), series, Axis(figures.short_count))
    assert [hint.text for hint in wide(found).hints] == [
        "-1 s: answered 1,000, asked for 1",
        "0 s: answered -, asked for 2",
    ]
    assert found[1].hints == []


def test_latency_by_rate():
    """Points are ordered by rate."""
    drawing = wide(drawings.by_rate("By rate", [("p50", "one", [(400.0, 90.0), (100.0, 10.0), (200.0, None)])]))
    assert drawing.lines[0].d.count("M") == 2
    assert [x for x, _ in places(drawing.lines[0])] == sorted(x for x, _ in places(drawing.lines[0]))


def test_plots_of_nothing():
    """Empty data gives an empty plot."""
    assert wide(drawings.by_percentile("Latency", [])).lines == []
    axis = Axis(figures.latency, is_logarithmic=True)
    assert wide(drawings.over_time("Latency", PlotClock(0.0, 1), [numbered([None])], axis)).lines[0].d == ""
    assert wide(drawings.over_time("Rate", PlotClock(0.0, 0), [numbered([])], Axis(figures.short_count))).hints == []
