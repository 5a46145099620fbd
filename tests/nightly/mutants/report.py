"""Bugs planted in what tells of a load test: a report, a limit or a comparison that says other than what was found."""

from __future__ import annotations

from tests.nightly.mutants.mutant import Mutant, planted

LOADTEST = "gossipkv.loadtest"
TESTS = "tests/unit/loadtest"
COMMAND = "tests/unit/cli/test_loadtest.py"

MUTANTS_OF_REPORTS: tuple[Mutant, ...] = (
    planted(
        "names of others are markup in a report",
        f"{LOADTEST}.report:_environment",
        "autoescape=True,",
        "autoescape=False,",
        f"{TESTS}/test_report.py",
    ),
    planted(
        "names of others have control characters in a report",
        f"{LOADTEST}.report:_environment",
        "finalize=_printable,",
        "finalize=None,",
        f"{TESTS}/test_report.py",
    ),
    planted(
        "a percentile of two requests is a number like any other",
        f"{LOADTEST}.judgement:is_anecdote",
        "return round(count * (100 - share_percent), 6) < 100 * FEW",
        "return count < FEW",
        f"{TESTS}/test_judgement.py",
    ),
    planted(
        "a wrong value is no failure",
        f"{LOADTEST}.judgement:_bad",
        "if totals.wrong:",
        "if False:",
        f"{TESTS}/test_judgement.py",
    ),
    planted(
        "failed requests leave the verdict as it was",
        f"{LOADTEST}.judgement:_headline",
        "return (State.GOOD, clean) if result.is_clean else (State.DOUBT, _doubt(result, clean))",
        "return State.GOOD, clean",
        f"{TESTS}/test_judgement.py",
    ),
    planted(
        "a limit on what nobody knows is kept",
        f"{LOADTEST}.limits:Limit.judge",
        'return Verdict(self.text, passed=True, measured="not known, as there was no such answer")',
        'return Verdict(self.text, passed=False, measured="not known, as there was no such answer")',
        f"{TESTS}/test_limits.py",
    ),
    planted(
        "a share is one of the answered requests",
        f"{LOADTEST}.limits:Limit.measured",
        "requests = asked(result.totals)",
        "requests = result.totals.requests",
        f"{TESTS}/test_limits.py",
    ),
    planted(
        "few rounds tell a difference",
        f"{LOADTEST}.compare:judge",
        "if chance(len(one), len(other)) > CHANCE:",
        "if False:",
        f"{TESTS}/test_compare.py",
    ),
    planted(
        "medians alone tell a difference",
        f"{LOADTEST}.compare:judge",
        "if max(one) < min(other):",
        "if median(one) < median(other):",
        f"{TESTS}/test_compare.py",
    ),
    planted(
        "a setting that one run alone says is no difference of plans",
        f"{LOADTEST}.compare:unlike",
        "for path in dict.fromkeys([*left, *right])",
        "for path in left",
        f"{TESTS}/test_compare.py",
    ),
    planted(
        "true is taken for a count",
        f"{LOADTEST}.documents:_value",
        "if kind in SCALARS and type(value) is kind:",
        "if kind in SCALARS and isinstance(value, kind):",
        f"{TESTS}/test_documents.py",
    ),
    planted(
        "a line bridges the seconds in which nothing was answered",
        f"{LOADTEST}.plot:path",
        'drawn.append(f"L{place}" if is_open else f"M{place}L{place}")',
        'drawn.append(f"L{place}" if drawn else f"M{place}L{place}")',
        f"{TESTS}/test_plot.py",
    ),
    planted(
        "the slowest second of an hour is averaged away",
        f"{LOADTEST}.plot:highest",
        "return max((value for value in values if value is not None), default=None)",
        "return min((value for value in values if value is not None), default=None)",
        f"{TESTS}/test_drawings.py",
    ),
    planted(
        "a bucket's upper bound is shown as the slowest",
        f"{LOADTEST}.drawings:curve",
        "points.append((one_in, upper_us if most_us is None else min(upper_us, most_us)))",
        "points.append((one_in, upper_us))",
        f"{TESTS}/test_drawings.py",
    ),
    planted(
        "seconds without an answer are left out",
        f"{LOADTEST}.report_plots:_micros",
        "if second is None or second.requests == 0:",
        "if second is None:",
        f"{TESTS}/test_report.py",
    ),
    planted(
        "a limit that was passed ends in 0", "gossipkv.cli.loadtest:_conclude", "return FAILED", "return 0", COMMAND
    ),
    planted(
        "a comparison runs what else the line asks for",
        "gossipkv.cli.loadtest:_compare",
        "_refuse_others(ctx)",
        "pass",
        COMMAND,
    ),
)
