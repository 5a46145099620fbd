"""The rows about the store under the tables, part by part: beside RocksDB as it writes, beside LMDB as it reads."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.bench import machine
from tests.bench.store import amplification, memory, merging, opening, reading, simulated, writing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.bench.measurement import Measurement

    Part = Callable[[Path, "Load", list[str]], Iterator[Measurement]]

MIB = 1 << 20


@dataclass(frozen=True)
class Load:
    """How much of each."""

    writing: writing.Load = field(default_factory=writing.Load)
    reading: reading.Load = field(default_factory=reading.Load)
    merging: merging.Load = field(default_factory=merging.Load)
    amplification: amplification.Load = field(default_factory=amplification.Load)
    opening: opening.Load = field(default_factory=opening.Load)
    memory: memory.Load = field(default_factory=memory.Load)
    simulated: simulated.Load = field(default_factory=simulated.Load)


QUICK = Load(
    writing=writing.Load(
        keys=5_000,
        puts=50,
        batches=5,
        writers=8,
        writer_puts=5,
        rounds=1,
    ),
    reading=reading.Load(keys=9_000, queries=1_000, scans=1, rounds=1),
    merging=merging.Load(merged_bytes=12 * MIB, segment_bytes=2 * MIB, rest_s=0.3, rounds=1),
    amplification=amplification.Load(memtable_bytes=1 * MIB, memtables=4, overwrites=1, rounds=1),
    opening=opening.Load(log_bytes=12 * MIB, unmerged_bytes=3 * MIB, segment_bytes=2 * MIB, rounds=1),
    memory=memory.Load(written_bytes=200 * MIB, segment_bytes=16 * MIB),
    simulated=simulated.Load(rounds=1),
)


PARTS: dict[str, Part] = {
    "store-puts": lambda place, load, notes: writing.durable(place, load.writing, notes),
    "store-gets": lambda place, load, notes: reading.gets(place, load.reading, notes),
    "store-scans": lambda place, load, notes: reading.scans(place, load.reading, notes),
    "store-merging": lambda place, load, notes: merging.measure(place, load.merging, notes),
    "store-amplification": lambda place, load, notes: amplification.measure(place, load.amplification, notes),
    "store-opening": lambda place, load, notes: opening.measure(place, load.opening, notes),
    "store-memory": lambda place, load, notes: memory.measure(place, load.memory, notes),
    "store-simulated": lambda place, load, notes: simulated.measure(place, load.simulated, notes),
}


def measure(part: str, directory: Path, load: Load, notes: list[str]) -> Iterator[Measurement]:
    """The rows of one part."""
    machine.say(f"  {part}")
    yield from PARTS[part](directory, load, notes)
