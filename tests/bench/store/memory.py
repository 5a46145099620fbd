"""The rows about memory: what a process that writes without end has of its own, and the child that merges for it.

    python -m tests.bench.store.memory DIRECTORY BYTES SEGMENT_BYTES

is that process: sixty-four tasks write batches of a hundred records of a kibibyte through the Trio shell, in any order
of keys, as fast as they are let.  Anonymous memory alone counts (`RssAnon`): pages of mapped files are the system's to
take back.  It is looked at all the time, of the process and of its children.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path
from time import perf_counter, sleep
from typing import TYPE_CHECKING, Final

import trio

from gossipkv.storage.engine.options import Options
from tests.bench import goals
from tests.bench.data import KEY_BYTES, Noise, key_of
from tests.bench.measurement import WrongAnswerError
from tests.bench.processes import anonymous_bytes
from tests.bench.store import ours
from tests.bench.store.overwriting import Space

if TYPE_CHECKING:
    from tests.bench.measurement import Bench

MIB: Final = 1 << 20
CHILD: Final = "gossipkv.storage.engine.child"
SAMPLE_S: Final = 0.01
BESIDE_MIB: Final = 64  # What a node may have beside its memtables, the interpreter included.
WRITERS: Final = 64
BATCH: Final = 100
VALUE_BYTES: Final = 1008
CHECKED: Final = 1_000


def measure(bench: Bench, *, written_bytes: int = 10 << 30, segment_bytes: int = 64 * MIB) -> None:
    """Write, and look."""
    command = [sys.executable, "-m", __name__, str(bench.directory / "store"), str(written_bytes), str(segment_bytes)]
    node = child = 0
    with Space(bench.directory, ".gkv") as space, subprocess.Popen(command, stdout=subprocess.PIPE) as writer:
        while writer.poll() is None:
            node = max(node, anonymous_bytes(writer.pid))
            child = max([child, *map(anonymous_bytes, filter(is_merging, children(writer.pid)))])
            sleep(SAMPLE_S)
        assert writer.stdout is not None
        told = writer.stdout.read()
    if writer.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} ended with {writer.returncode}")
    seconds, refused = json.loads(told)
    options = Options(segment_bytes=segment_bytes)
    bench.add(goals.STORE_MEMORY, node / MIB)
    bench.add(goals.STORE_MEMORY, ours.MEMTABLES * options.memtable_bytes / MIB + BESIDE_MIB, goals.MEMTABLES)
    bench.add(goals.STORE_MEMORY_CHILD, child / MIB)
    bench.add(goals.STORE_MEMORY_CHILD, options.merge_memory / MIB, goals.BUDGET)
    bench.notes.append(
        f"Memory: {written_bytes / MIB:,.0f} MiB written in {seconds:.0f} s by {WRITERS} tasks, {refused} batches "
        f"refused and tried again; segments of {segment_bytes // MIB} MiB; files of runs took "
        f"{max(space.most, space.now()) / MIB:,.0f} MiB at most, {space.now() / MIB:,.0f} at the end"
    )


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


async def fill(directory: Path, written_bytes: int, segment_bytes: int) -> None:
    """Write; tell how long it took and how often it was refused; and check some of it."""
    values, firsts, refused = Noise(VALUE_BYTES), iter(range(0, written_bytes // (KEY_BYTES + VALUE_BYTES), BATCH)), 0
    begin, count = perf_counter(), 0
    async with ours.shell(directory, Options(segment_bytes=segment_bytes)) as store:

        async def write() -> None:
            nonlocal refused, count
            for first in firsts:
                count += BATCH
                numbers = range(first, first + BATCH)
                refused += await store.write_batch([(key_of(number), values.of(number)) for number in numbers])

        async with trio.open_nursery() as nursery:
            for _ in range(WRITERS):
                nursery.start_soon(write)
        seconds = perf_counter() - begin
        for number in random.Random(0).choices(range(count), k=CHECKED):
            if store.get(key_of(number)) != values.of(number):
                raise WrongAnswerError(f"a wrong value of {key_of(number)!r}")
    print(json.dumps([seconds, refused]))


if __name__ == "__main__":
    trio.run(fill, Path(sys.argv[1]), *map(int, sys.argv[2:]))
