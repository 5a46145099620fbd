"""A batch of records, and its way through the sorter into a file."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossipkv.errors import LimitExceeded
from gossipkv.storage._storage import RecordSorter, Scratch, SortedFileWriter, seed_of
from gossipkv.storage.batch import RecordBatch
from tests.oracle import sorted_file as oracle
from tests.unit.storage.memory_files import MemoryFiles
from tests.unit.storage.records import KEYS, VALUES

ROOMY = 1 << 30
BATCH_RECORDS = 16_384


@given(st.lists(st.tuples(KEYS, VALUES, st.integers(0, 2**64 - 1))))
def test_what_goes_in_comes_out(records):
    batch = RecordBatch()
    assert all(batch.append(*record) for record in records)
    assert len(batch) == batch.count == len(records)
    assert list(batch) == [(key, value) for key, value, _ in records]
    assert batch.keys() == [key for key, _, _ in records]
    assert batch.keys(2) == [key for key, _, _ in records[:2]]
    assert batch.offsets() == [offset for _, _, offset in records]
    assert batch.groups() == [0] * len(records)


def test_a_full_batch_takes_no_more():
    """A record that found no room is not added, and a clear makes room again."""
    batch = RecordBatch()
    for number in range(BATCH_RECORDS):
        assert not batch.full
        assert batch.append(b"%d" % number, b"v")
    assert batch.full
    assert not batch.append(b"late", b"v")
    assert len(batch) == BATCH_RECORDS
    assert batch.keys()[-1] == b"%d" % (BATCH_RECORDS - 1)
    batch.clear()
    assert not batch.full
    assert list(batch) == []


def test_a_batch_holds_what_it_points_at():
    """The buffers live as long as the records."""
    batch = RecordBatch()
    key = b"%d" % 12_345
    before = sys.getrefcount(key)
    batch.append(key, b"value")
    assert sys.getrefcount(key) == before + 1
    batch.clear()
    assert sys.getrefcount(key) == before


@given(st.lists(st.tuples(KEYS, VALUES), max_size=60))
def test_a_file_of_batches_is_the_oracles(records):
    files = MemoryFiles()
    sorter = RecordSorter(lambda: Scratch(files, "run.tmp"), ROOMY)
    batch = RecordBatch()
    for record in records:
        batch.append(*record)
    sorter.add_batch(batch)
    assert sorter.added == len(records)
    ordered = sorter.finish_adding()
    writer = SortedFileWriter(
        files,
        "0.gkv",
        memory_bytes=ROOMY,
        compression=oracle.NONE,
        seed=seed_of(sorter.group_hash_sum(0), sorter.group_records(0)),
        common_prefix=sorter.common_prefix(0),
        metadata=b"",
    )
    written = ordered.write_group(writer, 0, ROOMY)
    writer.finish(sorter.group_records(0) - written)
    assert bytes(files.named["0.gkv"]) == oracle.write(records)


def test_a_batch_with_a_long_key_is_refused():
    files = MemoryFiles()
    sorter = RecordSorter(lambda: Scratch(files, "run.tmp"), ROOMY)
    batch = RecordBatch()
    batch.append(bytes(65_536), b"")
    with pytest.raises(LimitExceeded, match="65,535 bytes"):
        sorter.add_batch(batch)
