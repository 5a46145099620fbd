"""The rows about a build on two cores: ten million records from eight files, in two lanes and in one.

What two processes get out of this machine is measured beside it: cores that are siblings, or neighbours on the same
host, let no program reach twice one core's rate.
"""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import nullcontext
from functools import partial
from itertools import count
from time import perf_counter
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

    from tests.bench.measurement import Bench, Row

FILES = 8
MIB = 1 << 20
LANES = {OURS: 2, goals.ONE_CORE: 1}
LOOP = "for _ in range({}): pass"


def measure(bench: Bench, *, records: int = 10_000_000, loop: int = 60_000_000, rounds: int = 6) -> None:
    """Files by the hash of their keys, whose groups stay in their lanes, and files by no function."""
    for row, choose in ((goals.LANES_BY_HASH, sources.by_hash(FILES)), (goals.LANES_MIXED, sources.in_turn(FILES))):
        place = bench.directory / row
        sources.write_database(place / "source", "numbered", data.numbered(records), FILES, choose)
        size_bytes = sum(path.stat().st_size for path in (place / "source").rglob("part-*"))
        bench.notes.append(f"{row}: {records:,} records in {FILES} files of text, {size_bytes:,} bytes")
        ways = {name: partial(_build, bench, row, place, name, turns=loop, cores=_cores(name)) for name in LANES}
        bench.compare(row, ways, rounds, warm=0)
        for name in LANES:
            sources.check_numbered(place / name, records, data.SMALL_VALUE_BYTES)
        if len({read_manifest(RealFiles(), place / name) for name in LANES}) != 1:  # Byte for byte, as the seals say.
            raise WrongAnswerError(f"{place}: one lane and two have made different files")
        remove(place)


def _cores(name: str) -> Callable[[], AbstractContextManager[None]]:
    """All, or each time another one, since they need not be equally fast."""
    allowed, number = sorted(os.sched_getaffinity(0)), count()
    return nullcontext if name == OURS else lambda: machine.pinned(allowed[next(number) % len(allowed)])


def _build(
    bench: Bench, row: Row, place: Path, name: str, *, turns: int, cores: Callable[[], AbstractContextManager[None]]
) -> dict[Row, float]:
    """One build, and as many turns of an empty loop, shared out to as many processes as there are lanes."""
    target = place / name
    if target.exists():
        remove(target)
    job = build_process.job_of(place / "source", "numbered", target)
    with cores():
        cost = build_process.run(job, lanes=LANES[name])
        os.sync()
        begin = perf_counter()
        command = [sys.executable, "-c", LOOP.format(turns // LANES[name])]
        for process in [subprocess.Popen(command) for _ in range(LANES[name])]:
            process.wait()
        loop_s = perf_counter() - begin
    if name == OURS:
        bench.add(goals.LANES_MEMORY, cost.peak_bytes / MIB)
        bench.add(goals.LANES_MEMORY, build_process.BUDGET_BYTES / MIB, goals.BUDGET)
    return {row: cost.seconds, goals.LANES_CPU[row]: cost.cpu_s, goals.LANES_LOOPS[row]: loop_s}
