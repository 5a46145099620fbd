"""An edit of a tree of many entries stays small."""

from __future__ import annotations

from gossipkv.register.metadata.pages import (
    OperationOutcome,
)
from gossipkv.register.metadata.tree import MapTree, check_change
from tests.unit.register.metadata.maps import ANY, NO_DIGEST, new_store, put_all
from tests.unit.register.metadata.test_tree import identity, key


def test_an_edit_of_one_of_100000_entries():
    """An edit reads and writes at most five pages, of under 8 KiB in all; the check reads the same."""
    store = new_store()
    first = put_all(MapTree.empty("any"), 1, {key(number): bytes(120) for number in range(100_000)})
    check_change(store.read, ANY, None, first, 1)
    root = store.take(first)
    for config in range(2, 6):
        tree = store.open(root)
        store.asked.clear()
        edit = tree.edit(config)
        assert edit.get(key(70_000 + config)).version < config
        edit.put(key(70_000 + config), b"r" * 130)
        edit.record(identity(config), OperationOutcome.DONE, NO_DIGEST)
        changed = edit.finish()
        assert len(set(store.asked)) == (3 if config == 2 else 4)
        assert len(changed.pages) == 5
        assert sum(map(len, changed.pages.values())) < 8 << 10
        store.asked.clear()
        check_change(store.read, ANY, root, changed, config)
        assert len(set(store.asked)) == (4 if config == 2 else 5)
        root = store.take(changed)
    assert len(store.open(root)) == 100_000
