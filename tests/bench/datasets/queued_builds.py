"""The rows about small builds in a queue: what each costs when the child stays, and when each starts one of its own."""

from __future__ import annotations

import os
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING

import trio

from gossipkv.dataset.build.parent import Loads, build_in_child
from tests.bench import data, goals, sources
from tests.bench.building import remove
from tests.bench.datasets import build_process
from tests.bench.measurement import OURS
from tests.bench.processes import children_cpu_s

if TYPE_CHECKING:
    from pathlib import Path

    from gossipkv.dataset.build.job import BuildJob
    from tests.bench.measurement import Bench, Row

MS = 1e3


def measure(bench: Bench, *, builds: int = 10, records: int = 2_000, rounds: int = 8) -> None:
    """Time and processor time of each build, of all processes, from the first start of one to the last end."""
    source = bench.directory / "source"
    sources.write_database(source, "numbered", data.numbered(records), choose=sources.by_hash(sources.FILES))
    bench.notes.append(f"{goals.QUEUE}: {builds} builds of {records:,} records each, one after the other")

    def side(*, shares: bool) -> dict[Row, float]:
        targets = [bench.directory / f"built-{number}" for number in range(builds)]
        took_s, had_s = trio.run(partial(_queue, source, targets, shares=shares))
        for target in targets:
            sources.check_numbered(target, records, data.SMALL_VALUE_BYTES)
            remove(target)
        return {goals.QUEUE: had_s / builds * MS, goals.QUEUE_TIME: took_s / builds * MS}

    sides = {OURS: partial(side, shares=True), goals.ONE_EACH: partial(side, shares=False)}
    bench.compare(goals.QUEUE, sides, rounds, warm=0)


async def _queue(source: Path, targets: list[Path], *, shares: bool) -> tuple[float, float]:
    """Seconds of all builds, and of a processor."""
    jobs = [build_process.job_of(source, "numbered", target) for target in targets]
    os.sync()
    loads, begun_s, had_s = Loads(1, 0), perf_counter(), children_cpu_s()
    async with trio.open_nursery() as nursery:
        for job in jobs:
            if shares:
                nursery.start_soon(_build, job, loads)
            else:
                await _build(job, loads)
    return perf_counter() - begun_s, children_cpu_s() - had_s


async def _build(job: BuildJob, loads: Loads) -> None:
    async with loads.turn():
        await build_in_child(
            job,
            memory_bytes=build_process.BUDGET_BYTES,
            loads=loads,
            on_progress=lambda _: None,
            waits_since_s=trio.current_time(),
        )
