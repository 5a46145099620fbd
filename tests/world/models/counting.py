"""How a model is run by hand: the verdicts of some seeds are counted, with planted bugs or without."""

from __future__ import annotations

import sys
from collections import Counter
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class Judged(Protocol):
    """A run of a model."""

    @property
    def counts(self) -> Counter[str]:
        """What happened, how often."""
        ...

    def verdict(self) -> str:
        """Run it, and say in a word what came of it."""
        ...


def count_verdicts(run: Callable[[int, frozenset[str]], Judged], arguments: Sequence[str]) -> None:
    """Count the verdicts of some seeds, and name the first of each that is not right."""
    first, count, *planted = arguments
    verdicts: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    firsts: dict[str, int] = {}
    for seed in range(int(first), int(first) + int(count)):
        one = run(seed, frozenset(planted))
        verdict = one.verdict()
        verdicts[verdict] += 1
        firsts.setdefault(verdict, seed)
        counts += one.counts
    firsts.pop("right", None)
    sys.stdout.write(f"{dict(verdicts)} first {firsts} {dict(counts)}\n")
