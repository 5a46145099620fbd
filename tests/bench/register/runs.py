"""What a simulated run of registers costs, with its checkers: on an ideal disk, and over production's store."""

from __future__ import annotations

from dataclasses import dataclass
from time import process_time
from typing import TYPE_CHECKING

from tests.bench import goals, machine
from tests.bench.measurement import Measurement
from tests.bench.network.rows import WrongAnswerError
from tests.bench.register.changes import OURS
from tests.world.register.swarm import RegisterPlan

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@dataclass(frozen=True)
class Load:
    """How many runs a round."""

    ideal: int = 100
    stored: int = 30
    rounds: int = 5


def measure(directory: Path, load: Load, notes: list[str]) -> Iterator[Measurement]:
    """Both rows."""
    del directory
    for row, count, is_stored in (
        (goals.REGISTER_RUNS, load.ideal, False),
        (goals.REGISTER_RUNS_STORE, load.stored, True),
    ):
        starts = range(0, load.rounds * count, count)
        figures = [_run(range(first, first + count), stored=is_stored) for first in starts]
        machine.say(f"    {row}, ms: {[round(figure, 1) for figure in figures]}")
        yield Measurement(row, "ms", OURS, {OURS: figures})
    notes.append(
        f"runs: {load.rounds} rounds of {load.ideal} seeds on the ideal disk and {load.stored} with the store, each a "
        "whole run with the faults it has drawn, its checkers and its healing; processor time of the one process"
    )


def _run(seeds: range, *, stored: bool) -> float:
    """Milliseconds a run."""
    begin_s = process_time()
    for seed in seeds:
        outcome = RegisterPlan(seed, stored=stored).run()
        if outcome.violations:
            raise WrongAnswerError(f"seed {seed} breaks a promise: {outcome.violations[0]}")
    return 1000 * (process_time() - begin_s) / len(seeds)
