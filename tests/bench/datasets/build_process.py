"""A build as a node runs it, in its own process and with the processes that it starts, and what it costs."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

from gossipkv.dataset.build.child import Order
from gossipkv.dataset.build.job import BuildJob
from gossipkv.dataset.source.listing import Source
from gossipkv.environment.real_files import RealFiles

if TYPE_CHECKING:
    from collections.abc import Iterator

LOOK_PERIOD_S = 0.03
BUDGET_BYTES = 256 << 20  # The default of `build_memory`.


@dataclass(frozen=True)
class Cost:
    """Of one build."""

    seconds: float
    cpu_s: float  # of all its processes
    peak_bytes: int  # VmHWM of all its processes, summed
    processes: int


def job_of(root: Path, database: str, target: Path) -> BuildJob:
    """The only version of a database, all of whose partitions go into a new directory."""
    target.mkdir()
    source = Source(root, RealFiles())
    (version,) = source.versions(database).names
    return BuildJob.of(source.version(database, version), str(target))


def run(job: BuildJob, *, lanes: int = 1) -> Cost:
    """Builds, on the cores that this process may use."""
    os.sync()
    leash, held = os.pipe()
    begin = perf_counter()
    try:
        process = subprocess.Popen(
            [sys.executable, "-m", "gossipkv.dataset.build.child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=(leash,),
        )
        assert process.stdin is not None
        process.stdin.write(Order(job, BUDGET_BYTES, 0, leash, lanes).to_line())
        process.stdin.flush()
        said, peaks = _watch(process)
        _, status, usage = os.wait4(process.pid, 0)
    finally:
        os.close(leash)
        os.close(held)
    seconds = perf_counter() - begin
    process.returncode = os.waitstatus_to_exitcode(status)
    process.stdin.close()
    last = json.loads(said.splitlines()[-1])
    if process.returncode != 0 or "done" not in last:
        raise RuntimeError(f"the build failed: {last}")
    return Cost(seconds, usage.ru_utime + usage.ru_stime, max(sum(peaks.values()), last["done"]), len(peaks))


def _watch(process: subprocess.Popen[bytes]) -> tuple[bytes, dict[int, int]]:
    """What it says until its end, and the most memory that it and those it started were seen to have had."""
    assert process.stdout is not None
    said = b""
    peaks: dict[int, int] = {}
    while True:
        readable, _, _ = select.select([process.stdout], [], [], LOOK_PERIOD_S)
        for number in _family(process.pid):
            peaks[number] = max(peaks.get(number, 0), _peak_bytes(number))
        if readable:
            part = os.read(process.stdout.fileno(), 1 << 16)
            if not part:
                process.stdout.close()
                return said, peaks
            said += part


def _family(number: int) -> Iterator[int]:
    yield number
    with contextlib.suppress(OSError):
        for children in Path(f"/proc/{number}/task").glob("*/children"):
            for child in children.read_text().split():
                yield from _family(int(child))


def _peak_bytes(number: int) -> int:
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{number}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) << 10
    return 0
