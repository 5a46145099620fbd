"""The report of a load test: one HTML file for readers who did not see the run.

The file is self-contained, without scripts, fonts or external parts (its own policy forbids them), and made only from
the result's document.  The order of the report is that of questions: correctness, the requests, speed, rare latencies,
events, targets, reproduction.

Any text may come from outside (a database, a file, a node's name, an error).  The templates escape all of it, and
unprintable characters are written as Python escapes.
"""

from __future__ import annotations

import shlex
from functools import cache
from typing import TYPE_CHECKING, Final, TypeAlias

from jinja2 import Environment, PackageLoader, StrictUndefined

from gossipkv.loadtest import figures
from gossipkv.loadtest.compare import rounds_of, spread
from gossipkv.loadtest.judgement import is_anecdote, judge
from gossipkv.loadtest.measures import ALL, COUNTS, LATENCIES, MEASURES, counted, latency_at, measured
from gossipkv.loadtest.report_plots import moments, percentile_plots, rate_plots, time_plots
from gossipkv.status.words import printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from gossipkv.loadtest.limits import LimitVerdict
    from gossipkv.loadtest.result import Event, Json, LatencyResult, OfStep, Result, RunTotals

Cell: TypeAlias = tuple[str, str]  # A cell has a text, and its class in the style sheet.
Row: TypeAlias = tuple[str, list[Cell]]

PAGE: Final = "report.html"
SHOWN: Final = ("p50", "p99", "p99.9", "max")
ANECDOTE: Final = " *"  # The mark follows a percentile of too few requests.
FOLDED: Final = 12  # Longer tables and lists are folded away.
EVENTS: Final = {
    "member": "Member {who}: {detail}",
    "version": "Version of {who}: {detail}",
    "silent": "{who} does not answer: {detail}",
    "answers": "{who} answers again",
    "truth": "Truth of version {who}: {detail}",
    "frozen": "No request was answered for {detail}",
    "generator": "Generator {who}: {detail}",
}


def render(result: Result, verdicts: Sequence[LimitVerdict] = ()) -> str:
    """Render the report as HTML."""
    return (
        _environment()
        .get_template(PAGE)
        .render(
            result=result,
            judgement=judge(result, verdicts),
            verdicts=verdicts,
            asked=asked_of(result),
            facts=_facts(result),
            kinds=["all requests" if kind == ALL else kind for kind in _columns(result)],
            latencies=_latencies(result),
            has_anecdotes=any(text.endswith(ANECDOTE) for _, cells in _latencies(result) for text, _ in cells),
            is_open=result.lateness is not None,
            by_percentile=percentile_plots(result),
            by_rate=rate_plots(result),
            over_time=time_plots(result),
            events=[(number, figures.seconds(event.t), event_text(event)) for number, event in moments(result)],
            targets=_targets(result),
            versions=_versions(result),
            steps=_steps(result.steps),
            rounds=_rounds(result),
            failures=_failures(result.totals),
            cpu=_cpu(result),
            settings=list(settings(result.plan)),
            machine=list(settings(result.machine)),
            command=shlex.join(result.command),
            folded=FOLDED,
        )
    )


@cache
def _environment() -> Environment:
    return Environment(
        loader=PackageLoader("gossipkv.loadtest"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_printable,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def asked_of(result: Result) -> str:
    """Describe the requests, the targets and the pace, in a sentence or two."""
    plan, kinds = result.plan, [kind for kind in result.latency if kind != ALL]
    what = " and ".join(kinds) or "nothing"
    database = f" of database {plan['database']}" if plan.get("database") else ""
    of = result.targets[0].name if len(result.targets) == 1 else f"{len(result.targets)} targets"
    return f"{what}{database}, sent to {of} {_pace(result)}."


def event_text(event: Event) -> str:
    """Return an event as a sentence."""
    return EVENTS.get(event.what, "{what} {who}: {detail}").format(
        what=event.what, who=event.who, detail=event.detail or "no details"
    )


def settings(plan: Mapping[str, Json], path: str = "") -> Iterator[tuple[str, str]]:
    """Yield each value of a map, named by its path."""
    for name, value in plan.items():
        place = f"{path}.{name}" if path else name
        if isinstance(value, dict) and value:
            yield from settings(value, place)
        elif isinstance(value, (list, tuple)) and value and all(isinstance(item, dict) for item in value):
            yield place, "; ".join(", ".join(f"{key} {in_words(part)}" for key, part in _parts(item)) for item in value)
        else:
            yield place, in_words(value)


def in_words(value: Json) -> str:
    """Return a value of a plan in words."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, (list, tuple, dict)):
        return ", ".join(in_words(item) for item in value) or "none"
    return "none" if value in {None, ""} else str(value)


def _parts(item: Json) -> list[tuple[str, Json]]:
    return list(item.items()) if isinstance(item, dict) else []


def _printable(value: object) -> object:
    """Escape unprintable characters, including those that change the direction of text."""
    return printable(value) if isinstance(value, str) and not hasattr(value, "__html__") else value


def _pace(result: Result) -> str:
    rates = [step.rate for step in result.steps if step.rate is not None]
    connections, pipeline = result.plan.get("connections"), result.plan.get("pipeline")
    window = f" over {connections} connections" if connections else ""
    if connections and pipeline:
        window += f" with {pipeline} request{'' if pipeline == 1 else 's'} in flight on each"
    if not rates:
        return f"in a closed loop{window}: each answer is followed by the next request"
    paced = figures.rate(rates[0]) if len(set(rates)) == 1 else f"{figures.rate(rates[0])} to {figures.rate(rates[-1])}"
    return f"at {paced}{window}, at fixed times: latencies count from the time at which a request was due"


def _facts(result: Result) -> list[tuple[str, str, str, bool]]:
    """Return the main numbers: name, value, remark, True if it is bad."""
    totals = result.totals
    facts = [
        ("answers per second", figures.rate(totals.rate), f"{figures.count(totals.requests)} in all", False),
        *((name, figures.latency(measured(name, result)), _words(name), False) for name in SHOWN),
    ]
    for name in COUNTS:
        number = counted(name, totals)
        if number or name in {"wrong", "errors"}:
            facts.append((name.replace("_", " "), figures.count(number), COUNTS[name], number > 0))
    cpu = measured("cpu", result)
    if cpu is not None:
        facts.append(("server processor time", figures.latency(cpu), "per request", False))
    return facts


def _words(name: str) -> str:
    words = {"p50": "half took at most this", "p99": "1 in 100 took longer", "p99.9": "1 in 1,000 took longer"}
    return words.get(name, "the slowest")


def _columns(result: Result) -> dict[str, LatencyResult]:
    """Return the latency columns: all requests, each kind of a mix, and the lateness."""
    kinds = [kind for kind in result.latency if kind != ALL]
    columns = {
        kind: result.latency[kind] for kind in (ALL, *(kinds if len(kinds) > 1 else ())) if kind in result.latency
    }
    return columns if result.lateness is None else {**columns, "sent late by": result.lateness}


def _latencies(result: Result) -> list[Row]:
    """Return percentiles by kind; those of too few requests are marked."""
    columns = _columns(result).values()
    rows: list[Row] = [(name, [_percentile(name, latency) for latency in columns]) for name in LATENCIES]
    rows.append(("requests", [(figures.count(latency.count), "number") for latency in columns]))
    return rows


def _percentile(name: str, latency: LatencyResult) -> Cell:
    percent = LATENCIES[name]
    is_doubtful = percent is not None and name != "max" and is_anecdote(float(percent), latency.count)
    shown = figures.latency(latency_at(name, latency))
    return shown + (ANECDOTE if is_doubtful and latency.count else ""), "number"


def _targets(result: Result) -> list[Row]:
    return [
        (
            target.name,
            [
                (" ".join(filter(None, (target.node, target.version))) or "-", ""),
                *_numbers(target.totals, target.latency),
                *_counts(target.totals),
            ],
        )
        for target in result.targets
    ]


def _versions(result: Result) -> list[Row]:
    return [
        (version or "(none named)", [_count(of.requests), _count(of.wrong, bad=True), _count(of.unchecked)])
        for version, of in sorted(result.by_version.items())
    ]


def _steps(steps: Sequence[OfStep]) -> list[Row]:
    if len(steps) <= 1:
        return []
    return [
        (
            figures.seconds(step.begins_s),
            [(figures.rate(step.rate), "number"), *_numbers(step.totals, step.latency), *_counts(step.totals)],
        )
        for step in steps
    ]


def _rounds(result: Result) -> list[Row]:
    if len(result.rounds) <= 1:
        return []
    names = ("rate", *SHOWN, *COUNTS)
    rows = [
        (str(number), [(MEASURES[name].shown(measured(name, of)), "number") for name in names])
        for number, of in enumerate(result.rounds, 1)
    ]
    values = [[measured(name, of) for of in rounds_of(result)] for name in names]
    apart = [spread([value for value in numbers if value is not None] or [0.0]) for numbers in values]
    shown = [(figures.share(share, 1) if share is not None else "-", "number") for share in apart]
    return [*rows, ("spread", shown)]


def _failures(totals: RunTotals) -> list[Row]:
    rows = [(code, [("refused", ""), _count(number)]) for code, number in totals.errors.items()]
    rows += [(reason, [("connections broke", ""), _count(number)]) for reason, number in totals.broken.items()]
    return sorted(rows)


def _cpu(result: Result) -> list[Row]:
    rows = [
        (node, [(f"{figures.rounded(of.cpu_s)} s", "number"), (figures.latency(of.us_per_request), "number")])
        for node, of in result.server_cpu.items()
    ]
    if result.generator_cpu_s:
        own = 1_000_000 * result.generator_cpu_s / result.totals.requests if result.totals.requests else None
        taken = f"{figures.rounded(result.generator_cpu_s)} s"
        rows.append(("this load test", [(taken, "number"), (figures.latency(own), "number")]))
    return rows


def _numbers(totals: RunTotals, latency: LatencyResult) -> list[Cell]:
    shown = [figures.rate(totals.rate), *(figures.latency(latency_at(name, latency)) for name in SHOWN)]
    return [(text, "number") for text in shown]


def _counts(totals: RunTotals) -> list[Cell]:
    return [_count(counted(name, totals), bad=True) for name in COUNTS]


def _count(number: int, *, bad: bool = False) -> Cell:
    return figures.count(number), "number bad" if bad and number else "number"
