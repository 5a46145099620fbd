"""The rows about clocks: two of them compared, one held against the other, and merged, beside loops over dictionaries.

Each is called from C without the GIL, and from Python, where most of the time is the call.  The loops are the oracle's,
on dictionaries that are made beforehand.  As in a feed, one clock is ahead in one entry.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from random import Random
from time import process_time_ns
from typing import TYPE_CHECKING

from gossipkv.replication import clock
from tests.bench import compiled, data, goals
from tests.bench.measurement import OURS, WrongAnswerError
from tests.oracle import vector_clock as oracle

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.bench.measurement import Bench

ASSIGNMENTS = 10**6
LOOPS = Path(__file__).with_name("_clock_loops.pyx")


def measure(bench: Bench, *, calls: int = 20_000, rounds: int = 9) -> None:
    """All rows."""
    loops = compiled.from_cython(LOOPS, f"-I{compiled.INCLUDE}")
    chance = Random(data.SEED)
    for size in goals.CLOCK_SIZES:
        before = {number: chance.randrange(1, 10**9) for number in chance.sample(range(ASSIGNMENTS), size)}
        after = before | {chance.choice([*before]): 10**9}
        one, other = oracle.pack(after), oracle.pack(before)
        found = [getattr(clock, name)(one, other) for name in goals.CLOCKS]
        found_in_c = [getattr(loops, name)(one, other, 1) for name in goals.CLOCKS]
        if not found == found_in_c == [oracle.AFTER, True, one]:
            raise WrongAnswerError(f"clocks of {size}")
        for name, family in goals.CLOCKS.items():
            in_c, in_python = family.of(size), goals.CLOCKS_IN_PYTHON[name].of(size)
            loop, function = getattr(loops, name), getattr(clock, name)
            from_c = partial(_ns, partial(loop, one, other), calls)
            from_python = partial(_ns, partial(_call, function, one, other), calls)
            looped = partial(_ns, partial(_call, getattr(oracle, name), after, before), calls)
            bench.compare(in_c, {OURS: from_c, goals.DICTIONARIES: looped}, rounds)
            bench.compare(in_python, {OURS: from_python, goals.DICTIONARIES: looped}, rounds)
    bench.notes.append(f"Clocks: one is ahead of the other in one entry; {calls:,} calls in each round")


def _call(function: Callable[[object, object], object], one: object, other: object, calls: int) -> None:
    for _ in range(calls):
        function(one, other)


def _ns(repeat: Callable[[int], object], calls: int) -> float:
    """The time of each of so many calls."""
    begin = process_time_ns()
    repeat(calls)
    return (process_time_ns() - begin) / calls
