"""The rows about what a store writes to the disk for each byte put, and what it takes there.

Each side is a process of its own (`overwriting`): records of ten memtables, then as many bytes again and again in any
of them, in batches; then until nothing is left to be merged.  Both logs count.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.bench import building, goals, machine
from tests.bench.measurement import Measurement
from tests.bench.store import ours, overwriting, rocksdb

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MIB = 1 << 20
RECORD_BYTES = overwriting.KEY_BYTES + overwriting.VALUE_BYTES


@dataclass(frozen=True)
class Load:
    """How large, and how often everything is overwritten."""

    memtable_bytes: int = 64 * MIB
    memtables: int = 10  # Of records.
    overwrites: int = 3
    rounds: int = 1  # Of a gigabyte of records written some ten times over.

    @property
    def keys(self) -> int:
        """How many records that is."""
        return self.memtables * self.memtable_bytes // RECORD_BYTES


def measure(directory: Path, load: Load, notes: list[str]) -> Iterator[Measurement]:
    """What was written, then what it took."""
    sides = [ours.NAME]
    missing = rocksdb.missing()
    if missing is None:
        sides.append(rocksdb.NAME)
    else:
        notes.append(f"{rocksdb.NAME} takes no part; it needs: {missing}")
    found: dict[str, list[overwriting.Figures]] = {side: [] for side in sides}
    for number in range(load.rounds):
        for side in sides:
            machine.say(f"    {side}")
            place = directory / f"{number}-{side}"
            place.mkdir()
            found[side].append(_run(side, place, load))
            building.remove(place)
    ratios = {side: [each.written / each.put for each in figures] for side, figures in found.items()}
    yield Measurement(goals.STORE_AMPLIFICATION, "B", ours.NAME, ratios)
    figures = found[ours.NAME]
    live = [each.live / MIB for each in figures]
    file = overwriting.FILE_MEMTABLES * load.memtable_bytes / MIB
    resting = [each.resting / MIB for each in figures]
    limit = [1.5 * each + file for each in live]
    yield Measurement(goals.STORE_SPACE, "MiB", ours.NAME, {ours.NAME: resting, goals.LIVE_BYTES: limit})
    most = [each.most / MIB for each in figures]
    limit = [2 * each + file for each in live]
    yield Measurement(goals.STORE_SPACE_MERGING, "MiB", ours.NAME, {ours.NAME: most, goals.TWICE_LIVE_BYTES: limit})
    spaces = "; ".join(
        f"{side}: {each.resting / each.live:.2f} x live bytes at rest, {each.most / each.live:.2f} x at most"
        for side, (each, *_) in found.items()
    )
    notes.append(
        f"Overwriting: {load.keys:,} keys, memtables of {load.memtable_bytes // MIB} MiB on both sides, each key put "
        f"{load.overwrites + 1} times on average, values that cannot be compressed; files of a run end at "
        f"{overwriting.FILE_MEMTABLES} memtables, which are 1 GiB by default; {spaces}"
    )


def _run(side: str, place: Path, load: Load) -> overwriting.Figures:
    puts = load.keys * (load.overwrites + 1)
    numbers = [str(number) for number in (load.memtable_bytes, load.keys, puts)]
    command = [sys.executable, "-m", overwriting.__name__, side, str(place), *numbers]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    return overwriting.Figures(*json.loads(done.stdout))
