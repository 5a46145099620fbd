"""Slow tests of the report; the fast ones are in `test_report.py`."""

from dataclasses import replace

from gossipkv.loadtest.result import Event
from tests.unit.loadtest import results
from tests.unit.loadtest.test_report import page


def test_long_lists_are_folded():
    """Many events are folded behind a line with their number."""
    events = [Event(float(t), "member", f"n{t}", "alive -> dead") for t in range(40)]
    assert "40 events" in page(results.eventful(events=events)).said()
    steps = [replace(results.eventful().steps[0], rate=float(rate)) for rate in range(1, 31)]
    assert "30 steps" in page(results.eventful(steps=steps)).said()
