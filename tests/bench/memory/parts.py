"""The rows about data that is three times as large as memory: from Python beside its peers, and over the wire."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.bench import machine
from tests.bench.memory import cgroup, library, node

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.bench.measurement import Measurement

    Part = Callable[[Path, "Load", list[str]], Iterator[Measurement]]


@dataclass(frozen=True)
class Load:
    """How much of each."""

    library: library.Load = field(default_factory=library.Load)
    node: node.Load = field(default_factory=node.Load)

    @classmethod
    def of(cls, records: int) -> Load:
        """So many records, the rest as always."""
        return cls(library.Load(records=records), node.Load(records=records))


QUICK = Load(  # Enough records for something to be cold beside the least memory that a process can have.
    library=library.Load(records=300_000, warm_s=0.3, turn_s=0.2, rounds=1),
    node=node.Load(records=300_000, connections=8, cold_rate=200, warm_s=0.5, turn_s=0.3, rounds=1),
)


PARTS: dict[str, Part] = {
    "larger-library": lambda place, load, notes: library.measure(place, load.library, notes),
    "larger-node": lambda place, load, notes: node.measure(place, load.node, notes),
}


def measure(part: str, directory: Path, load: Load, notes: list[str]) -> Iterator[Measurement]:
    """The rows of one part; none, and a note, where memory cannot be made short."""
    machine.say(f"  {part}")
    missing = cgroup.missing()
    if missing is not None:
        machine.say(f"    left out: {missing}")
        notes.append(f"{part} is left out; it needs: {missing}")
        return
    yield from PARTS[part](directory, load, notes)
