"""Answers of which any part may be missing."""

from __future__ import annotations

import pytest

from gossipkv.placement.partition_set import PartitionSet
from gossipkv.status import reading


@pytest.mark.parametrize("value", [None, 7, 1.5, "x", b"x", [1], {"a": 1}, True])
def test_what_is_of_another_kind_is_as_if_it_were_missing(value):
    """A list where a map belongs is an empty map."""
    assert reading.map_of(value) == (value if isinstance(value, dict) else {})
    assert reading.list_of(value) == (value if isinstance(value, list) else [])
    assert reading.maps_of(value) == ({"a": {}} if isinstance(value, dict) else {})
    assert reading.number_of(value) == (float(value) if isinstance(value, (int, float)) else None)
    assert reading.count_of(value) == 0
    assert reading.partitions_of(value, 8) == PartitionSet.empty(8)


def test_a_bitmap_is_a_set_of_partitions():
    """Of so many; one of more is not believed."""
    told = {"count": 2, "bitmap": b"\x81"}
    assert reading.partitions_of(told, 8) == PartitionSet.of(8, [0, 7])
    assert reading.partitions_of(told, 7) == PartitionSet.empty(7)
    assert reading.count_of(told) == 2
