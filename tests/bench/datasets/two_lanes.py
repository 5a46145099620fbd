"""The rows about a build on two cores: ten million records from eight files, in two lanes and in one.

What two processes get out of this machine is measured beside it: cores that are siblings, or neighbours on the same
host, let no program reach twice one core's rate.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from contextlib import nullcontext
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING

from gossipkv.dataset.local.manifest import read_manifest
from gossipkv.environment.real_files import RealFiles
from tests.bench import data, goals, machine
from tests.bench.building import remove
from tests.bench.datasets import build_process, records
from tests.bench.measurement import Measurement

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    from tests.bench.datasets.build_process import Cost

FILES = 8
MIB = 1 << 20
ONE, TWO = goals.ONE_CORE, "GossipKV"
LOOP = "for _ in range({}): pass"


@dataclass(frozen=True)
class Load:
    """How many records, how often."""

    records: int = 10_000_000
    value_bytes: int = 100
    loop: int = 60_000_000
    rounds: int = 6


def measure(directory: Path, load: Load, notes: list[str]) -> Iterator[Measurement]:
    """Files by the hash of their keys, whose groups stay in their lanes, and files by no function."""
    peaks: list[float] = []
    for row, place, choose in (
        (goals.LANES_BY_HASH, directory / "by-hash", records.by_hash(FILES)),
        (goals.LANES_MIXED, directory / "mixed", records.in_turn(FILES)),
    ):
        machine.say(f"  {row}")
        version = place / "source" / "numbered" / "1"
        records.write_tab_separated(version, records.numbered(load.records, load.value_bytes), FILES, choose)
        size_bytes = sum(path.stat().st_size for path in version.iterdir())
        notes.append(f"{row}: {load.records:,} records in {FILES} files of text, {size_bytes:,} bytes")
        yield from _measure(row, place, load, peaks)
        remove(place)
    budget = [build_process.BUDGET_BYTES / MIB] * len(peaks)
    yield Measurement(goals.LANES_MEMORY, "MiB", TWO, {TWO: peaks, goals.BUDGET: budget})


def _measure(row: str, directory: Path, load: Load, peaks: list[float]) -> Iterator[Measurement]:
    samples: dict[str, list[float]] = {TWO: [], ONE: []}
    cpu: dict[str, list[float]] = {TWO: [], ONE: []}
    loops: dict[str, list[float]] = {TWO: [], ONE: []}
    rng = random.Random(f"{data.SEED} {row}")
    for number in range(load.rounds):
        for name in rng.sample(sorted(samples), 2):
            cost = _build(directory, name, load, number)
            samples[name].append(cost.seconds)
            cpu[name].append(cost.cpu_s)
            if name == TWO:
                peaks.append(cost.peak_bytes / MIB)
            machine.say(f"    {name}: {cost.seconds:.2f} s, {cost.cpu_s:.2f} s of processor, {cost.peak_bytes:,} bytes")
        for name in rng.sample(sorted(loops), 2):
            with _cores(name, number):
                loops[name].append(_loop(load.loop, 2 if name == TWO else 1))
    _compare(directory)
    yield Measurement(row, "s", TWO, samples)
    yield Measurement(f"{row}: processor time", "s", TWO, cpu)
    yield Measurement(f"{row}: {goals.LOOPS}", "s", TWO, loops)


def _cores(name: str, number: int) -> AbstractContextManager[None]:
    """All, or in each round another one, since they need not be equally fast."""
    allowed = sorted(os.sched_getaffinity(0))
    return nullcontext() if name == TWO else machine.pinned(allowed[number % len(allowed)])


def _build(directory: Path, name: str, load: Load, number: int) -> Cost:
    target = directory / name.replace(" ", "-")
    if target.exists():
        remove(target)
    job = build_process.job_of(directory / "source", "numbered", target)
    with _cores(name, number):
        cost = build_process.run(job, lanes=1 if name == ONE else 2)
    if number == 0:
        records.check_numbered(target, load.records, load.value_bytes)
    return cost


def _compare(directory: Path) -> None:
    """One lane and two make the same files, byte for byte, as their seals say."""
    made = {read_manifest(RealFiles(), directory / name.replace(" ", "-")) for name in (ONE, TWO)}
    if len(made) != 1:
        raise RuntimeError(f"{directory}: one lane and two have made different files")


def _loop(turns: int, processes: int) -> float:
    """Seconds for so many turns of an empty loop, shared out to so many processes."""
    os.sync()
    begin = perf_counter()
    started = [subprocess.Popen([sys.executable, "-c", LOOP.format(turns // processes)]) for _ in range(processes)]
    for process in started:
        process.wait()
    return perf_counter() - begin
