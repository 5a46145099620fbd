"""The display of a load test during its run: on a terminal, and in a log."""

from __future__ import annotations

import io
import sys

import pytest
from rich.console import Console

from gossipkv.cli import loadtest_view as view
from gossipkv.cli import screen
from gossipkv.loadtest.judgement import judge
from gossipkv.loadtest.result import Event, RunProgress, Second
from tests.unit.loadtest import results


def progress(t=0, *, events=(), phase="load", requests=40, **changes):
    """Return the state of a run at the end of a second."""
    result = results.plain()
    told = {
        "phase": phase,
        "round": 1,
        "rounds": 1,
        "elapsed_s": t + 1.0,
        "planned_s": 10.0,
        "rate_asked": None,
        "second": Second(t, requests, 1, 0, 100.0, 900.0, 4000.0),
        "totals": result.totals,
        "latency": result.latency["all"],
        "events": list(events),
    }
    return RunProgress(**(told | changes))


def drawn(renderable):
    console = Console(file=io.StringIO(), width=100, highlight=False)
    console.print(renderable)
    return console.file.getvalue()


def test_plain_lines(capsys):
    """Each second is a line on standard error, once, after the events before it."""
    with view.LiveView() as live:
        live(progress(phase="warm-up", second=None))
        live(progress(0))
        live(progress(0))
        live(progress(1, events=[Event(1.5, "version", "n1 geo\x1b[2J", "1 -> 2")]))
        live(progress(2, requests=0))
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == [
        "1 s of 10 s: 40 /s, p50 100 us, p99 900 us, max 4 ms, errors 1, wrong 0",
        "1.5 s: Version of n1 geo\\x1b[2J: 1 -> 2",
        "2 s of 10 s: 40 /s, p50 100 us, p99 900 us, max 4 ms, errors 1, wrong 0",
        "3 s of 10 s: 0 /s, p50 -, p99 -, max -, errors 1, wrong 0",
    ]


def test_rounds_and_warm_ups_are_told_apart():
    """The line names the round and the warm-up."""
    second = Second(0, 40)
    assert view.plain_line(progress(round=2, rounds=3), second).startswith("round 2 of 3, 1 s of 10 s: 40 /s")
    assert view.plain_line(progress(phase="warm-up"), second).startswith("warm-up, 1 s of 10 s")


def test_a_terminal(monkeypatch):
    """The frame is redrawn, and events stay on the screen above it."""
    screen_file = io.StringIO()
    screen_file.isatty = lambda: True
    monkeypatch.setattr(sys, "stderr", screen_file)
    terminal = Console(file=screen_file, force_terminal=True, width=100, highlight=False, legacy_windows=False)
    monkeypatch.setattr(view, "console", lambda *, stderr: terminal)
    with view.LiveView() as live:
        live(progress(0))
        live(progress(1, events=[Event(1.5, "member", "n3", "alive -> suspect")]))
    told = screen_file.getvalue()
    assert "1.5 s: Member n3: alive -> suspect" in told
    assert "1 s of 10 s" in told
    assert "2 s of 10 s" in told
    assert "\x1b[2K" in told  # The transient frame is erased.


def test_a_frame():
    """A frame shows progress, rate and sparkline, percentiles of all requests, and failures."""
    shown = drawn(view.frame(progress(3, rate_asked=50.0), [10.0, 20.0, 40.0]))
    for text in (
        "4 s of 10 s",
        "50 /s requested",
        "40 /s",
        "▃▅█",
        "p50 100 us  p99 900 us  p99.9 4 ms  max 4 ms",
        "lost 0",
    ):
        assert text in shown
    assert "closed loop" in drawn(view.frame(progress(second=None), []))


@pytest.mark.parametrize(
    ("values", "bars"),
    [([], ""), ([0.0, 0.0], "▁▁"), ([1.0], "█"), ([0.0, 4.0, 8.0], "▁▅█"), ([8.0, 7.9, 1.0], "██▂")],
)
def test_a_sparkline(values, bars):
    """The highest value has the full bar, zero the lowest."""
    assert view.sparkline(values) == bars


def test_names_of_others_command_no_terminal(capsys, monkeypatch):
    """The table escapes every control character of a result."""
    hostile = results.HOSTILE
    targets = [results.eventful().targets[0], results.eventful().targets[1]]
    result = results.plain(
        targets=[
            type(each)(f"{hostile}{n}", each.totals, each.latency, {}, "[red]n") for n, each in enumerate(targets)
        ],
        ended=hostile,
    )
    monkeypatch.setattr(screen, "console", lambda: Console(width=200, highlight=False))
    screen.draw(view.outcome(result, judge(result)))
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert "\x00" not in out
    assert "([red]n)" in out
