"""The gate between serving loops and the thread that changes records."""

from __future__ import annotations

import threading

import pytest

from gossipkv.storage.engine._engine import Batch, Memtable, ReadGate
from tests.oracle import view as oracle
from tests.oracle.memtable import internal
from tests.unit.storage.engine.layers import run_of

ROWS = [(b"k%04d" % number, b"v%d" % number) for number in range(1000)]


def batch_of(rows: list[tuple[bytes, bytes]]) -> Batch:
    batch = Batch()
    for key, value in rows:
        batch.put(1, key, value)
    return batch


@pytest.mark.parametrize("guards", [0, 1])
def test_a_batch_is_applied_whole_with_and_without_further_loops(guards: int) -> None:
    gate, memtable = ReadGate(), Memtable(1 << 20)
    gate.serve([threading.Lock() for _ in range(guards)])
    view = gate.show([memtable], [])
    gate.apply(memtable, batch_of(ROWS))
    assert view.scan(1)[0] == ROWS
    assert view.get(1, ROWS[7][0]) == oracle.get(
        [{internal(1, key): b"\1" + value for key, value in ROWS}], 1, ROWS[7][0]
    )


def test_each_further_loop_has_twins_that_go_with_its_view() -> None:
    gate, guard = ReadGate(), threading.Lock()
    gate.serve([guard])
    run = run_of({b"\0\0\0\1k": b"\1v"})
    view = gate.show([], [run])
    file = run[0][1]
    twin = file.twin_for(guard)
    assert twin is not file
    with pytest.raises(BufferError):
        file.close()
    gate.hide()
    view.close()
    file.close()


def test_the_view_before_lets_its_files_go() -> None:
    gate = ReadGate()
    gate.serve([threading.Lock()])
    old = run_of({b"\0\0\0\1k": b"\1old"})
    view = gate.show([], [old])
    view = gate.show([], [run_of({b"\0\0\0\1k": b"\1new"})])
    old[0][1].close()
    assert view.get(1, b"k") == b"new"
