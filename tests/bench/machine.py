"""The machine of the figures, and the quiet in which they are taken."""

from __future__ import annotations

import gc
import importlib.metadata
import os
import platform
import sys
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

BLOCK_BYTES = 512  # The unit of `st_blocks` on every file system.
PACKAGES = ("lmdb", "rocksdict", "lz4", "msgpack", "trio", "cython", "duckdb", "pyarrow", "pyspark", "feast")


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _memory_gib() -> float:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)


def versions() -> dict[str, str]:
    """Return the versions of the compared packages that are installed."""
    found = {}
    for package in PACKAGES:
        with suppress(importlib.metadata.PackageNotFoundError):
            found[package] = importlib.metadata.version(package)
    return found


def system() -> str:
    """Return processor, memory, kernel and Python."""
    kernel = ".".join(platform.release().split(".")[:2])
    return (
        f"{os.cpu_count()} x {_processor()}, {_memory_gib():.0f} GiB, {platform.system()} {kernel}, "
        f"Python {platform.python_version()}"
    )


def describe() -> str:
    """Return one line: processor, memory, kernel, Python, and the compared packages."""
    return f"{system()}; {', '.join(f'{package} {version}' for package, version in versions().items())}"


@contextmanager
def pinned(core: int | None) -> Iterator[None]:
    """Pin this process to one core, by default the last, until the block ends."""
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(allowed) if core is None else core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)


@contextmanager
def uncollected() -> Iterator[None]:
    """Disable the cyclic garbage collector, whose pauses are unrelated to any engine."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def size_on_disk(path: Path) -> int:
    """Return the bytes in a file, or in all files below a directory, without holes (LMDB's file is a sparse map)."""
    os.sync()
    files = [each.stat() for each in (path.rglob("*") if path.is_dir() else [path]) if not each.is_dir()]
    return sum(min(each.st_size, each.st_blocks * BLOCK_BYTES) for each in files)


def forget(directory: Path) -> None:
    """Drop all files below a directory from the page cache."""
    os.sync()
    for path in directory.rglob("*"):
        if path.is_file():
            descriptor = os.open(path, os.O_RDONLY)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)


def say(line: str) -> None:
    """Print progress to standard error; only tables go to standard output."""
    print(line, file=sys.stderr, flush=True)
