"""Most batches take the short way into the log."""

from __future__ import annotations

import pytest

from gossipkv.errors import StorageError
from gossipkv.storage.engine._engine import Batch
from gossipkv.storage.engine.engine import Engine
from tests.world.blocking_store import Store
from tests.world.simulated_files import SimulatedFiles


def test_most_batches_take_the_short_way(monkeypatch):
    """Only batches that are not plain, and a few checks of the pressure, take the long way."""
    files, long_way, take_it = SimulatedFiles(), [], Engine._append
    files.make_directory("/d")
    monkeypatch.setattr(Engine, "_append", lambda self, batch: long_way.append(batch) or take_it(self, batch))
    with Store.open("/d/s", files=files) as store:
        making, space = Batch(), store.reserve_space()
        making.new_space(space)
        store.write(making)
        for number in range(2000):
            store.put(space, b"%d" % number, bytes(100))
        assert len(long_way) < 10
        with pytest.raises(ValueError, match="no space"):
            store.put(space + 1, b"k", b"v")
        assert len(long_way) < 12
    with pytest.raises(StorageError, match="closed"):
        store.put(space, b"k", b"v")
