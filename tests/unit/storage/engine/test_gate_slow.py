"""Changes wait until no serving loop reads within the gate."""

from __future__ import annotations

import threading
import time

import pytest

from gossipkv.storage.engine._engine import Batch, Memtable, ReadGate
from tests.world._world import GateReader

STAY_US = 100_000


def one_put() -> Batch:
    batch = Batch()
    batch.put(1, b"k", b"v")
    return batch


@pytest.mark.parametrize("change", ["show", "hide", "apply"])
def test_a_change_waits_for_the_readers_within_the_gate(change: str) -> None:
    gate, memtable = ReadGate(), Memtable(1 << 16)
    gate.serve([threading.Lock()])
    view = gate.show([memtable], [])
    reader = GateReader(gate)
    thread = threading.Thread(target=reader.stay, args=(STAY_US,))
    thread.start()
    while not reader.has_entered:
        time.sleep(0.001)
    if change == "show":
        gate.show([memtable], [])
    elif change == "hide":
        gate.hide()
    else:
        gate.apply(memtable, one_put())
    assert reader.leaves
    thread.join()
    assert view.get(1, b"k") == (b"v" if change == "apply" else None)
