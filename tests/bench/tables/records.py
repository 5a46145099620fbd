"""The part `tables`: reads and writes of records, and a node at rest, all in one run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.bench.tables import gets, many_ranges, puts

if TYPE_CHECKING:
    from tests.bench.measurement import Bench


def measure(
    bench: Bench,
    *,
    keys: int = 100_000,
    records: int = 1_000_000,
    run_s: float = 1.0,
    many: int = 5_000,
    alone: int = 200,
    ranges: int = 2_000,
    idle_s: float = 10.0,
    rounds: int = 5,
) -> None:
    """Measure gets of `keys`, scans of `records`, puts of `many` writers and of one `alone`, and idle `ranges`."""
    gets.measure(bench, keys, records, run_s, rounds)
    puts.many(bench, many, rounds)
    puts.alone(bench, alone, rounds)
    puts.beside(bench, run_s, rounds)
    many_ranges.idle(bench, ranges, idle_s, rounds)
