"""One request about a large table has bounded cost."""

from __future__ import annotations

from random import Random

import pytest

from gossipkv.errors import BadRequest
from gossipkv.placement.partition import Assignment, AssignmentState, Partition
from gossipkv.register.metadata import discovery
from gossipkv.register.metadata.discovery import Duty, discover
from gossipkv.register.metadata.partitions import TableMeta, first_body, shard_key
from gossipkv.register.metadata.tree import MapTree

SHARDS = 2_000
NODES = [bytes([number]) * 16 for number in range(1, 4)]


def table_of_shards() -> MapTree:
    """Return a table of this many shards, each on two of three nodes."""
    random = Random(1)
    table = TableMeta(b"t" * 16, "t", "hash", 2, SHARDS)
    partitions = {
        shard_key(at): Partition.of(
            at + 1,
            [
                Assignment(random.getrandbits(64), NODES[(at + slot) % 3], slot, AssignmentState.AVAILABLE)
                for slot in (0, 1)
            ],
        )
        for at in range(SHARDS)
    }
    changed = first_body(table, partitions, 1)
    return MapTree.opened(changed.pages.__getitem__, changed.root, "partitions")


def test_a_question_that_lies_costs_no_more_than_the_map(monkeypatch):
    """Partitions that overlap a thousand times are refused, and each record is decoded once."""
    tree = table_of_shards()
    decoded = []
    decode = discovery.decode_partition
    monkeypatch.setattr(discovery, "decode_partition", lambda record: decoded.append(1) or decode(record))
    lies = {1 << 40 | number: (b"", None) for number in range(4_000)}
    with pytest.raises(BadRequest):
        discover(tree, NODES[0], lies)
    assert len(decoded) <= SHARDS


def test_partitions_that_are_not_there_any_more_are_told_who_has_their_keys():
    """The targets follow each partition's own range."""
    tree = table_of_shards()
    gone = {1 << 40 | at: (shard_key(at), shard_key(at + 1)) for at in range(0, SHARDS, 2)}
    found = [one for one in discover(tree, b"stranger" * 2, gone) if one.duty is Duty.UNLOAD]
    assert [one.partition for one in found] == list(gone)
    for one in found:
        at = one.partition & ~(1 << 40)
        assert {target.node for target in one.targets} == {NODES[at % 3], NODES[(at + 1) % 3]}
        assert {target.partition for target in one.targets} == {at + 1}
