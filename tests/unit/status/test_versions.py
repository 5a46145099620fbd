"""Versions as a node tells them, in either form."""

from __future__ import annotations

from gossipkv.status.versions import versions

BITMAP = {"count": 3, "bitmap": b"\x07"}


def test_partitions_are_counted_in_both_forms():
    """A list of what is here, or a bitmap: with how many there are, if that is not all."""
    told = {"db": {"versions": {
        "1": {"state": "ACTIVE", "partitions": [{}] * 3, "partition_count": 8},
        "2": {"state": "ACTIVE", "partitions": BITMAP, "partition_count": 8},
        "3": {"state": "ACTIVE", "partitions": BITMAP, "partition_count": 3},
        "4": {"state": "SEEN", "partition_count": 8},
    }}}  # fmt: skip
    assert [version.partitions for version in versions(told)] == ["3 of 8", "3 of 8", "3", "0 of 8"]
