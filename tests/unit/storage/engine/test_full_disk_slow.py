"""Tests that cost seconds; `test_full_disk.py` has the others."""

from __future__ import annotations

import pytest

from gossipkv.errors import Overloaded
from tests.unit.storage.engine.places import TINY
from tests.unit.storage.engine.test_full_disk import filled, is_writable, opened, reserved, taken, write
from tests.world.simulated_files import SimulatedFiles


@pytest.fixture
def files():
    return SimulatedFiles()


def give_back(store, how, count):
    operations = [("drop_space", 2)] if how == "drop" else [("delete", 2, b"%04d" % number) for number in range(count)]
    refused = None
    try:
        write(store, *operations)
    except Overloaded as refusal:
        refused = refusal
    assert refused is None


def check_rest(store, how):
    """Check that only the kept space has records."""
    assert store.get(1, b"0023").startswith(b"23\0")
    if how == "drop":
        with pytest.raises(ValueError, match="dropped"):
            store.get(2, b"0023")
    else:
        assert store.get(2, b"0023") is None


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize(("count", "size_bytes"), [(500, 400), (60, 8000)])
@pytest.mark.parametrize("how", ["drop", "delete"])
def test_a_full_disk_is_relieved(files, how, count, size_bytes, restarts):
    """Values are refused; a drop or deletes are accepted and free space, and then values are accepted again."""
    store = opened(files)
    filled(store, (1, 2), count, size_bytes)
    assert reserved(files) == TINY.reserve_bytes
    taken(files)
    while is_writable(store):
        taken(files)
    assert reserved(files) == TINY.reserve_bytes, "nothing that gives no room back has it"
    if restarts:
        store.close()
        taken(files)
        store = opened(files)
    give_back(store, how, count)
    assert is_writable(store)
    store.maintain()
    assert reserved(files) == TINY.reserve_bytes, "it is there for the next time"
    check_rest(store, how)
    store.close()
    with opened(files) as store:
        check_rest(store, how)
