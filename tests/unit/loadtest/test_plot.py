"""Geometry of plots: places, ticks and lines."""

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossipkv.loadtest import plot

VALUES = st.floats(min_value=1e-6, max_value=1e12)


def test_a_linear_scale():
    """The scale goes from 0 to the highest value, also upwards; values outside stay at the edge."""
    scale = plot.Linear(200.0, 300.0, 100.0)
    assert [scale.at(value) for value in (0, 50, 200, 400, -1)] == [300, 250, 100, 100, 300]
    assert plot.Linear(0.0, 0.0, 10.0).at(5) == 0
    assert [tick.label for tick in scale.ticks(str, 4)] == ["0.0", "50.0", "100.0", "150.0", "200.0"]


def test_a_logarithmic_scale():
    """Equal factors have equal widths."""
    scale = plot.Logarithmic(1.0, 1000.0, 0.0, 300.0)
    assert [round(scale.at(value), 6) for value in (1, 10, 100, 1000, 5000, 0)] == [0, 100, 200, 300, 300, 0]
    assert [tick.label for tick in scale.ticks(lambda value: f"{value:g}")] == ["1", "10", "100", "1000"]
    narrow = plot.Logarithmic(20.0, 500.0, 0.0, 100.0)
    assert [tick.label for tick in narrow.ticks(lambda value: f"{value:g}")] == ["20", "50", "100", "200", "500"]


@given(value=VALUES)
def test_round_numbers(value):
    """The neighbours are 1, 2 or 5 times a power of ten, with none between."""
    up, down = plot.round_up(value), plot.round_down(value)
    assert down <= value * (1 + 1e-6)
    assert up >= value * (1 - 1e-6)
    assert up / down <= 2.5 + 1e-6
    for number in (up, down):
        assert min(abs(number / 10.0 ** math.floor(math.log10(number * 1.000001)) - step) for step in (1, 2, 5)) < 1e-3


def test_a_line_has_gaps():
    """A missing value breaks the line, and a single point stays visible."""
    assert plot.path([(0, 1.0), (1, 2.25), (2, None), (3, 4.0), (4, None)]) == "M0 1L0 1L1 2.2M3 4L3 4"
    assert plot.path([]) == ""


@given(count=st.integers(0, 5000), most=st.integers(1, 500))
def test_every_value_is_in_one_run(count, most):
    """Runs are contiguous and limited in number."""
    runs = plot.thinned(count, most)
    assert [at for run in runs for at in run] == list(range(count))
    assert len(runs) <= most


def test_the_highest():
    """Missing values are ignored."""
    assert plot.highest([None, 1.0, 3.0, None]) == 3.0
    assert plot.highest([None]) is None


@pytest.mark.parametrize("high", [0.0, 0.3, 7.0, 1e9])
def test_ticks_are_few(high):
    """The number of ticks is limited, except for the tick at 0."""
    assert len(plot.Linear(high, 0.0, 100.0).ticks(str, 5)) <= 6
    assert re.match(r"0", plot.Linear(high, 0.0, 100.0).ticks(lambda value: f"{value:g}", 5)[0].label)
