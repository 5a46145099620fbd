"""Tests that cost seconds; `test_shared_build.py` has the others."""

from __future__ import annotations

import random

import pytest

from gossipkv.storage.checksum import crc32c
from tests.oracle import sorted_file as oracle
from tests.unit.storage.memory_files import MemoryFiles
from tests.unit.storage.records import MIN_BUDGET
from tests.unit.storage.test_shared_build import build_in_lanes, images, in_one_lane, split


@pytest.mark.parametrize("lanes", [2, 3, 7])
@pytest.mark.parametrize("memory_bytes", [MIN_BUDGET, 1 << 30])
def test_more_than_memory_holds(lanes: int, memory_bytes: int) -> None:
    """Each lane has several runs; seven lanes of the least memory have more runs than one merge may read."""
    source = random.Random(50)
    records = [
        (b"%d" % source.randrange(30_000), source.randbytes(source.randrange(600)), min(9, source.randrange(12)))
        for _ in range(60_000)
    ]
    files = MemoryFiles()
    cuts = [number * len(records) // lanes for number in range(1, lanes)]
    reports, exchanged = build_in_lanes(split(records, cuts), 10, files, memory_bytes=memory_bytes)
    assert exchanged
    assert files.scratch_opened >= 20 if memory_bytes == MIN_BUDGET else files.scratch_opened == lanes
    assert (reports, images(files, 10)) == in_one_lane(records, 10)
    last = [(key, value) for key, value, group in records if group == 9]
    assert bytes(files.named["d/9.gkv"]) == oracle.write(last, crc=crc32c)
