"""Tests that cost seconds; `test_builder.py` has the others."""

from __future__ import annotations

import random

from gossipkv.storage.builder import SortedFileBuilder
from gossipkv.storage.sorted_file import SortedFile
from tests.oracle import sorted_file as oracle
from tests.unit.storage.memory_files import MemoryFiles


def test_things_put_aside_beyond_memory() -> None:
    """Blocks and anchors spill, too: 140,000 records begin a block each."""
    files = MemoryFiles()
    numbers = random.Random(23).sample(range(140_000), 140_000)
    value = bytes(2100)
    with SortedFileBuilder("d", ["a.gkv"], files=files, memory_bytes=1 << 30, compression="lz4") as building:
        building.add_all((b"%06d" % number, value) for number in numbers)
        assert files.scratch_opened == 0
        building.finish()
    assert files.scratch_opened == 2, "block table and anchors' words"
    image = bytes(files.named["d/a.gkv"])
    assert oracle.Footer.unpack(image[-256:]).anchor_count == 140_000
    with SortedFile(image) as file:
        file.verify()
        assert [key for key, _ in file.scan(reverse=True)] == [b"%06d" % number for number in reversed(range(140_000))]
        assert all(file.get(b"%06d" % number) == value for number in numbers[::100])
