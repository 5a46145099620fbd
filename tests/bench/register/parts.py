"""The rows about what is decided: registers, and the maps of tables over them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.bench import machine
from tests.bench.register import changes, growth, outages, runs, transactions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.bench.measurement import Measurement

    Part = Callable[[Path, "Load", list[str]], Iterator[Measurement]]


@dataclass(frozen=True)
class Load:
    """How much of each."""

    changes: changes.Load = field(default_factory=changes.Load)
    outages: outages.Load = field(default_factory=outages.Load)
    transactions: transactions.Load = field(default_factory=transactions.Load)
    growth: growth.Load = field(default_factory=growth.Load)
    runs: runs.Load = field(default_factory=runs.Load)


QUICK = Load(
    changes=changes.Load(syncs=5, changes=10, keys=4, keyed=20, batched=40, contended_s=0.5, rounds=1),
    outages=outages.Load(before_s=0.2, out_s=1.5, rounds=1),
    transactions=transactions.Load(syncs=5, operations=5, burst=40, rounds=1),
    growth=growth.Load(rounds=1),
    runs=runs.Load(ideal=3, stored=1, rounds=1),
)


PARTS: dict[str, Part] = {
    "register-changes": lambda place, load, notes: changes.measure(place, load.changes, notes),
    "register-outage": lambda place, load, notes: outages.measure(place, load.outages, notes),
    "metadata-transactions": lambda place, load, notes: transactions.measure(place, load.transactions, notes),
    "catalogue-growth": lambda place, load, notes: growth.measure(place, load.growth, notes),
    "register-runs": lambda place, load, notes: runs.measure(place, load.runs, notes),
}


def measure(part: str, directory: Path, load: Load, notes: list[str]) -> Iterator[Measurement]:
    """The rows of one part."""
    machine.say(f"  {part}")
    yield from PARTS[part](directory, load, notes)
