"""Tables in the words of `status` and the page."""

from __future__ import annotations

from gossipkv.status.tables import datasets, of_partitions, tables

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


def test_tables_and_datasets_are_told_apart():
    """By their kind; what is not told is nothing."""
    assert [*datasets(TOLD)] == ["geo"]
    broken, carts = tables(TOLD)
    assert (broken.name, broken.kind, broken.holders) == ("broken", "range", ())
    assert (carts.partitions, carts.replication, [one.node for one in carts.holders]) == (16, 3, ["n1", "n2", "n3"])


def test_what_is_wrong_is_a_line_each():
    """Partitions that are not well are trouble; who lacks something for long is noted, else it is on its way."""
    lines = [*of_partitions(TOLD)]
    assert [line.text for line in lines if line.is_trouble] == [
        "broken: not known here yet",
        "carts: partition 00ff: none of its nodes is alive", "carts: and 1,000 more partitions",
    ]  # fmt: skip
    assert [line.text for line in lines if not line.is_trouble] == ["carts: n3 lacks 1,234 records, for 3.2 s"]
