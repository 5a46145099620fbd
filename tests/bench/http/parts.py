"""The rows about HTTP and about the load generator, part by part."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.bench import machine
from tests.bench.http import gateway, generator, numbers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.bench.measurement import Measurement

    Part = Callable[[Path, "Load", list[str]], Iterator[Measurement]]


@dataclass(frozen=True)
class Load:
    """How much of each."""

    gateway: gateway.Load = field(default_factory=gateway.Load)
    numbers: numbers.Load = field(default_factory=numbers.Load)
    generator: generator.Load = field(default_factory=generator.Load)


QUICK = Load(
    gateway=gateway.Load(keys=1_000, run_s=0.1, rounds=1),
    numbers=numbers.Load(databases=3, nodes=3, partitions=300, scrapes=3, run_s=0.3, rounds=1),
    generator=generator.Load(keys=1_000, run_s=0.1, requests=2_000, rounds=1),
)


PARTS: dict[str, Part] = {
    "http-get": lambda place, load, notes: gateway.gets(place, load.gateway, notes),
    "http-beside": lambda place, load, notes: gateway.beside(place, load.gateway, notes),
    "http-metrics": lambda place, load, notes: numbers.scrapes(place, load.numbers, notes),
    "http-page": lambda place, load, notes: numbers.page(place, load.numbers, notes),
    "load-generator": lambda place, load, notes: generator.measure(place, load.generator, notes),
    "load-lateness": lambda place, load, notes: generator.lateness(place, load.generator, notes),
}


def measure(part: str, directory: Path, load: Load, notes: list[str]) -> Iterator[Measurement]:
    """The rows of one part."""
    machine.say(f"  {part}")
    yield from PARTS[part](directory, load, notes)
