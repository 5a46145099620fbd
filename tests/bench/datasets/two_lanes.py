"""The rows about a build on two cores: ten million records from eight files, in two lanes and in one."""

from __future__ import annotations

import os
from contextlib import nullcontext
from functools import partial
from itertools import count
from typing import TYPE_CHECKING

from gossipkv.dataset.local.manifest import read_manifest
from gossipkv.environment.real_files import RealFiles
from tests.bench import data, goals, machine, sources
from tests.bench.building import remove
from tests.bench.datasets import build_process
from tests.bench.measurement import OURS, WrongAnswerError

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from pathlib import Path

    from tests.bench.measurement import Bench

FILES = 8
MIB = 1 << 20
LANES = {OURS: 2, goals.ONE_CORE: 1}


def measure(bench: Bench, *, records: int = 10_000_000, rounds: int = 6) -> None:
    """Measure files by the hash of their keys, whose groups stay in their lanes, and files in no order."""
    for row, choose in ((goals.LANES_BY_HASH, sources.by_hash(FILES)), (goals.LANES_MIXED, sources.in_turn(FILES))):
        place = bench.directory / row
        sources.write_database(place / "source", "numbered", data.numbered(records), FILES, choose)
        size_bytes = sum(path.stat().st_size for path in (place / "source").rglob("part-*"))
        bench.notes.append(f"{row}: {records:,} records in {FILES} files of text, {size_bytes:,} bytes")
        ways = {name: partial(_build, bench, place, name, cores=_cores(name)) for name in LANES}
        bench.compare(row, ways, rounds, warm=0)
        for name in LANES:
            sources.check_numbered(place / name, records)
        # The manifests' checksums show that the files are equal byte for byte.
        if len({read_manifest(RealFiles(), place / name) for name in LANES}) != 1:
            raise WrongAnswerError(f"{place}: one lane and two have made different files")
        remove(place)


def _cores(name: str) -> Callable[[], AbstractContextManager[None]]:
    """Return all cores, or a different one each time, since cores need not be equally fast."""
    allowed, number = sorted(os.sched_getaffinity(0)), count()
    return nullcontext if name == OURS else lambda: machine.pinned(allowed[next(number) % len(allowed)])


def _build(bench: Bench, place: Path, name: str, *, cores: Callable[[], AbstractContextManager[None]]) -> float:
    target = place / name
    if target.exists():
        remove(target)
    job = build_process.job_of(place / "source", "numbered", target)
    with cores():
        cost = build_process.run(job, lanes=LANES[name])
    if name == OURS:
        bench.add(goals.LANES_MEMORY, cost.peak_bytes / MIB)
        bench.add(goals.LANES_MEMORY, build_process.BUDGET_BYTES / MIB, goals.BUDGET)
    return cost.seconds
