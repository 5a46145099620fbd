"""The rows about building: the same unsorted list of records, each engine as its experts would write it.

Everyone may hold and sort everything in memory, and everyone who can is synced at the end.  What an earlier build left
to be written back is written before the next one starts, and its files are removed outside the timed part.
"""

from __future__ import annotations

import os
import random
import shutil
from time import perf_counter_ns
from typing import TYPE_CHECKING

from gossipkv.dataset.build.job import BuildJob
from gossipkv.dataset.source.listing import Source
from gossipkv.environment.real_files import RealFiles
from tests.bench import goals
from tests.bench.data import SEED
from tests.bench.datasets import build_process
from tests.bench.machine import size_on_disk
from tests.bench.measurement import Measurement
from tests.bench.sources import VERSION, bulk, write_database

if TYPE_CHECKING:
    from pathlib import Path

    from tests.bench.data import Data
    from tests.bench.peers.base import Engine

NANOSECONDS = 1e9
MIB = 1 << 20


def remove(path: Path) -> None:
    """A file, or a directory with all it holds."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()


def _time_build(engine: type[Engine], path: Path, data: Data) -> float:
    os.sync()
    begin = perf_counter_ns()
    engine.build(path, data.records)
    return (perf_counter_ns() - begin) / NANOSECONDS


def measure_time(row: str, engines: list[type[Engine]], data: Data, directory: Path, *, rounds: int) -> Measurement:
    """Seconds a build, `rounds` times after one that does not count."""
    rng = random.Random(f"{SEED} {row}")
    samples: dict[str, list[float]] = {engine.name: [] for engine in engines}
    for number in range(rounds + 1):
        for engine in rng.sample(engines, len(engines)):
            path = directory / f"build-{engines.index(engine)}.gkv"
            seconds = _time_build(engine, path, data)
            remove(path)
            if number > 0:
                samples[engine.name].append(seconds)
    return Measurement(row, "s", engines[0].name, samples)


def measure_size(files: dict[str, Path], data: Data) -> Measurement:
    """Bytes a record beyond key and value; ours comes first in `files`."""
    raw_bytes = data.raw_bytes
    samples = {name: [(size_on_disk(path) - raw_bytes) / data.count] for name, path in files.items()}
    return Measurement(goals.SIZE, "B", next(iter(files)), samples)


def measure_memory(directory: Path, *, budget_bytes: int, data_bytes: int, value_bytes: int) -> Measurement:
    """The greatest resident size (`VmHWM`) of a node's build child that is given more than its budget to sort."""
    source, target = directory / "source", directory / "built"
    source.mkdir()
    target.mkdir()
    write_database(source, "memory", bulk(data_bytes, value_bytes, goals.BUILD_MEMORY))
    job = BuildJob.of(Source(source, RealFiles()).version("memory", VERSION), str(target))
    cost = build_process.run(job, memory_bytes=budget_bytes)
    remove(directory)
    samples = {"GossipKV": [cost.peak_bytes / MIB], goals.BUDGET: [budget_bytes / MIB]}
    return Measurement(goals.BUILD_MEMORY, "MiB", "GossipKV", samples)
