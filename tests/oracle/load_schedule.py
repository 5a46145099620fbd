"""The due times of a run's requests, in fractions."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def dues(stages: Sequence[tuple[float, int]], turn: int = 0, share: int = 1) -> list[tuple[int, Fraction]]:
    """Return stage and nanosecond of each request of one sender among those that share a rate."""
    found = []
    begin = Fraction(0)
    for stage, (rate, duration_ns) in enumerate(stages):
        number = turn
        while (after := Fraction(number) * 1_000_000_000 / Fraction(rate)) < duration_ns:
            found.append((stage, begin + after))
            number += share
        begin += duration_ns
    return found
