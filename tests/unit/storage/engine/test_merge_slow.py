"""Tests that cost seconds; `test_merge.py` has the others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gossipkv.storage.engine.merge import merge
from tests.oracle import merge as oracle
from tests.unit.storage.engine.merge_world import World
from tests.unit.storage.memory_files import MemoryFiles

if TYPE_CHECKING:
    from tests.oracle.merge import Records


def wide(space: int, numbers: range, value: bytes = b"\x01" + bytes(90)) -> Records:
    return {oracle.key_of(space, b"%05d" % number): value for number in numbers}


def test_what_is_read_is_progress() -> None:
    """A merge of dropped spaces writes nothing, and still reports its progress."""
    world = World(MemoryFiles(), "store")
    long = {oracle.key_of(1, b"%05d" % number): b"\x01" + bytes(1000) for number in range(9000)}
    world.add_oldest([long, wide(2, [1])])
    told: list[int] = []
    output = merge(world.files, world.order_into_oldest({3}), told.append)
    assert not output.files
    assert told == sorted(told)
    assert len(told) > 4
    assert told[-1] > 9_000_000
