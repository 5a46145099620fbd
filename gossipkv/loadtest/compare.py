"""Comparison of two results: they differ if they differ by more than their own rounds do.

For each measure both runs have one value per round.  If every round of one is above every round of the other, the runs
*differ*, provided that chance makes this unlikely.  If the ranges overlap, the difference is *within the noise*. With
no real difference, a rounds of one and b of the other separate in 2 of (a + b)! / (a! b!) cases: in 10 % with 3 rounds
each, in 3 % with 4, in 0.8 % with 5. Above 5 % the result is *cannot tell*, whatever the numbers.

Only ranks count, so no distribution is assumed, and one disturbed round widens a range without making a difference.
The rule cannot see a machine's state shared by the rounds of a run, and among many measures a few differ by chance.
Percentiles are those of single rounds.
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

CHANCE: Final = 0.05  # The highest rate of differences reported where there is none.
MISSING: Final = "(not said)"
PASSING: Final = {"load_average"}  # These facts about a machine change from moment to moment.

RULE: Final = (
    "Two runs differ if every round of one is above every round of the other, which happens by chance in less "
    f"than {100 * CHANCE:.0f} % of all cases (4 rounds of each suffice). If ranges overlap, the difference is noise."
)


class Difference(enum.Enum):
    """The possible results of a comparison."""

    SAME = "same"
    BETTER = "better"
    WORSE = "worse"
    NOISE = "within the noise"
    UNKNOWN = "cannot tell"


@final
@dataclass(frozen=True, slots=True)
class Compared:
    """One measure in two runs, with one value per round; the difference is that of B, seen from A.

    `name` is that of the measure, preceded by the kind of request if it covers only one kind.
    """

    name: str
    measure: str
    first: tuple[float, ...]
    second: tuple[float, ...]
    difference: Difference

    @property
    def change(self) -> float | None:
        """Return the change of the median from A to B, as a share of A's; None if A's is 0."""
        base = median(self.first)
        return (median(self.second) - base) / base if base else None


@final
@dataclass(frozen=True, slots=True)
class Comparison:
    """Two runs: the measures, and the differences of their conditions (name, in A, in B)."""

    measures: list[Compared]
    plans: list[tuple[str, str, str]]
    machines: list[tuple[str, str, str]]
    rounds: tuple[int, int]

    @property
    def can_tell(self) -> bool:
        return chance(*self.rounds) <= CHANCE


def compare(first: Result, second: Result) -> Comparison:
    """Compare B with A."""
    rounds = rounds_of(first), rounds_of(second)
    measures = []
    for name, measure, kind in _measures(first, second):
        values, other_values = (_values(measure, of, kind) for of in rounds)
        if values and other_values:
            more = MEASURES[measure].more_is_better
            difference = judge(values, other_values, more_is_better=more)
            measures.append(Compared(name, measure, values, other_values, difference))
    return Comparison(
        measures,
        unlike(first.plan, second.plan),
        unlike(*({name: fact for name, fact in of.machine.items() if name not in PASSING} for of in (first, second))),
        (len(rounds[0]), len(rounds[1])),
    )


def judge(first: Sequence[float], second: Sequence[float], *, more_is_better: bool) -> Difference:
    """Judge the second run, seen from the first."""
    if len({*first, *second}) == 1:
        return Difference.SAME
    if chance(len(first), len(second)) > CHANCE:
        return Difference.UNKNOWN
    if max(first) < min(second):
        return Difference.BETTER if more_is_better else Difference.WORSE
    if max(second) < min(first):
        return Difference.WORSE if more_is_better else Difference.BETTER
    return Difference.NOISE


def chance(count: int, other_count: int) -> float:
    """Return the probability that this many rounds separate by chance alone, all of one run above all of the other."""
    return min(1.0, 2 / math.comb(count + other_count, count)) if count and other_count else 1.0


def rounds_of(result: Result) -> Sequence[Result | OfRound]:
    """Return each round; for a run without repetitions, the run itself."""
    return result.rounds or [result]


def spread(values: Sequence[float]) -> float | None:
    """Return the distance from the lowest to the highest, as a share of the median; None if that is 0."""
    middle = median(values)
    return (max(values) - min(values)) / middle if middle else None


def unlike(first: Mapping[str, Json], second: Mapping[str, Json]) -> list[tuple[str, str, str]]:
    """Return the differences of two maps, by path, as text."""
    left, right = dict(_leaves(first)), dict(_leaves(second))
    return [
        (path, left.get(path, MISSING), right.get(path, MISSING))
        for path in dict.fromkeys([*left, *right])
        if left.get(path, MISSING) != right.get(path, MISSING)
    ]


def _measures(first: Result, second: Result) -> Iterator[tuple[str, str, str]]:
    """Yield name, measure and kind of each comparison; a mix also has its kinds separately."""
    for name in MEASURES:
        yield name, name, ALL
    kinds = [kind for kind in KINDS if kind in first.latency and kind in second.latency]
    if len(kinds) > 1:
        for kind in kinds:
            yield from ((f"{kind}.{name}", name, kind) for name in LATENCIES)


def _values(name: str, rounds: Sequence[Result | OfRound], kind: str) -> tuple[float, ...]:
    """Return the measure in each round; empty if a round lacks it."""
    values = [measured(name, of, kind) for of in rounds]
    present = tuple(value for value in values if value is not None)
    return present if len(present) == len(values) else ()


def _leaves(value: Json | Mapping[str, Json], path: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for name, item in value.items():
            yield from _leaves(item, f"{path}.{name}" if path else str(name))
    else:
        yield path, f"{value:g}" if isinstance(value, float) else str(value) or "(none)"
