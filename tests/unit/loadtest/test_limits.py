"""`--fail-if`: valid limits, invalid ones, and the passing of a limit."""

from dataclasses import replace

import pytest

from gossipkv.loadtest import limits
from tests.unit.loadtest import results

RESULT = results.plain(
    totals=replace(
        results.plain().totals, requests=950, errors={"TIMEOUT": 30, "X": 10}, lost=6, unsent=4, wrong=2, rate=40.0
    )
)


@pytest.mark.parametrize(
    ("text", "passed"),
    [
        ("p50>99us", True),
        ("p50>100us", False),
        ("p99>0.8ms", True),
        ("p99 > 0.9 ms", False),
        ("p99.9<5ms", True),
        ("max>0.003s", True),
        ("max>0.004s", False),
        ("mean>1ms", False),
        ("get.p99>800us", True),
        ("rate<41", True),
        ("rate<40", False),
        ("rate>39.5", True),
        ("errors>39", True),
        ("errors>40", False),
        ("errors>3.9%", True),
        ("errors>4%", False),
        ("wrong>1", True),
        ("lost>5", True),
        ("lost>0.6%", False),
        ("unsent>0.3%", True),
        ("steps_back>0", False),
    ],
)
def test_a_limit_is_passed_when_what_it_says_is_so(text, passed):
    """A limit is passed above or below its value, not at it; shares refer to all requests."""
    verdict = limits.parse(text).judge(RESULT)
    assert (verdict.limit, verdict.passed) == (text, passed)


def test_what_was_measured_is_told():
    """The measured value has the report's format."""
    assert [limits.parse(text).judge(RESULT).measured for text in ("p99>1ms", "errors>1%", "errors>1", "rate<1")] == [
        "900 us",
        "4 %",
        "40",
        "40 /s",
    ]


@pytest.mark.parametrize("text", ["scan.p99>1us", "scan.p99<1s"])
def test_what_nobody_knows_has_passed(text):
    """A limit on an unknown value counts as passed."""
    verdict = limits.parse(text).judge(RESULT)
    assert verdict.passed
    assert "unknown" in verdict.measured


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "expected a metric"),
        ("p99", "expected a metric"),
        ("p99=2ms", "expected a metric"),
        ("p99>=2ms", "expected a metric"),
        ("p99>-2ms", "expected a metric"),
        ("p99>2ms and errors>1", "expected a metric"),
        ("p98>2ms", "the nearest is p9"),
        ("speed<2", "the metrics are p50"),
        ("p99>1h", "p99 is a latency and needs one of the units us, ms, s; got h"),
        ("p99>2", "p99 is a latency and needs one of the units us, ms, s; got no unit"),
        ("p99>2%", "p99 is a latency and needs one of the units us, ms, s; got %"),
        ("rate<2%", "rate must be a number of requests per second without a unit; got the unit %"),
        ("errors>2ms", "errors must be a number, or a share of all requests with %; got the unit ms"),
        ("get.errors>2", "only a latency can have a kind"),
        ("set.p99>2ms", "only a latency can have a kind"),
    ],
)
def test_what_is_no_limit(text, said):
    """The error is one sentence."""
    with pytest.raises(ValueError, match=said):
        limits.parse(text)
