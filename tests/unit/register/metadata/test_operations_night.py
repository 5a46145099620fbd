"""A map of the largest size stays usable."""

from __future__ import annotations

from gossipkv.errors import LimitExceeded
from gossipkv.register.metadata.operations import (
    TOO_LARGE,
    judge,
)
from gossipkv.register.metadata.tree import MapTree
from tests.unit.register.metadata.maps import FUNCTIONS, new_store, put_all
from tests.unit.register.metadata.test_operations import wanted


def test_a_full_map_takes_what_does_not_grow_it():
    """An operation too many is refused, while deletions and replacements beside it succeed."""
    store, root, config = new_store(), None, 0
    puts = {b"%0250d" % number: bytes(8000) for number in range(0, 41_000, 10)}
    full = len(puts)
    while root is None:
        try:
            root = store.take(put_all(MapTree.empty("any"), 1, dict(list(puts.items())[:full])))
        except LimitExceeded:
            full -= 10
    keys = list(puts)[:full]
    more = {b"%0250d" % (number * 10 + 5): bytes(8000) for number in range(60)}
    operations = [
        wanted(1, 1, more), wanted(2, 1, {keys[-1]: None}), wanted(3, 1, {keys[-2]: bytes(7000)}),
        wanted(4, 1, {keys[-3]: bytes(8001)}),
    ]  # fmt: skip
    judgement = judge(store.open(root), operations, 2 + config, FUNCTIONS)
    assert [answer.code for answer in judgement.answers] == [TOO_LARGE, "", "", TOO_LARGE]
    tree = store.open(store.take(judgement.changed))
    assert (len(tree), tree.get(keys[-1]), tree.get(keys[-2]).record) == (full - 1, None, bytes(7000))
