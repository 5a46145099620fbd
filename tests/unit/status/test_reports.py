"""Datasets and tables are read from a node's report in either form."""

from __future__ import annotations

import pytest

from gossipkv.placement.partition_set import PartitionSet
from gossipkv.status.codec import decode
from gossipkv.status.reports import ReportedSet, TableReport, VersionStatus, status_report

BITMAP = {"count": 3, "bitmap": b"\x07"}
TOLD = {
    "carts": {
        "kind": "hash", "replication": 3, "partition_count": 16,
        "nodes": [
            {"node": "n1", "state": "alive", "partitions": 16, "lag_records": 0, "lag_s": 0.0},
            {"node": "n2", "state": "alive", "partitions": 16, "lag_records": 3, "lag_s": 0.02},
            {"node": "n3", "state": "dead", "partitions": 16, "lag_records": 1234, "lag_s": 3.21},
        ],
        "unwell": [{"partition": "00ff", "why": "none of its nodes is alive"}], "unwell_not_named": 1000,
    },
    "geo": {"kind": "dataset", "versions": {}},
    "broken": {"kind": "range", "error": "not known here yet"},
}  # fmt: skip


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ({"runs": "0-2,7"}, "0-2,7"),
        ({"bitmap": b"\x87"}, "0-2,7"),
        ({"runs": ""}, ""),
        ({"bitmap": b"\x00"}, ""),
        ({}, ""),
        ({"runs": ",".join(map(str, range(0, 40, 2)))}, "0,2,4,6,8,10,12,14,..."),
        ({"bitmap": b"\x55" * 5}, "0,2,4,6,8,10,12,14,..."),
    ],
)
def test_the_first_runs_are_named(told, words):
    """A remainder is marked, for runs and for bitmaps."""
    assert decode(ReportedSet, told).first_runs(40) == words


def test_a_bitmap_is_a_set_of_partitions():
    """A bitmap with more partitions than the version has is not believed."""
    told = decode(ReportedSet, {"count": 2, "bitmap": b"\x81"})
    assert told.of(8) == PartitionSet.of(8, [0, 7])
    assert told.of(7) == PartitionSet.empty(7)


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ({"partitions": [{}] * 3, "partition_count": 8}, "3 of 8"),
        ({"partitions": BITMAP, "partition_count": 8}, "3 of 8"),
        ({"partitions": BITMAP, "partition_count": 3}, "3"),
        ({"partition_count": 8}, "0 of 8"),
        ({}, None),
    ],
)
def test_partitions_are_counted_in_both_forms(told, words):
    """The text has the number here, and the total if that differs."""
    assert decode(VersionStatus, told).partitions_here == words


def test_tables_and_datasets_are_told_apart():
    """The kind decides; missing parts are empty."""
    told = status_report(TOLD)
    assert [*told.datasets] == ["geo"]
    assert [*told.tables] == ["broken", "carts"]
    broken, carts = told.tables.values()
    assert (broken.kind, broken.nodes) == ("range", ())
    assert (carts.partition_count, carts.replication) == (16, 3)
    assert [holder.node for holder in carts.nodes] == ["n1", "n2", "n3"]


def test_what_moves_is_told_by_node():
    """The text has the numbers of coming and leaving partitions."""
    carts = decode(TableReport, {"nodes": [
        {"node": "n1", "coming": 1200, "leaving": 0}, {"node": "n2", "coming": 1, "leaving": 2},
        {"node": "n3", "leaving": 3}, {"node": "n4"},
    ]})  # fmt: skip
    assert [holder.moves for holder in carts.nodes] == ["1,200 coming", "1 coming, 2 leaving", "3 leaving", ""]
