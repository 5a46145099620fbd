"""The verdict in words: bad, doubtful or good."""

from dataclasses import replace

import pytest

from gossipkv.loadtest import limits
from gossipkv.loadtest.judgement import RunState, is_anecdote, is_failure, judge
from gossipkv.loadtest.result import LatencyResult, OfVersion, RunTotals
from tests.unit.loadtest import results


def with_totals(**changes):
    return results.plain(totals=replace(results.plain().totals, **changes))


@pytest.mark.parametrize(
    ("result", "state", "headline"),
    [
        (results.plain(), RunState.GOOD, "Every answer was right"),
        (with_totals(unchecked=100), RunState.GOOD, "Every request was answered; values were not checked"),
        (results.plain(plan={"truth": []}), RunState.GOOD, "Every request was answered; values were not checked"),
        (with_totals(unchecked=1), RunState.GOOD, "Every answer that could be compared was right"),
        (with_totals(errors={"X": 2}, lost=1), RunState.DOUBT, "Every answer was right, but 3 requests had no answer"),
        (with_totals(unsent=1), RunState.DOUBT, "Every answer was right, but 1 request had no answer"),
        (with_totals(steps_back=2), RunState.DOUBT, "2 answers came from an older version than the answer before"),
        (with_totals(broken={"reset": 1}), RunState.DOUBT, "Every answer was right, but connections broke"),
        (results.plain(ended="interrupted"), RunState.DOUBT, "Every answer was right, until the run was cut short"),
        (with_totals(wrong=1), RunState.BAD, "1 value of 100 wrong"),
        (with_totals(wrong=3, errors={"X": 2}), RunState.BAD, "3 values of 100 wrong"),
        (results.plain(totals=RunTotals(lost=7), latency={}), RunState.BAD, "No request was answered"),
    ],
)
def test_the_verdict(result, state, headline):
    """The worst problem comes first, and only a bad state is a failure."""
    judgement = judge(result)
    assert (judgement.state, judgement.headline) == (state, headline)
    assert is_failure(result, []) is (state is RunState.BAD)


def test_limits_are_part_of_it():
    """A violated limit is bad and reported with its measured value; a kept one is not reported."""
    verdicts = [limits.parse(text).judge(results.plain()) for text in ("p99>1us", "max>1s")]
    judgement = judge(results.plain(), verdicts)
    assert (judgement.state, judgement.headline) == (RunState.BAD, "1 limit violated")
    assert judgement.reasons == ("Limit violated: p99>1us (measured: 900 us).",)
    assert is_failure(results.plain(), verdicts)
    assert not is_failure(results.plain(), verdicts[1:])


def test_each_fault_is_a_sentence():
    """The sentences have counts, shares, codes by frequency and the first wrong value."""
    totals = replace(
        results.plain().totals,
        wrong=1,
        steps_back=2,
        errors={"A": 1, "B": 5},
        lost=4,
        unsent=5,
        broken={"reset": 3},
        reconnects=2,
    )
    judgement = judge(results.plain(totals=totals, first_wrong="b'k': expected b'v'", ended="nobody answers"))
    said = "\n".join(judgement.reasons)
    for part in (
        "1 value did not match the truth; the first: b'k': expected b'v'.",
        "2 answers came from an older version",
        "6 requests failed with an error (5.22 %): B 5, A 1.",
        "4 requests failed because the connection broke.",
        "5 requests (4.35 %) fell due but could not be sent",
        "Connections broke: reset 3; 2 reconnected.",
        "The run did not complete: nobody answers.",
    ):
        assert part in said


def test_the_summary():
    """The summary has count, time and rate; without latencies it omits them."""
    assert judge(results.plain()).summary == (
        "100 requests answered in 2.5 s, 40 /s: half took at most 100 us, 99 % at most 900 us, the slowest 4 ms."
    )
    assert judge(results.plain(totals=RunTotals(duration_s=3.0), latency={})).summary == "0 requests answered in 3 s."


@pytest.mark.parametrize(
    ("result", "said"),
    [
        (results.plain(), "A closed loop sends fewer requests while the server is slow"),
        (results.plain(), "Percentiles of only 100 requests vary"),
        (with_totals(unchecked=100), "100 values (100 %) could not be compared: the truth does not contain"),
        (results.plain(plan={"truth": []}), "No truth was given"),
        (with_totals(unchecked=1), "1 value (1 %) could not be compared: the truth does not contain"),
        (results.plain(lateness=results.latency([500.0] * 100)), "1 % of the requests were sent 500 us or more after"),
    ],
)
def test_caveats(result, said):
    """Each circumstance that weakens the numbers is reported."""
    assert any(said in caveat for caveat in judge(result).caveats)


def test_no_caveat_without_reason():
    """A punctual open loop with many compared requests has no caveat."""
    many = LatencyResult(10**6, 100.0, {"99": 1000.0, "50": 100.0, "100": 5000.0}, [[5000.0, 10**6]])
    late = LatencyResult(10**6, 5.0, {"99": 40.0}, [[90.0, 10**6]])
    assert judge(results.plain(latency={"all": many}, lateness=late)).caveats == ()


@pytest.mark.parametrize(
    ("percent", "count", "few"),
    [(99, 1000, False), (99, 999, True), (90, 100, False), (50, 19, True), (100, 10**9, True)],
)
def test_a_percentile_of_few(percent, count, few):
    """Fewer than ten requests beyond a percentile are too few."""
    assert is_anecdote(percent, count) is few


def test_what_was_not_compared_is_named_with_its_reason() -> None:
    """Unchecked values are listed by version if its truth was unknown, and otherwise by unknown keys."""
    of = {"1": OfVersion(60, 0, 0), "2": OfVersion(30, 0, 30), "": OfVersion(10, 0, 5)}
    caveats = judge(replace(with_totals(unchecked=40), by_version=of)).caveats
    assert [each.partition(" could not be compared: ")[::2] for each in caveats if "compared" in each] == [
        ("5 values (5 %) of answers that named no version", "the truth had no such version when the answers arrived."),
        ("30 values (30 %) of version 2", "the truth had no such version when the answers arrived."),
        ("5 values (5 %)", "the truth does not contain their keys."),
    ]
