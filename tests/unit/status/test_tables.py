"""Tables in the words of `status` and the page."""

from __future__ import annotations

from gossipkv.status.tables import datasets, tables

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


def test_what_moves_is_told_by_node():
    """How many partitions come, and how many leave."""
    (carts,) = tables({"carts": {**TOLD["carts"], "nodes": [
        {"node": "n1", "coming": 1200, "leaving": 0}, {"node": "n2", "coming": 1, "leaving": 2},
        {"node": "n3", "leaving": 3}, {"node": "n4"},
    ]}})  # fmt: skip
    assert [one.moves for one in carts.holders] == ["1,200 coming", "1 coming, 2 leaving", "3 leaving", ""]
