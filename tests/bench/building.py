"""The rows about building: the same unsorted list of records, each engine used as its experts would.

Each engine may hold and sort everything in memory, and syncs at the end if it can. The write-back of an earlier build
ends before the next build starts, and its files are removed outside the timed part.
"""

from __future__ import annotations

import os
import shutil
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING

from tests.bench import goals
from tests.bench.data import RECORD_BYTES, numbered
from tests.bench.datasets import build_process
from tests.bench.machine import size_on_disk
from tests.bench.measurement import OURS
from tests.bench.sources import write_database

if TYPE_CHECKING:
    from pathlib import Path

    from tests.bench.data import Data
    from tests.bench.measurement import Bench, Row
    from tests.bench.peers.base import Engine

MIB = 1 << 20
ROUNDS = 5


def remove(path: Path) -> None:
    """Remove a file, or a directory with its content."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()


def _build_s(kind: type[Engine], path: Path, data: Data) -> float:
    os.sync()
    begin = perf_counter()
    kind.build(path, data.records)
    taken_s = perf_counter() - begin
    remove(path)
    return taken_s


def compare_time(bench: Bench, row: Row, kinds: list[type[Engine]], data: Data, rounds: int) -> None:
    paths = {kind: bench.directory / f"build-{number}.gkv" for number, kind in enumerate(kinds)}
    bench.compare(row, {kind.name: partial(_build_s, kind, path, data) for kind, path in paths.items()}, rounds)


def compare_size(bench: Bench, kinds: list[type[Engine]], data: Data) -> None:
    for number, kind in enumerate(kinds):
        path = bench.directory / f"size-{number}.gkv"
        kind.build(path, data.records)
        bench.add(goals.SIZE, (size_on_disk(path) - data.raw_bytes) / data.count, kind.name)


def measure_memory(bench: Bench, *, budget_bytes: int = 96 * MIB, sorted_bytes: int = 960 * MIB) -> None:
    """Measure the peak resident size (`VmHWM`) of a node's build child that sorts more than its budget.

    The budget is small: the child itself takes 25 MiB, and a line may be 16.
    """
    source = bench.directory / "source"
    write_database(source, "memory", numbered(sorted_bytes // RECORD_BYTES))
    job = build_process.job_of(source, "memory", bench.directory / "built")
    cost = build_process.run(job, memory_bytes=budget_bytes)
    bench.add(goals.BUILD_MEMORY, cost.peak_bytes / MIB, OURS)
    bench.add(goals.BUILD_MEMORY, budget_bytes / MIB, goals.BUDGET)
