"""The rows about datasets that nodes share, part by part: real nodes, each a process of its own."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.bench import machine
from tests.bench.cluster import deadlines, faults, local_gets, scans, suspicion, versions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.bench.measurement import Measurement

    Part = Callable[[Path, "Load", list[str]], Iterator[Measurement]]


@dataclass(frozen=True)
class Load:
    """How much of each."""

    local: local_gets.Load = field(default_factory=local_gets.Load)
    deadlines: deadlines.Load = field(default_factory=deadlines.Load)
    scan: scans.Load = field(default_factory=scans.Load)
    faults: faults.Load = field(default_factory=faults.Load)
    versions: versions.Load = field(default_factory=versions.Load)
    suspicion: suspicion.Load = field(default_factory=suspicion.Load)


QUICK = Load(
    local=local_gets.Load(partitions=(1_024, 512), here=16, keys=1_000, run_s=0.05, rounds=1),
    deadlines=deadlines.Load(keys=1_000, run_s=0.3, rounds=1, least=0.01),
    scan=scans.Load(records=5_000, rounds=1),
    faults=faults.Load(
        keys=1_000,
        connections=2,
        proxy_timeout_ms=20_000,  # A busy machine is no fault of a node.
        stage_ms=100,
        warming_s=0.1,
        before_s=0.3,
        later_s=0.5,
        rounds=1,
        killed_proxy_timeout_ms=20_000,
        killed_s=1.5,
    ),
    versions=versions.Load(
        databases=2,
        keys=1_000,
        proxy_timeout_ms=20_000,
        before_s=0.3,
        rounds=1,
        built_records=5_000,
        built_rounds=1,
    ),
    suspicion=suspicion.Load(rest_s=0.1, rounds=1),
)


PARTS: dict[str, Part] = {
    "cluster-local": lambda place, load, notes: local_gets.measure(place, load.local, notes),
    "cluster-deadlines": lambda place, load, notes: deadlines.measure(place, load.deadlines, notes),
    "cluster-scan": lambda place, load, notes: scans.measure(place, load.scan, notes),
    "cluster-frozen": lambda place, load, notes: faults.frozen(place, load.faults, notes),
    "cluster-killed": lambda place, load, notes: faults.killed(place, load.faults, notes),
    "cluster-switched": lambda place, load, notes: versions.switched(place, load.versions, notes),
    "cluster-built": lambda place, load, notes: versions.built(place, load.versions, notes),
    "cluster-suspected": lambda place, load, notes: suspicion.measure(place, load.suspicion, notes),
}


def measure(part: str, directory: Path, load: Load, notes: list[str]) -> Iterator[Measurement]:
    """The rows of one part."""
    machine.say(f"  {part}")
    yield from PARTS[part](directory, load, notes)
