"""After a change of a map, partitions in unchanged leaves are not looked at again."""

from __future__ import annotations

import pytest

from gossipkv.placement.partition import Assignment, AssignmentState, Partition
from gossipkv.register.metadata.partitions import MAP, RANGE, TableMeta, encode_partition, first_body
from gossipkv.register.metadata.tree import MapTree
from gossipkv.table.controllers.reconciler import _changed, parts_of

RANGES = 3000


def tree_of(pages: dict[bytes, bytes], root: bytes) -> MapTree:
    return MapTree.opened(pages.__getitem__, root, MAP.name)


@pytest.fixture
def map_of_many() -> tuple[MapTree, dict[bytes, bytes]]:
    """Return a map of several leaves, and its pages."""
    partitions = {
        b"" if not number else b"%06d" % number: Partition(
            number, (Assignment(number + 10**6, bytes(16), 0, AssignmentState.AVAILABLE),)
        )
        for number in range(RANGES)
    }
    changed = first_body(TableMeta(bytes(16), "t", RANGE, 1, 0), partitions, 1 << 48 | 1)
    return tree_of(changed.pages, changed.root), changed.pages


@pytest.mark.parametrize("key", [b"", b"001500", b"002999"])
def test_of_one_change_one_leaf(map_of_many: tuple[MapTree, dict[bytes, bytes]], key: bytes) -> None:
    """The partitions of the changed leaf have the same bounds and records as in the whole map."""
    before, pages = map_of_many
    assert len(before.leaves) > 3
    edit = before.edit(1 << 48 | 2)
    edit.put(key, encode_partition(Partition(9, (Assignment(7, bytes(16), 0, AssignmentState.AVAILABLE),))))
    changed = edit.finish()
    after = tree_of(pages | changed.pages, changed.root)
    looked_at = [*_changed(after, frozenset(before.leaves))]
    assert 0 < len(looked_at) < 2 * RANGES // len(before.leaves)
    whole = {part.bounds: part for part in parts_of(after)}
    assert all(whole[part.bounds] == part for part in looked_at)
    assert [part.bounds.first for part in whole.values() if part.version == 1 << 48 | 2] == [key]
    assert key in [part.bounds.first for part in looked_at]


def test_of_nothing_known_all(map_of_many: tuple[MapTree, dict[bytes, bytes]]) -> None:
    """An unknown map yields all partitions, and a known map none."""
    tree, _ = map_of_many
    assert [*_changed(tree, frozenset())] == [*parts_of(tree)]
    assert [*_changed(tree, frozenset(tree.leaves))] == []


def test_a_map_that_went_back_is_looked_at_where_it_differs(map_of_many: tuple[MapTree, dict[bytes, bytes]]) -> None:
    """A map may go back after a force; partitions that the newer map had in other leaves count as changed."""
    before, pages = map_of_many
    edit = before.edit(1 << 48 | 2)
    for number in range(1, RANGES // 2):  # So many partitions are deleted that leaves merge.
        edit.delete(b"%06d" % number)
    changed = edit.finish()
    after = tree_of(pages | changed.pages, changed.root)
    back = [*_changed(before, frozenset(after.leaves))]
    assert {part.bounds for part in parts_of(before)} - {part.bounds for part in parts_of(after)} <= {
        part.bounds for part in back
    }
    there = [*_changed(after, frozenset(before.leaves))]
    assert {part.bounds for part in parts_of(after)} - {part.bounds for part in parts_of(before)} <= {
        part.bounds for part in there
    }
