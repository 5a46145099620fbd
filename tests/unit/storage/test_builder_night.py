"""Builds with any memory make the same bytes; long units spill the block table."""

from __future__ import annotations

import random

import pytest

from gossipkv.storage.builder import SortedFileBuilder
from gossipkv.storage.checksum import crc32c
from gossipkv.storage.sorted_file import SortedFile
from tests.oracle import sorted_file as oracle
from tests.unit.storage.memory_files import MemoryFiles
from tests.unit.storage.records import (
    COMPRESSIONS,
    MIN_BUDGET,
)
from tests.world.sorted_files import build


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_the_same_bytes_for_every_budget(compression: str) -> None:
    """The budgets reach from the least memory, with runs and a spilled index, to everything in memory."""
    source = random.Random(22)
    records = [(b"%d" % source.randrange(200_000), source.randbytes(source.randrange(60))) for _ in range(150_000)]
    records += [(b"large %d" % source.randrange(4), source.randbytes(900_000)) for _ in range(6)]
    source.shuffle(records)
    images, scratches = [], []
    for memory_bytes in (MIN_BUDGET, MIN_BUDGET + (5 << 20), 1 << 30):
        files = MemoryFiles()
        build("d/a.gkv", records, files=files, memory_bytes=memory_bytes, compression=compression)
        images.append(bytes(files.named["d/a.gkv"]))
        scratches.append(files.scratch_opened)
        assert files.scratch_open == 0
    assert scratches[0] > scratches[1] > scratches[2] == 0, "the least memory must not be enough"
    assert images[0] == images[1] == images[2]
    with SortedFile(images[0]) as file:
        file.verify()
        assert list(file.scan()) == sorted(dict(records).items())
    if compression == "none":
        assert images[0] == oracle.write(records, crc=crc32c)


def test_a_block_table_of_long_units() -> None:
    """Long records take many blocks each, whose empty entries spill as well."""
    files = MemoryFiles()
    with SortedFileBuilder("d", ["a.gkv"], files=files, memory_bytes=2 << 30, compression="lz4") as building:
        building.add_all((b"%02d" % number, bytes([number]) * (16 << 20)) for number in range(34))
        building.finish()
    assert files.scratch_opened == 1
    with SortedFile(files.named["d/a.gkv"]) as file:
        file.verify()
        assert [(key, value[0], len(value)) for key, value in file.scan(start=b"31")] == [
            (b"%d" % number, number, 16 << 20) for number in (31, 32, 33)
        ]
