"""The estimate of the disk space of a build."""

from dataclasses import replace

from gossipkv.dataset.build.job import SPACE_FACTOR, SPACE_PER_PARTITION_BYTES, BuildJob, space_needed_bytes
from gossipkv.dataset.source.files import SourceFile

FILES = tuple(SourceFile(f"part-{number}", f"/s/part-{number}", 1_000_000, 1) for number in range(10))


def test_a_share_needs_its_part_of_the_whole():
    """The share counts bytes and partitions, however much is read for it."""
    whole = BuildJob("db", "v1", "d" * 64, FILES, "/b", 10)
    assert space_needed_bytes(whole) == int(SPACE_FACTOR * 10_000_000) + 10 * SPACE_PER_PARTITION_BYTES
    assert space_needed_bytes(replace(whole, wanted=tuple(range(10)))) == space_needed_bytes(whole)
    assert space_needed_bytes(replace(whole, wanted=(3, 8))) == space_needed_bytes(whole) // 5
    assert space_needed_bytes(replace(whole, wanted=())) == 0


def test_sorted_files_are_copied():
    """Sorted files need no runs."""
    some = BuildJob("db", "v1", "d" * 64, FILES, "/b", 10, format="sorted", wanted=(0,))
    assert space_needed_bytes(some) == 1_000_000 + SPACE_PER_PARTITION_BYTES
