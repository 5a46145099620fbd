"""The row about the simulated disk: what a second of durable writes costs whoever simulates a node.

As many groups as one writer gets synced in a second on a real disk, each of one put, through the store's own code to
simulated files, with segments as large as in production: a disk that copies a file at each sync, or walks all of it at
each write, would take minutes.
"""

from __future__ import annotations

import random
from pathlib import PurePosixPath
from time import process_time
from typing import TYPE_CHECKING

from gossipkv.storage.engine.options import Options
from tests.bench import goals
from tests.bench.data import Noise, key_of
from tests.bench.measurement import OURS
from tests.bench.store import ours
from tests.world.simulated_files import SimulatedFiles

if TYPE_CHECKING:
    from tests.bench.measurement import Bench

GROUPS = 5_000  # A sync takes 0.2 ms here.
SEGMENT_BYTES = 64 << 20


def measure(bench: Bench, *, rounds: int = 5) -> None:
    """Processor time of a virtual second."""
    bench.compare(goals.STORE_SIMULATED, {OURS: _second}, rounds)
    bench.notes.append(
        f"Simulated writes: {GROUPS:,} puts of 100 bytes, each synced, as one writer does in a second here"
    )


def _second() -> float:
    files, values = SimulatedFiles(), Noise()
    files.make_directory("/data")
    options = Options(segment_bytes=SEGMENT_BYTES)
    with ours.Blocking(PurePosixPath("/data/store"), options, files=files, chance=random.Random(0)) as store:
        begin = process_time()
        for number in range(GROUPS):
            store.write_batch([(key_of(number), values.of(number))])
            store.maintain()
        took = process_time() - begin
        for number in range(GROUPS):
            assert store.get(key_of(number)) == values.of(number)
    return took
