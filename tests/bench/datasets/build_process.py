"""A build as a node runs it, in a separate process, and its costs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING

from gossipkv.dataset.build.job import BuildJob, BuildOrder
from gossipkv.dataset.source.listing import SourceRoot
from gossipkv.environment.real_files import RealFiles
from gossipkv.processes.child import VARIABLES
from gossipkv.processes.program import order_line

if TYPE_CHECKING:
    from pathlib import Path

BUDGET_BYTES = 256 << 20  # The default of `build_memory`.


@dataclass(frozen=True)
class Cost:
    seconds: float
    cpu_s: float  # The time of all its processes.
    peak_bytes: int  # VmHWM of the building process.


def job_of(root: Path, database: str, target: Path) -> BuildJob:
    """Return a job that builds all partitions of a database's only version into a new directory."""
    target.mkdir()
    source = SourceRoot(root, RealFiles())
    (version,) = source.versions(database).names
    return BuildJob.of(source.version(database, version), str(target))


def run(job: BuildJob, *, lanes: int = 1, memory_bytes: int = BUDGET_BYTES) -> Cost:
    """Build on the cores that this process may use."""
    os.sync()
    leash, held = os.pipe()
    begin = perf_counter()
    try:
        process = subprocess.Popen(
            [sys.executable, "-m", "gossipkv.dataset.build.build_child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=(leash,),
            env={**os.environ, **VARIABLES},
        )
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(order_line(BuildOrder(job, memory_bytes, 0, leash, lanes)))
        process.stdin.close()
        said = process.stdout.read()
        process.stdout.close()
        _, status, usage = os.wait4(process.pid, 0)
    finally:
        os.close(leash)
        os.close(held)
    seconds = perf_counter() - begin
    process.returncode = os.waitstatus_to_exitcode(status)
    told = {name: value for line in said.splitlines() if line for name, value in json.loads(line).items()}
    if process.returncode != 0 or "done" not in told:
        raise RuntimeError(f"the build failed: {told}")
    return Cost(seconds, usage.ru_utime + usage.ru_stime, told["done"])
