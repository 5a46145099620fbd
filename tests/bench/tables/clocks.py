"""The rows about clocks: two of them compared, one held against the other, and merged, beside loops over dictionaries.

The loops are the oracle's, on dictionaries that are made beforehand.  As in a feed, one clock is ahead in one entry.
"""

from __future__ import annotations

from functools import partial
from random import Random
from time import process_time_ns
from typing import TYPE_CHECKING

from gossipkv.replication import clock
from tests.bench import data, goals
from tests.bench.measurement import OURS, WrongAnswerError
from tests.oracle import vector_clock as oracle

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.bench.measurement import Bench

ASSIGNMENTS = 10**6


def measure(bench: Bench, *, calls: int = 20_000, rounds: int = 9) -> None:
    """All rows."""
    chance = Random(data.SEED)
    for size in goals.CLOCK_SIZES:
        before = {number: chance.randrange(1, 10**9) for number in chance.sample(range(ASSIGNMENTS), size)}
        after = before | {chance.choice([*before]): 10**9}
        one, other = oracle.pack(after), oracle.pack(before)
        merged = oracle.unpack(clock.merge(one, other))
        if (clock.compare(one, other), clock.covers(one, other), merged) != (oracle.AFTER, True, after):
            raise WrongAnswerError(f"clocks of {size}")
        for name, family in goals.CLOCKS.items():
            packed = partial(_call_ns, getattr(clock, name), one, other, calls)
            looped = partial(_call_ns, getattr(oracle, name), after, before, calls)
            bench.compare(family.of(size), {OURS: packed, goals.DICTIONARIES: looped}, rounds)
    bench.notes.append(f"Clocks: one is ahead of the other in one entry; {calls:,} calls from Python in each round")


def _call_ns(function: Callable[[object, object], object], one: object, other: object, calls: int) -> float:
    begin = process_time_ns()
    for _ in range(calls):
        function(one, other)
    return (process_time_ns() - begin) / calls
