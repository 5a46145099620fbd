"""Measure the memory of one store under Trio, in a process of its own.

    python -m tests.unit.storage.engine.memory_of_shell DIRECTORY SEGMENT_BYTES BATCHES BATCH_BYTES

The program writes so many batches of new records, then prints its peak of anonymous memory since before it opened the
store, the peak of a child, and the merged bytes.
"""

from __future__ import annotations

import contextlib
import json
import random
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import trio

from gossipkv.environment.trio_world import real
from gossipkv.errors import Overloaded
from gossipkv.storage.engine import parent
from gossipkv.storage.engine._engine import Batch
from gossipkv.storage.engine.options import EngineOptions
from gossipkv.storage.engine.shell import EngineShell, open_store

if TYPE_CHECKING:
    from collections.abc import Callable

    from gossipkv.storage.engine.merge import MergeOrder, MergeOutput
    from gossipkv.storage.engine.policy import Manner

VALUE_BYTES = 1000
MERGE_MEMORY = 64 << 20


def anonymous_bytes() -> int:
    """Return the resident memory that belongs to no file (RssAnon)."""
    (kibibytes,) = re.findall(r"^RssAnon:\s+(\d+) kB", Path("/proc/self/status").read_text(), re.MULTILINE)
    return int(kibibytes) * 1024


def largest_child_bytes() -> int:
    """Return the largest peak (VmHWM) of this process's running children."""
    most = 0
    for listed in Path("/proc/self/task").glob("*/children"):
        for child in listed.read_text().split():
            with contextlib.suppress(OSError):
                peaks = re.findall(r"^VmHWM:\s+(\d+) kB", Path(f"/proc/{child}/status").read_text(), re.MULTILINE)
                most = max(most, *(int(kibibytes) * 1024 for kibibytes in peaks), 0)
    return most


async def briskly(order: MergeOrder, manner: Callable[[], Manner]) -> MergeOutput:
    """Merge in a child with normal priority and without a limit of speed."""
    return await parent.merge_in_child(order, lambda: manner()._replace(gives_way=False, bytes_per_second=0))


async def taken(store: EngineShell, batch: Batch) -> bool:
    try:
        await store.write(batch)
    except Overloaded:
        return False
    return True


async def main(directory: str, segment_bytes: int, batches: int, batch_bytes: int) -> None:
    most, children = [anonymous_bytes()], [0]
    before = most[0]
    understand = parent.understand

    def listen(line: bytes) -> object:
        children.append(largest_child_bytes())
        return understand(line)

    parent.understand = listen
    noise = random.Random(3).randbytes(VALUE_BYTES)
    options = EngineOptions(segment_bytes=segment_bytes, table_log=0, merge_memory=MERGE_MEMORY)
    number = 0
    async with open_store(directory, real(), options, run_merge=briskly) as store:
        space = store.reserve_space()
        making = Batch()
        making.new_space(space)
        await store.write(making)
        for _ in range(batches):
            batch = Batch()
            while batch.size_bytes < batch_bytes:
                batch.put(space, b"%016d" % (number * 1_000_003 % (1 << 40)), noise)
                number += 1
            while not await taken(store, batch):
                pass
            most[0] = max(most[0], anonymous_bytes())
        told = store.describe()
    sys.stdout.write(json.dumps({"before": before, "most": most[0], "child": max(children), **told, "records": number}))


if __name__ == "__main__":
    trio.run(main, sys.argv[1], *map(int, sys.argv[2:]))
