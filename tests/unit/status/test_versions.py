"""Versions as a node tells them, in either form."""

from __future__ import annotations

from gossipkv.status.versions import newest, versions

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


def test_the_newest_complete_one_is_to_serve_but_for_a_hold():
    """One that waits for its source is not complete; a hold names another."""
    entry = {
        "active": "1",
        "versions": {
            "1": {"state": "ACTIVE"},
            "2": {"state": "BUILDING", "waits_until": "every partition has an owner"},
            "3": {"state": "SEEN", "waiting_for": "the source"},
        },
    }
    assert [(version.name, version.waits_until) for version in newest({"db": entry})] == [
        ("2", "every partition has an owner")
    ]
    assert [version.name for version in newest({"db": {**entry, "hold": "1"}})] == ["1"]
    (missing,) = newest({"db": {**entry, "hold": "9", "error": "9 is nowhere"}})
    assert (missing.name, missing.state, missing.error) == ("9", "ERROR", "9 is nowhere")
