"""The rows about small builds in a queue: what each costs when the child stays, and when each starts one of its own."""

from __future__ import annotations

import os
import random
import resource
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING

import trio

from gossipkv.dataset.build.parent import Loads, build_in_child
from tests.bench import data, goals, machine
from tests.bench.building import remove
from tests.bench.datasets import build_process, records
from tests.bench.measurement import Measurement

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from gossipkv.dataset.build.job import BuildJob

FILES = 4
MS = 1e3
OURS = "GossipKV"


@dataclass(frozen=True)
class Load:
    """How many builds of how many records, how often."""

    builds: int = 10
    records: int = 2_000
    value_bytes: int = 100
    rounds: int = 8


def measure(directory: Path, load: Load, notes: list[str]) -> Iterator[Measurement]:
    """Time and processor time of each build, of all processes, from the first start of one to the last end."""
    version = directory / "source" / "numbered" / "1"
    records.write_tab_separated(
        version, records.numbered(load.records, load.value_bytes), FILES, records.by_hash(FILES)
    )
    notes.append(f"{goals.QUEUE}: {load.builds} builds of {load.records:,} records each, one after the other")
    seconds: dict[str, list[float]] = {OURS: [], goals.ONE_EACH: []}
    cpu: dict[str, list[float]] = {OURS: [], goals.ONE_EACH: []}
    rng = random.Random(f"{data.SEED} {goals.QUEUE}")
    for number in range(load.rounds):
        for name in rng.sample(sorted(seconds), 2):
            took_s, had_s = trio.run(_queue, directory, load, name == OURS)
            seconds[name].append(took_s / load.builds * MS)
            cpu[name].append(had_s / load.builds * MS)
            machine.say(f"    {name}: {seconds[name][-1]:.0f} ms, {cpu[name][-1]:.0f} ms of processor each")
            if number == 0:
                records.check_numbered(directory / "built-0", load.records, load.value_bytes)
            for build in range(load.builds):
                remove(directory / f"built-{build}")
    yield Measurement(goals.QUEUE, "ms", OURS, cpu)
    yield Measurement(f"{goals.QUEUE}: time", "ms", OURS, seconds)


async def _queue(directory: Path, load: Load, shares: bool) -> tuple[float, float]:
    """Seconds of all builds, and of a processor."""
    jobs = [
        build_process.job_of(directory / "source", "numbered", directory / f"built-{build}")
        for build in range(load.builds)
    ]
    os.sync()
    loads, begun_s, had_s = Loads(1, 0), perf_counter(), _children_s()
    async with trio.open_nursery() as nursery:
        if shares:
            for job in jobs:
                nursery.start_soon(_build, job, loads)
        else:
            for job in jobs:
                await _build(job, loads)
    return perf_counter() - begun_s, _children_s() - had_s


async def _build(job: BuildJob, loads: Loads) -> None:
    async with loads.turn():
        await build_in_child(
            job,
            memory_bytes=build_process.BUDGET_BYTES,
            loads=loads,
            on_progress=lambda _: None,
            waits_since_s=trio.current_time(),
        )


def _children_s() -> float:
    """What all processes have had that were waited for, and those that they have waited for."""
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return spent.ru_utime + spent.ru_stime
