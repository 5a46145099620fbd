"""The view of a load test, while it runs and at its end.

On a terminal a few lines on standard error are redrawn each second; elsewhere there is a line a second.  Events of
members and versions stay on the screen above these lines.
"""

from __future__ import annotations

import contextlib
import sys
from collections import deque
from statistics import median
from typing import TYPE_CHECKING, Final, Self, final

from rich.console import Group
from rich.live import Live
from rich.text import Text

from gossipkv.cli.output import note
from gossipkv.cli.screen import add_row, columns, console
from gossipkv.loadtest import figures
from gossipkv.loadtest.compare import RULE
from gossipkv.loadtest.judgement import RunState
from gossipkv.loadtest.measures import ALL, COUNTS, LATENCIES, MEASURES, counted, latency_at, measured
from gossipkv.loadtest.plan import KINDS
from gossipkv.loadtest.report import event_text
from gossipkv.status.words import printable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.console import RenderableType
    from rich.table import Table

    from gossipkv.loadtest.compare import Comparison
    from gossipkv.loadtest.judgement import RunJudgement
    from gossipkv.loadtest.result import Result, RunProgress, RunTotals, Second

BARS: Final = "▁▂▃▄▅▆▇█"
KEPT_SECONDS: Final = 40  # Width of the sparkline: half of a narrow terminal.
SHOWN: Final = ("p50", "p99", "p99.9", "max")
STYLES: Final = {RunState.GOOD: "bold green", RunState.DOUBT: "bold yellow", RunState.BAD: "bold red"}
DIFFERENCES: Final = {
    "better": "green",
    "worse": "bold red",
    "cannot tell": "dim",
    "within the noise": "dim",
    "same": "dim",
}


@final
class LiveView:
    """The view of a run: call it with each progress."""

    def __init__(self) -> None:
        self._rates: deque[float] = deque(maxlen=KEPT_SECONDS)
        self._told: tuple[int, str, int] | None = None  # Round, phase and second of the last line.
        self._live = Live(console=console(stderr=True), transient=True, auto_refresh=False) if _is_watched() else None

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def __call__(self, progress: RunProgress) -> None:
        for event in progress.events:
            self._tell(f"{figures.seconds(event.t)}: {event_text(event)}")
        second = progress.second
        is_new = second is not None and self._told != (progress.round, progress.phase, second.t)
        if second is not None and is_new:
            self._told = progress.round, progress.phase, second.t
            self._rates.append(float(second.requests))
        if self._live is not None:
            self._live.update(frame(progress, self._rates), refresh=True)
        elif second is not None and is_new:
            self._tell(plain_line(progress, second))

    def _tell(self, line: str) -> None:
        if self._live is None:
            note(line)
        else:
            self._live.console.print(Text(printable(line)))


def frame(progress: RunProgress, rates: Iterable[float]) -> RenderableType:
    """Return the view of a running test."""
    totals, latency = progress.totals, progress.latency
    asked = "closed loop" if progress.rate_asked is None else f"{figures.rate(progress.rate_asked)} requested"
    current = "-" if progress.second is None else figures.rate(progress.second.requests)
    shown = "  ".join(f"{name} {figures.latency(latency_at(name, latency))}" for name in SHOWN)
    return Group(
        Text.assemble((_where(progress), "bold"), f"  {asked}"),
        Text.assemble((f"{current:>12}", "bold cyan"), "  ", (sparkline(rates), "cyan")),
        Text(f"  {shown}"),
        _failures(totals),
    )


def plain_line(progress: RunProgress, second: Second) -> str:
    """Return a line about one second of a run, for a log."""
    return (
        f"{_where(progress)}: {figures.rate(second.requests)}, p50 {figures.latency(_known(second, second.p50_us))}, "
        f"p99 {figures.latency(_known(second, second.p99_us))}, max {figures.latency(_known(second, second.max_us))}, "
        f"errors {figures.count(second.errors)}, wrong {figures.count(second.wrong)}"
    )


def sparkline(values: Iterable[float]) -> str:
    """Return values as bars; the highest value has the highest bar."""
    heights = list(values)
    most = max(heights, default=0.0)
    if most <= 0:
        return BARS[0] * len(heights)
    return "".join(BARS[min(int(value / most * len(BARS)), len(BARS) - 1)] for value in heights)


def outcome(result: Result, judgement: RunJudgement) -> RenderableType:
    """Return the view of a result: the verdict, then the numbers."""
    lines: list[RenderableType] = [
        Text(f"{judgement.headline}.", STYLES[judgement.state]),
        Text(judgement.summary),
        *(Text(printable(f"  {reason}")) for reason in judgement.reasons),
        Text(),
        _by_kind(result),
    ]
    if len(result.targets) > 1:
        lines += [Text(), _by_target(result)]
    return Group(*lines, *(Text(f"\n{printable(caveat)}", "dim") for caveat in judgement.caveats))


def compared(comparison: Comparison) -> RenderableType:
    """Return two runs side by side: for each measure the median over the rounds, with their range in brackets."""
    table = columns("", "A", "B", "change", "", kept=("A", "B", "change"), right=("A", "B", "change"))
    for row in comparison.measures:
        if row.measure in COUNTS and not any(row.first + row.second):
            continue  # Neither run had any.
        change = "-" if row.change is None else f"{100 * row.change:+.1f} %"
        word = row.difference.value
        sides = (_spread(values, row.measure) for values in (row.first, row.second))
        add_row(table, row.name, *sides, change, Text(word, DIFFERENCES[word]))
    rounds = " and ".join(figures.count(number) for number in comparison.rounds)
    parts: list[RenderableType] = [table, Text(f"\nRounds: {rounds}. {RULE}", "dim")]
    if not comparison.can_tell:
        parts.append(
            Text("There are too few rounds for a comparison; run both tests with --rounds 4 or more.", "yellow")
        )
    for what, unlike in (("plan", comparison.plans), ("machine", comparison.machines)):
        parts += [
            Text(printable(f"The runs differ in {what} {name}: {first} in A, {second} in B"), "yellow")
            for name, first, second in unlike
        ]
    return Group(*parts)


def _spread(values: tuple[float, ...], measure: str) -> str:
    shown = MEASURES[measure].shown
    low, middle, high = min(values), median(values), max(values)
    return shown(middle) if low == high else f"{shown(middle)} ({shown(low)} to {shown(high)})"


def _where(progress: RunProgress) -> str:
    round_ = f"round {progress.round} of {progress.rounds}, " if progress.rounds > 1 else ""
    if progress.phase in {"records", "check"}:
        return f"{progress.phase}, {figures.seconds(round(progress.elapsed_s))}"
    phase = "warm-up, " if progress.phase == "warm-up" else ""
    return f"{round_}{phase}{figures.seconds(round(progress.elapsed_s))} of {figures.seconds(progress.planned_s)}"


def _failures(totals: RunTotals) -> Text:
    line = Text(" ")
    for name in COUNTS:
        number = counted(name, totals)
        line.append(f" {name.replace('_', ' ')} ", "dim")
        line.append(figures.count(number), "bold red" if number else "")
    return line


def _by_kind(result: Result) -> Table:
    kinds = [kind for kind in KINDS if kind in result.latency]
    shown = [ALL, *kinds] if len(kinds) > 1 else [ALL]
    names = ("requests", *LATENCIES)
    table = columns("", *names, kept=names, right=names)
    for kind in shown:
        latency = result.latency.get(kind)
        number = "-" if latency is None else figures.count(latency.count)
        add_row(
            table,
            "all requests" if kind == ALL else kind,
            number,
            *(figures.latency(measured(name, result, kind)) for name in LATENCIES),
        )
    if result.lateness is not None:
        late = result.lateness
        add_row(table, "sent late by", "", *(figures.latency(latency_at(name, late)) for name in LATENCIES))
    return table


def _by_target(result: Result) -> Table:
    met = [name for name in COUNTS if any(counted(name, target.totals) for target in result.targets)]
    names = ("requests", "per second", "p50", "p99", *(name.replace("_", " ") for name in met))
    table = columns("target", *names, kept=names, right=names)
    for target in result.targets:
        add_row(
            table,
            target.name if target.node is None else f"{target.name} ({target.node})",
            figures.count(target.totals.requests),
            figures.rate(target.totals.rate),
            *(figures.latency(latency_at(name, target.latency)) for name in ("p50", "p99")),
            *(figures.count(counted(name, target.totals)) for name in met),
        )
    return table


def _known(second: Second, us: float) -> float | None:
    """Return a latency of this second; None if no request was answered."""
    return us if second.requests else None


def _is_watched() -> bool:
    with contextlib.suppress(ValueError):  # Standard error is closed.
        return sys.stderr.isatty()
    return False
