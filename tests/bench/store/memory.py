"""The rows about memory: what a process that writes without end has of its own, and the child that merges for it.

The process writes through the Trio shell, as fast as it is let (`filling`).  Anonymous memory alone counts (`RssAnon`):
pages of mapped files are the system's to take back.  It is looked at all the time, of the process and of its children.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from time import sleep
from typing import TYPE_CHECKING, Final

from tests.bench import goals
from tests.bench.measurement import Measurement
from tests.bench.store import ours
from tests.bench.store.overwriting import Space

if TYPE_CHECKING:
    from collections.abc import Iterator

MIB: Final = 1 << 20
CHILD: Final = "gossipkv.storage.engine.child"
SAMPLE_S: Final = 0.01
BESIDE_MIB: Final = 64  # What a node may have beside its memtables, the interpreter included.


@dataclass(frozen=True)
class Load:
    """How much is written."""

    written_bytes: int = 10 << 30
    segment_bytes: int = 64 * MIB


def measure(directory: Path, load: Load, notes: list[str]) -> Iterator[Measurement]:
    """Write, and look."""
    command = [sys.executable, "-m", "tests.bench.store.filling", str(directory / "store")]
    command += [str(load.written_bytes), str(load.segment_bytes)]
    node = child = 0
    with Space(directory, ".gkv") as space, subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
        while writer.poll() is None:
            node = max(node, anonymous_bytes(writer.pid))
            child = max([child, *map(anonymous_bytes, filter(is_merging, children(writer.pid)))])
            sleep(SAMPLE_S)
        assert writer.stdout is not None
        told = writer.stdout.read()
    if writer.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} ended with {writer.returncode}")
    said = json.loads(told)
    limit = said["memtables_bytes"] / MIB + BESIDE_MIB
    yield Measurement(goals.STORE_MEMORY, "MiB", ours.NAME, {ours.NAME: [node / MIB], goals.MEMTABLES: [limit]})
    budget = said["budget_bytes"] / MIB
    yield Measurement(goals.STORE_MEMORY_CHILD, "MiB", ours.NAME, {ours.NAME: [child / MIB], goals.BUDGET: [budget]})
    resting = space.now()
    notes.append(
        f"Memory: {load.written_bytes / MIB:,.0f} MiB written in {said['seconds']:.0f} s by 64 tasks, "
        f"{said['refused']} batches refused and tried again; segments of {load.segment_bytes // MIB} MiB; "
        f"files of runs took {max(space.most, resting) / MIB:,.0f} MiB at most, {resting / MIB:,.0f} at the end"
    )


def anonymous_bytes(process: int) -> int:
    """What a process has of its own in memory; 0 when it is gone."""
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith("RssAnon:")), 0)


def is_merging(process: int) -> bool:
    """Whether it is the child that merges: until it has begun its own program, what it has is its parent's."""
    try:
        return CHILD.encode() in Path(f"/proc/{process}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return False


def children(process: int) -> list[int]:
    """The processes that it has started and that still run."""
    found: list[int] = []
    for task in Path(f"/proc/{process}/task").glob("*/children"):
        try:
            found += map(int, task.read_text().split())
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found
