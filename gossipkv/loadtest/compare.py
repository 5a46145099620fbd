"""Two results side by side: whether they differ by more than their own rounds do.

The rule, for each measure.  Both runs have a value for each round.  If every round of one is above every round of the
other, the runs *differ*, provided that this is unlikely to happen by chance; if the two ranges overlap, the difference
of the medians is *within the noise*.  Were there no difference at all, each order of the rounds would be as likely as
any other, and a of one and b of the other would part in 2 of (a + b)! / (a! b!) cases: in 10 % of all with 3 rounds of
each, in 3 % with 4, in 0.8 % with 5.  Where it is more than 5 % nobody *can tell*, whatever the numbers.

Ranks are all that it looks at, so nothing is supposed about how rounds are distributed (tails are not normal), and one
round that was disturbed makes a range wide and never makes a difference.  What the rule cannot see: rounds of one run
share what the machine was doing at that time.  Among many measures a few differ by chance.  Rejected: a bound in
percent, which says the same of a quiet machine and a busy one, and a t-test, which takes tails for normal.

Percentiles are those of each round by itself; those of `Result.latency` are of all rounds together.
"""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Final, final

from gossipkv.loadtest.measures import ALL, LATENCIES, MEASURES, measured
from gossipkv.loadtest.plan import KINDS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from gossipkv.loadtest.result import Json, OfRound, Result

CHANCE: Final = 0.05  # As often, at most, is a difference told where there is none.
MISSING: Final = "(not said)"
PASSING: Final = {"load_average"}  # Of a machine: what another moment would show otherwise.

RULE: Final = (
    "The runs differ where every round of one is above every round of the other, and that happens by chance in less "
    f"than {100 * CHANCE:.0f} % of all cases (4 rounds of each are enough); where ranges overlap it is noise."
)


class Difference(enum.Enum):
    """What may be said of one measure in two runs."""

    SAME = "same"
    BETTER = "better"
    WORSE = "worse"
    NOISE = "within the noise"
    UNKNOWN = "cannot tell"


@final
@dataclass(frozen=True, slots=True)
class Compared:
    """One measure in two runs, a value a round; the difference is that of B, seen from A.

    `name` is that of the measure, before it the kind of request if it is of one alone.
    """

    name: str
    measure: str
    one: tuple[float, ...]
    other: tuple[float, ...]
    difference: Difference

    @property
    def change(self) -> float | None:
        """Median of B against that of A, as a share of A's; None if that is nothing."""
        base = median(self.one)
        return (median(self.other) - base) / base if base else None


@final
@dataclass(frozen=True, slots=True)
class Comparison:
    """Two runs: what was measured, and in what they were not alike (name, in A, in B)."""

    measures: list[Compared]
    plans: list[tuple[str, str, str]]
    machines: list[tuple[str, str, str]]
    rounds: tuple[int, int]

    @property
    def can_tell(self) -> bool:
        """Whether there are rounds enough to say anything."""
        return chance(*self.rounds) <= CHANCE


def compare(one: Result, other: Result) -> Comparison:
    """Put B beside A."""
    rounds = rounds_of(one), rounds_of(other)
    measures = []
    for name, measure, kind in _measures(one, other):
        values, others = (_values(measure, of, kind) for of in rounds)
        if values and others:
            more = MEASURES[measure].more_is_better
            measures.append(Compared(name, measure, values, others, judge(values, others, more_is_better=more)))
    return Comparison(
        measures,
        unlike(one.plan, other.plan),
        unlike(*({name: said for name, said in of.machine.items() if name not in PASSING} for of in (one, other))),
        (len(rounds[0]), len(rounds[1])),
    )


def judge(one: Sequence[float], other: Sequence[float], *, more_is_better: bool) -> Difference:
    """What may be said of `other`, seen from `one`."""
    if len({*one, *other}) == 1:
        return Difference.SAME
    if chance(len(one), len(other)) > CHANCE:
        return Difference.UNKNOWN
    if max(one) < min(other):
        return Difference.BETTER if more_is_better else Difference.WORSE
    if max(other) < min(one):
        return Difference.WORSE if more_is_better else Difference.BETTER
    return Difference.NOISE


def chance(one: int, other: int) -> float:
    """How often so many rounds part by chance alone, into all of one above all of the other."""
    return min(1.0, 2 / math.comb(one + other, one)) if one and other else 1.0


def rounds_of(result: Result) -> Sequence[Result | OfRound]:
    """Each round; of a run that was not repeated, the run itself."""
    return result.rounds or [result]


def spread(values: Sequence[float]) -> float | None:
    """Distance from the lowest to the highest, as a share of the median; None if that is nothing."""
    middle = median(values)
    return (max(values) - min(values)) / middle if middle else None


def unlike(one: Mapping[str, Json], other: Mapping[str, Json]) -> list[tuple[str, str, str]]:
    """What is not the same in two maps, by its path, as text."""
    left, right = dict(_leaves(one)), dict(_leaves(other))
    return [
        (path, left.get(path, MISSING), right.get(path, MISSING))
        for path in dict.fromkeys([*left, *right])
        if left.get(path, MISSING) != right.get(path, MISSING)
    ]


def _measures(one: Result, other: Result) -> Iterator[tuple[str, str, str]]:
    """Name, measure and kind of all that is compared; kinds by themselves where there was a mix."""
    for name in MEASURES:
        yield name, name, ALL
    kinds = [kind for kind in KINDS if kind in one.latency and kind in other.latency]
    if len(kinds) > 1:
        for kind in kinds:
            yield from ((f"{kind}.{name}", name, kind) for name in LATENCIES)


def _values(name: str, rounds: Sequence[Result | OfRound], kind: str) -> tuple[float, ...]:
    """The measure in each round; nothing if one of them does not know it."""
    values = [measured(name, each, kind) for each in rounds]
    known = tuple(value for value in values if value is not None)
    return known if len(known) == len(values) else ()


def _leaves(value: Json | Mapping[str, Json], path: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for name, item in value.items():
            yield from _leaves(item, f"{path}.{name}" if path else str(name))
    else:
        yield path, f"{value:g}" if isinstance(value, float) else str(value) or "(none)"
