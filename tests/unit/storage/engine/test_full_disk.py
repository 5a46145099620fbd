"""A disk without a free byte: operations that free space are accepted, and then all others again."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import PurePosixPath

import pytest

from gossipkv.errors import Overloaded
from gossipkv.storage.engine._engine import Batch
from gossipkv.storage.engine.manifest import RESERVE
from gossipkv.storage.engine.works import reserved_bytes
from tests.unit.storage.engine.places import TINY
from tests.world.blocking_store import Store
from tests.world.simulated_files import SimulatedFiles

PATH = "/store"


def opened(files, options=TINY):
    return Store.open(PATH, files=files, options=options, random=random.Random(3))


def write(store, operation, *operations):
    batch = Batch()
    for name, *arguments in (operation, *operations):
        getattr(batch, name)(*arguments)
    store.write(batch)


def filled(store, spaces, count, size_bytes):
    """Put so many records in each of these spaces, most of them in the oldest run."""
    for space in spaces:
        assert store.reserve_space() == space
        write(store, ("new_space", space))
    for number in range(count):
        for space in spaces:
            store.put(space, b"%04d" % number, b"%d" % number + bytes(size_bytes))
    assert store.engine.state().oldest.records > count


def reserved(files):
    return reserved_bytes(files, PurePosixPath(PATH))


@pytest.fixture
def files():
    return SimulatedFiles()


def taken(files):
    files.capacity_bytes -= files.free_bytes("/")


def is_writable(store):
    """Maintain the store, and return True if a value is accepted."""
    store.maintain()
    try:
        store.put(1, b"more", b"and more")
    except Overloaded as refusal:
        assert "too little free space" in refusal.details["reason"]
        return False
    return True


def is_taken(store, batch):
    """Return True if a batch is written, perhaps after maintenance."""
    for _ in range(2):
        try:
            store.write(batch)
        except Overloaded:
            store.maintain()
        else:
            return True
    return False


def test_the_reserve_of_a_store_that_had_none(files):
    """The reserve is made at the first opening with room; without room the store opens and waits."""
    store = opened(files)
    filled(store, (1, 2), 500, 200)
    store.close()
    files.unlink(f"{PATH}/{RESERVE}")
    taken(files)
    files.capacity_bytes += 2 * TINY.segment_bytes
    store = opened(files)
    assert not is_writable(store)
    assert not reserved(files)
    files.capacity_bytes += 2 * TINY.margin_bytes
    assert is_writable(store)
    assert reserved(files) == TINY.reserve_bytes
    store.close()


def test_what_replaces_itself_never_fills_the_reserve(files):
    """Decisions are accepted as long as the disk is full, since neither replaced records nor the log grows."""
    store = opened(files, replace(TINY, table_log=1 << 20))
    filled(store, (1, 2), 500, 200)
    taken(files)
    while is_writable(store):
        taken(files)
    for number in range(10 * TINY.segment_bytes // 1000):
        batch = Batch()
        batch.relieves = True
        batch.put(1, b"%d" % (number % 10), bytes(1000))
        assert is_taken(store, batch), f"the reserve is used up after {number}"
    assert not is_writable(store)
    write(store, ("drop_space", 2))
    assert is_writable(store)
    assert reserved(files) == TINY.reserve_bytes
