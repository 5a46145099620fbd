"""The judgement of a run in words: the verdict, its reasons, and doubts about the numbers.

bad     a value was wrong, a limit was passed, or no request was answered; the command ends with status 3
doubt   values were right, but requests failed, were not sent or stepped back, or the run was cut short
good    every request was answered, and every comparable answer was right
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from gossipkv.loadtest import figures
from gossipkv.loadtest.measures import ALL, asked, counted, measured
from gossipkv.loadtest.plan import READS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gossipkv.loadtest.limits import LimitVerdict
    from gossipkv.loadtest.result import Result, RunTotals

FEW: Final = 10  # Requests beyond a percentile: fewer are an anecdote.
LATE_SHARE: Final = 0.1  # Share of the 99th percentile: a later generator is part of its own measurement.
NOT_COMPARED: Final = "could not be compared"


class RunState(enum.Enum):
    """The verdict in one word."""

    GOOD = "good"
    DOUBT = "doubt"
    BAD = "bad"


@final
@dataclass(frozen=True, slots=True)
class RunJudgement:
    """The verdict on a run."""

    state: RunState
    headline: str
    summary: str
    reasons: tuple[str, ...]  # The faults, a sentence each.
    caveats: tuple[str, ...]  # Limits of the numbers' meaning.


def judge(result: Result, verdicts: Sequence[LimitVerdict] = ()) -> RunJudgement:
    """Judge a run, also by the limits that it was given."""
    passed = [f"{verdict.limit} (measured: {verdict.measured})" for verdict in verdicts if verdict.passed]
    state, headline = _headline(result, len(passed))
    return RunJudgement(
        state,
        headline,
        summary(result),
        (*(f"Limit violated: {limit}." for limit in passed), *_faults(result)),
        tuple(_caveats(result)),
    )


def summary(result: Result) -> str:
    """Return the number of requests and the latencies, in one sentence."""
    totals = result.totals
    begin = f"{_number(totals.requests, 'request')} answered in {figures.seconds(totals.duration_s)}"
    p50, p99, most = (measured(name, result) for name in ("p50", "p99", "max"))
    if p50 is None:
        return f"{begin}."
    return (
        f"{begin}, {figures.rate(totals.rate)}: half took at most {figures.latency(p50)}, 99 % at most "
        f"{figures.latency(p99)}, the slowest {figures.latency(most)}."
    )


def is_failure(result: Result, verdicts: Sequence[LimitVerdict]) -> bool:
    """True if the run must fail the command."""
    return _headline(result, sum(verdict.passed for verdict in verdicts))[0] is RunState.BAD


def is_anecdote(share_percent: float, count: int) -> bool:
    """True if so few requests lie beyond a percentile that it is not reproducible; always so for the maximum."""
    return round(count * (100 - share_percent), 6) < 100 * FEW


def _headline(result: Result, passed: int) -> tuple[RunState, str]:
    bad = _bad(result.totals, passed)
    if bad is not None:
        return RunState.BAD, bad
    clean = _clean(result)
    return (RunState.GOOD, clean) if result.is_clean else (RunState.DOUBT, _doubt(result, clean))


def _bad(totals: RunTotals, passed: int) -> str | None:
    limits = f"{_number(passed, 'limit')} violated"
    if totals.wrong:
        wrong = f"{_number(totals.wrong, 'value')} of {figures.count(totals.keys)} wrong"
        return f"{wrong}, {limits}" if passed else wrong
    if totals.requests == 0:
        return "No request was answered"
    return limits if passed else None


def _doubt(result: Result, clean: str) -> str:
    failed = asked(result.totals) - result.totals.requests
    if failed:
        return f"{clean}, but {_number(failed, 'request')} had no answer"
    if result.totals.steps_back:
        return f"{_number(result.totals.steps_back, 'answer')} came from an older version than the answer before"
    return f"{clean}, but connections broke" if result.ended == "done" else f"{clean}, until the run was cut short"


def _clean(result: Result) -> str:
    if _is_unchecked(result):
        return "Every request was answered; values were not checked"
    return "Every answer was right" if result.totals.unchecked == 0 else "Every answer that could be compared was right"


def _is_unchecked(result: Result) -> bool:
    """True if no value was compared: there was no truth, or none for the versions that answered."""
    return not _has_truth(result) or result.totals.unchecked >= result.totals.keys


def _has_truth(result: Result) -> bool:
    plan = result.plan
    mix = plan.get("mix")
    writes = isinstance(mix, dict) and any(weight and kind not in READS for kind, weight in mix.items())
    return bool(plan.get("truth", True) or plan.get("records") or writes)


def _unchecked(result: Result) -> list[str]:
    """Return which values were not compared, and why."""
    totals, sentences = result.totals, []
    left = totals.unchecked
    for version, of in sorted(result.by_version.items()):
        if of.unchecked:
            left -= of.unchecked
            whose = f"of version {version}" if version else "of answers that named no version"
            values = f"{_share_of(of.unchecked, totals)} {whose}"
            sentences.append(f"{values} {NOT_COMPARED}: the truth had no such version when the answers arrived.")
    if left > 0:
        sentences.append(f"{_share_of(left, totals)} {NOT_COMPARED}: the truth does not contain their keys.")
    return sentences


def _share_of(values: int, totals: RunTotals) -> str:
    return f"{_number(values, 'value')} ({figures.share(values, totals.keys)})"


def _faults(result: Result) -> list[str]:
    totals = result.totals
    faults = []
    if totals.wrong:
        first = f"; the first: {result.first_wrong}" if result.first_wrong else ""
        faults.append(f"{_number(totals.wrong, 'value')} did not match the truth{first}.")
    if totals.steps_back:
        faults.append(
            f"{_number(totals.steps_back, 'answer')} came from an older version than the server had returned before."
        )
    if totals.errors:
        by_code = ", ".join(f"{code} {figures.count(number)}" for code, number in _largest(totals.errors))
        share = figures.share(counted("errors", totals), asked(totals))
        faults.append(f"{_number(counted('errors', totals), 'request')} failed with an error ({share}): {by_code}.")
    if totals.lost:
        faults.append(f"{_number(totals.lost, 'request')} failed because the connection broke.")
    if totals.unsent:
        unsent = f"{_number(totals.unsent, 'request')} ({figures.share(totals.unsent, asked(totals))})"
        faults.append(f"{unsent} fell due but could not be sent, because every connection was busy or broken.")
    if totals.broken:
        by_reason = ", ".join(f"{reason} {figures.count(number)}" for reason, number in _largest(totals.broken))
        faults.append(f"Connections broke: {by_reason}; {figures.count(totals.reconnects)} reconnected.")
    faults += _frozen(result)
    if result.ended != "done":
        faults.append(f"The run did not complete: {result.ended}.")
    return faults


def _frozen(result: Result) -> list[str]:
    frozen = [f"{event.detail} from {figures.seconds(event.t)}" for event in result.events if event.what == "frozen"]
    more = f" and {len(frozen) - FEW} more times" if len(frozen) > FEW else ""
    return [f"No request was answered for {', '.join(frozen[:FEW])}{more}."] if frozen else []


def _caveats(result: Result) -> list[str]:
    totals = result.totals
    caveats = []
    if totals.keys and not _has_truth(result):
        caveats.append("No truth was given, so values were not compared.")
    elif totals.unchecked:
        caveats += _unchecked(result)
    if result.lateness is not None:
        late, p99 = result.lateness.percentiles.get("99"), measured("p99", result)
        if late is not None and p99 is not None and late > LATE_SHARE * p99:
            caveats.append(
                f"1 % of the requests were sent {figures.latency(late)} or more after they were due; latencies count "
                "from the due time. Either all connections were busy (use more connections), or the generator lacked "
                "processor time (use more processes, or another machine)."
            )
    elif totals.requests:
        caveats.append(
            "A closed loop sends fewer requests while the server is slow, so latencies look too good; use --rate to "
            "count all waiting."
        )
    slowest = result.latency.get(ALL)
    if slowest is not None and 0 < slowest.count < 100 * FEW:
        caveats.append(f"Percentiles of only {_number(slowest.count, 'request')} vary from run to run.")
    return caveats


def _largest(counts: dict[str, int]) -> list[tuple[str, int]]:
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))


def _number(number: int, noun: str) -> str:
    return f"{figures.count(number)} {noun}{'' if number == 1 else 's'}"
