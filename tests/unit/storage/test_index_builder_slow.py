"""Tests that cost seconds; `test_index_builder.py` has the others."""

from __future__ import annotations

from itertools import islice

import pytest

from gossipkv.storage.sorted_file import SortedFile
from tests.oracle import sorted_file as oracle
from tests.unit.storage.memory_files import MemoryFiles
from tests.unit.storage.test_index_builder import MOST, ROOMY, SEED, crowd, keys_at_home, write


@pytest.mark.parametrize(("memory_bytes", "runs"), [(0, 56), (64 << 10, 26), (200 << 10, 15), (ROOMY, 0)])
def test_memory_decides_the_way_and_never_the_bytes(memory_bytes: int, runs: int) -> None:
    """The ways reach from entries in memory to dozens of runs, merged by levels and gathered in slices."""
    keys = [b"%d" % number for number in range(30_000)]
    files = MemoryFiles()
    image = write(keys, memory_bytes=memory_bytes, files=files)
    assert files.scratch_opened in range(runs, runs + 2), "the case must take the way it is here for"
    assert files.scratch_open == 0
    assert image == oracle.write([(key, key) for key in keys], seed=SEED)


@pytest.mark.parametrize("memory_bytes", [0, ROOMY])
@pytest.mark.parametrize("wanted", [0, 40, -1])
@pytest.mark.parametrize("size", [12, 13, 24, 25, 500, MOST])
def test_a_crowd_is_carried(size: int, wanted: int, memory_bytes: int) -> None:
    """The crowd is in the first, a middle or the last bucket: every key is found, and misses end."""
    keys, homes = crowd(size, wanted)
    image = write(keys, memory_bytes=memory_bytes)
    assert image == oracle.write([(key, key) for key in keys], seed=SEED)
    buckets = oracle.Footer.unpack(image[-256:]).buckets
    assert buckets == max(homes, wanted % homes + -(-size // oracle.SLOTS))
    strangers = list(islice(keys_at_home(homes, wanted % homes), size, size + 50))
    with SortedFile(image) as file:
        file.verify()
        assert file.get_many(keys) == keys
        assert [file.get(key) for key in keys] == keys
        assert [file.get(key) for key in strangers] == [None] * 50
        assert file.get_many([*strangers, keys[-1]]) == [None] * 50 + [keys[-1]]
