"""What a simulated run of registers costs, with its checkers: on an ideal disk, and over production's store."""

from __future__ import annotations

from functools import partial
from itertools import count
from time import process_time
from typing import TYPE_CHECKING

from tests.bench import goals
from tests.bench.measurement import OURS, WrongAnswerError
from tests.world.register.swarm import RegisterPlan

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.bench.measurement import Bench


def measure(bench: Bench, *, ideal: int = 100, stored: int = 30, rounds: int = 5) -> None:
    """Both rows, of so many runs a round."""
    for row, runs, is_stored in ((goals.REGISTER_RUNS, ideal, False), (goals.REGISTER_RUNS_STORE, stored, True)):
        starts = count(0, runs)
        bench.compare(row, {OURS: partial(_run_ms, starts, runs, stored=is_stored)}, rounds, warm=0)
    bench.notes.append(
        f"runs: {rounds} rounds of {ideal} seeds on the ideal disk and {stored} with the store, each a "
        "whole run with the faults it has drawn, its checkers and its healing; processor time of the one process"
    )


def _run_ms(starts: Iterator[int], runs: int, *, stored: bool) -> float:
    """Milliseconds a run."""
    first, begin_s = next(starts), process_time()
    for seed in range(first, first + runs):
        outcome = RegisterPlan(seed, stored=stored).run()
        if outcome.violations:
            raise WrongAnswerError(f"seed {seed} breaks a promise: {outcome.violations[0]}")
    return 1000 * (process_time() - begin_s) / runs
