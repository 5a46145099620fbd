"""A merging child stays within its memory."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from gossipkv.environment.real_files import RealFiles
from gossipkv.processes import leash
from gossipkv.processes.program import order_line
from gossipkv.storage.engine.child import understand
from gossipkv.storage.engine.merge import MIN_MEMORY_BYTES, MergeOutput
from tests.oracle import merge as oracle
from tests.unit.storage.engine import test_merge_child_slow as usual
from tests.unit.storage.engine.merge_log import write_segment
from tests.unit.storage.engine.merge_world import World
from tests.unit.storage.engine.test_merge_child_slow import MIB, Child, output_of

if TYPE_CHECKING:
    from pathlib import Path

world = usual.world
order = usual.order

# Recently read pages of maps are resident, too: at most so many bytes of each input, and a part of a segment.
MAPPED_BYTES = 3 * MIB

MEASURED = """
import sys, threading, time
from gossipkv.processes.usage import peak_bytes
from gossipkv.storage.engine import child
from gossipkv.processes.program import order_line
most = [0]
def look():
    while True:
        with open("/proc/self/status") as status:
            most[0] = max([most[0], *(int(line.split()[1]) for line in status if line.startswith("RssAnon"))])
        time.sleep(0.002)
threading.Thread(target=look, daemon=True).start()
status = child.main()
sys.stderr.write(f"{most[0] << 10} {peak_bytes()}")
sys.exit(status)
"""


@pytest.mark.parametrize(("value_bytes", "count"), [(100, 150_000), (20_000, 1_500), (1, 300_000)])
def test_memory_within_the_budget(tmp_path: Path, value_bytes: int, count: int) -> None:
    """The inputs are larger than the budget; only a little mapped memory comes on top."""
    (tmp_path / "runs").mkdir()
    source = random.Random(4)
    segments = []
    for number in range(3):
        done = [(1, 1, source.randbytes(12), source.randbytes(value_bytes)) for _ in range(count)]
        segments.append(
            write_segment(tmp_path, number, [oracle.encode(done[at : at + 100]) for at in range(0, count, 100)])
        )
    world = World(RealFiles(), str(tmp_path))
    order = replace(world.order([], {1}, file_bytes=16 * MIB), log=tuple(segments))
    with Child(order) as child:
        output = output_of(child)
    runs = (*((file,) for file in output.files), ())
    merged = replace(order, number=8, log=(), runs=runs, file_bytes=1 << 30)
    for told in (replace(order, number=9), merged):
        worn, held = leash.braid()
        done = subprocess.run(
            [sys.executable, "-c", MEASURED], input=order_line((told, worn)), pass_fds=[worn],
            capture_output=True, check=True,
        )  # fmt: skip
        leash.let_go(held)
        os.close(worn)
        last = understand(done.stdout.splitlines()[-1])
        assert isinstance(last, MergeOutput)
        anonymous, peak = map(int, done.stderr.split())
        assert anonymous <= MIN_MEMORY_BYTES, f"{anonymous / MIB:.1f} MiB"
        mapped = MAPPED_BYTES * (1 + len(told.runs))
        program = 16 * MIB  # Shared libraries and the interpreter, mapped from files.
        assert peak <= MIN_MEMORY_BYTES + mapped + program, f"{peak / MIB:.1f} MiB"
