"""The manifest of a built version."""

import pytest

from gossipkv.dataset.local.manifest import (
    Manifest,
    PartitionFile,
    from_body,
    partition_name,
    read_manifest,
    to_body,
    write_manifest,
)
from gossipkv.environment.real_files import RealFiles
from gossipkv.errors import Corrupt
from gossipkv.placement.identity import Identity

MANIFEST = Manifest(
    Identity("db", "v1", "d" * 64, 2, "sequins"),
    3,
    1000,
    "lz4",
    (PartitionFile("part-00000.gkv", 10, 1, 500, 7), PartitionFile("part-00001.gkv", 20, 2, 600, 8)),
)


def test_it_reads_back_as_written(tmp_path):
    """With its sums."""
    write_manifest(RealFiles(), tmp_path, MANIFEST)
    assert read_manifest(RealFiles(), tmp_path) == MANIFEST
    assert (MANIFEST.records, MANIFEST.duplicates, MANIFEST.size_bytes) == (30, 3, 1100)


def test_files_are_named_by_partition():
    """Five digits or more."""
    assert [partition_name(number) for number in (0, 16_383, 123_456)] == [
        "part-00000.gkv",
        "part-16383.gkv",
        "part-123456.gkv",
    ]


@pytest.mark.parametrize("field", list(to_body(MANIFEST)))
def test_every_field_is_needed(field):
    """And of its type."""
    for value in (None, [1], -1, {"x": 1}, ...):
        if value is None and field in {"voided", "first_stray"}:
            continue  # As most versions have it.
        body = to_body(MANIFEST)
        if value is ...:
            del body[field]
        else:
            body[field] = value
        with pytest.raises(Corrupt, match=field):
            from_body(body, "x")


GOOD = [1, 1, 1, 1]


@pytest.mark.parametrize(
    "files",
    [[], [GOOD], [GOOD] * 3, [GOOD[1:]] * 2, [GOOD, [1, "1", 1, 1]], [GOOD, [1, 1, -1, 1]], [GOOD, {"a": 1}]],
)
def test_there_is_one_file_for_each_partition(files):
    """With four numbers."""
    with pytest.raises(Corrupt, match="files"):
        from_body({**to_body(MANIFEST), "files": files}, "x")
