"""The yardstick under all contestants: a loop in C reads random pages of the same file past the page cache."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import NamedTuple

from tests.bench import compiled

MICROSECOND_NS = 1e3
SOURCE = Path(__file__).with_name("direct_reads.c")


class Read(NamedTuple):
    """The mean time of a page read."""

    wall_us: float
    cpu_us: float  # The time of all threads.


def read(path: Path, threads: int, seconds: float, seed: int) -> Read:
    """Read random pages of a file with so many concurrent threads."""
    command = [str(compiled.from_c(SOURCE, "-pthread")), str(path), str(threads), str(seconds), str(seed)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
    reads, elapsed_ns, used_ns = map(int, done.stdout.split())
    return Read(elapsed_ns / MICROSECOND_NS / reads, used_ns / MICROSECOND_NS / reads)
