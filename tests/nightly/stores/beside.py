"""A thread reads a store while another one writes: `python -m tests.nightly.stores.beside WAY`, under ThreadSanitizer.

With the way "gate", the reader enters the gate of the store, as serving loops do; with "past" it does not.
"""

from __future__ import annotations

import sys
import threading

from gossipkv.storage.engine._engine import Batch, Memtable, ReadGate
from tests.world._world import GateReader

SPACE = 1
BATCHES, RECORDS = 200, 300  # More records than are applied at once.
LOOKUPS = 100


def main(way: str) -> None:
    gate, memtable, is_over = ReadGate(), Memtable(1 << 26), threading.Event()
    gate.serve([threading.Lock()])
    view = gate.show([memtable], [])
    reader = GateReader(gate)

    def read() -> None:
        while not is_over.is_set():
            reader.find(SPACE, b"%06d" % 0, LOOKUPS, enters=way == "gate")

    thread = threading.Thread(target=read)
    thread.start()
    for number in range(BATCHES):
        batch = Batch()
        for at in range(RECORDS):
            batch.put(SPACE, b"%06d" % (at * number), b"value")
        gate.apply(memtable, batch)
        if way == "gate":
            view = gate.show([memtable], [])
    is_over.set()
    thread.join()
    assert view.get(SPACE, b"%06d" % 0) == b"value"


if __name__ == "__main__":
    main(*sys.argv[1:])
