"""The division of a build's memory."""

from __future__ import annotations

from dataclasses import replace
from itertools import count

import pytest

from gossipkv.dataset.build.memory import (
    MIN_MEMORY_BYTES,
    limits,
    reader_bytes,
    share_for_columns,
    share_of_lanes,
    share_of_one,
)
from gossipkv.dataset.formats.reading import MAX_VALUE_BYTES, FileReading
from gossipkv.errors import ConfigError

MIB = 1 << 20
_NUMBERS = count(100)


def large(job, size_bytes):
    one = job([b"a\tb\n", b"c\td\n"], name=f"v{next(_NUMBERS)}")
    return replace(one, files=tuple(replace(file, size_bytes=size_bytes) for file in one.files))


def test_what_reading_takes_grows_with_the_largest_block_that_can_be(job):
    """Reading takes twice the largest block or value; a compressed block is no longer than its file."""
    reading = FileReading(max_value_bytes=MAX_VALUE_BYTES, max_block_bytes=1000)
    assert reader_bytes(job([b"a\tb\n"]), reading) == 4 * MIB + MAX_VALUE_BYTES + 4
    assert reader_bytes(large(job, 10**11), reading) == 4 * MIB + 2 * MAX_VALUE_BYTES
    assert reader_bytes(large(job, 10**11), FileReading(max_value_bytes=100, max_block_bytes=200)) == 4 * MIB + 2 * 200


def test_the_limits_follow_the_memory_and_the_files(job):
    """A block may have a twelfth of the memory and 1,000 times its file, but always the longest value."""
    assert limits(large(job, 10**9), 384 * MIB).max_block_bytes == 32 * MIB
    assert limits(large(job, 10**9), 256 * MIB).max_value_bytes == MAX_VALUE_BYTES
    assert limits(large(job, 10**9), 96 * MIB).max_value_bytes == 8 * MIB
    assert limits(large(job, 20_000), 256 * MIB).max_block_bytes == 20_000_000
    assert limits(large(job, 100), 256 * MIB).max_block_bytes == 17 * MIB
    assert limits(large(job, 100), 256 * MIB).max_value_bytes == MAX_VALUE_BYTES


def test_the_least_memory_that_is_named_is_exact(job):
    """The named memory is enough, and a byte less is not."""
    for one in (job([b"a\t1\n"]), large(job, 20 * MIB)):
        with pytest.raises(ConfigError) as caught:
            share_of_one(one, 0, process_bytes=20 * MIB)
        least = caught.value.details["needed_bytes"]
        assert share_of_one(one, least, process_bytes=20 * MIB).builders_bytes >= MIN_MEMORY_BYTES
        with pytest.raises(ConfigError):
            share_of_one(one, least - 1, process_bytes=20 * MIB)
    assert least < 64 * MIB


@pytest.mark.parametrize("memory_mib", [96, 128, 192, 256, 512, 1024])
@pytest.mark.parametrize("form", ["tsv", "parquet"])
def test_all_lanes_together_stay_within_the_memory(job, memory_mib, form):
    """The process, the readers and the builders of all lanes fit in the memory."""
    one = replace(large(job, 10**9), format=form)
    share = share_of_lanes(one, memory_mib * MIB, process_bytes=28 * MIB, most_lanes=8)
    if share is None:
        assert memory_mib <= 128
        return
    reading = share.lanes * reader_bytes(one, share.reading)
    assert 28 * MIB + reading + share.builders_bytes <= memory_mib * MIB
    assert share.builders_bytes >= share.lanes * MIN_MEMORY_BYTES
    assert share.lanes == 2, "two files are of use to two lanes"


def test_a_small_source_is_built_in_one_lane(job):
    assert share_of_lanes(job([b"a\t1\n", b"b\t1\n"]), 1 << 30, process_bytes=20 * MIB, most_lanes=8) is None


def test_columns_get_half_or_as_much_as_they_need(job):
    """A library for columns gets half of what the program leaves; sorting does with little where a file needs more."""
    one = replace(large(job, 10**9), format="parquet")
    share = share_of_one(one, 256 * MIB, process_bytes=96 * MIB)
    assert share.reading.max_columns_bytes == share.builders_bytes == 78 * MIB
    for needed, left in ((100, 56), (148, 8)):
        share = share_for_columns(one, 256 * MIB, process_bytes=96 * MIB, columns_bytes=needed * MIB)
        assert (share.reading.max_columns_bytes, share.builders_bytes) == (needed * MIB, left * MIB)
    assert share_for_columns(one, 256 * MIB, process_bytes=96 * MIB, columns_bytes=149 * MIB) is None
    with pytest.raises(ConfigError, match="needs at least"):
        share_of_one(one, 128 * MIB, process_bytes=96 * MIB)
