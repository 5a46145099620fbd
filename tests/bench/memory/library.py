"""The rows from Python: stores read in processes that have a third of the memory that their records take."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from tests.bench import data, goals, machine
from tests.bench.datasets.restart import forget
from tests.bench.measurement import Measurement
from tests.bench.memory import cgroup, disk, engines, reader, records
from tests.bench.memory.reader import Turn

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.bench.data import Record
    from tests.bench.peers.base import Engine

KIB = 1024
RATIO = 3  # Of data to memory.
LEAST_BYTES = 16 << 20  # Of memory: what a process takes on the way varies by a few.
CACHE_SHARE = 0.8  # Of memory, for a store that has its own cache: its allocator takes some, too.
FILTER_BYTES = 3  # A record, of filter and index of a store that keeps them in memory.
RUNS = 300


@dataclass(frozen=True)
class Load:
    """How many records, how long each is asked in a turn, how often."""

    records: int = 3_000_000
    warm_s: float = 5.0
    turn_s: float = 2.0
    rounds: int = 5


@dataclass(frozen=True)
class Contestant:
    """A child that reads, and waits for its turn."""

    name: str
    child: subprocess.Popen[str]

    def turn(self, shape: str, seconds: float, seed: int) -> Turn:
        """Raises RuntimeError when the child has found a wrong value."""
        assert self.child.stdin is not None
        assert self.child.stdout is not None
        self.child.stdin.write(f"{shape} {seconds} {seed}\n")
        self.child.stdin.flush()
        line = self.child.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.name} ended in a turn of {shape}")
        return Turn(*json.loads(line))


def anonymous_bytes(process: int) -> int:
    """Memory that is a process' own, and no page of a file."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon:")) * KIB


@contextmanager
def _contestant(kind: type[Engine], path: Path, count: int, memory_bytes: int, runs: Path) -> Iterator[Contestant]:
    """A child in a group that may have `memory_bytes` beyond what the child takes at its start."""
    cache_bytes = int(memory_bytes * CACHE_SHARE) - FILTER_BYTES * count
    command = [sys.executable, "-m", "tests.bench.memory.reader", kind.name, str(path), str(count)]
    forget(path if path.is_dir() else path.parent)
    with cgroup.made(kind.name.replace(" ", "-")) as group:
        child = subprocess.Popen(
            group.command(*command, str(max(cache_bytes, KIB * KIB)), str(runs)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert child.stdout is not None
        try:
            if child.stdout.readline() != "ready\n":
                raise RuntimeError(f"{kind.name} did not open")
            group.limit(memory_bytes + anonymous_bytes(child.pid))
            yield Contestant(kind.name, child)
        finally:
            child.kill()
            child.communicate()


@dataclass
class Stores:
    """Files of all contestants, with the same records."""

    directory: Path
    load: Load
    paths: dict[str, Path] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @property
    def runs(self) -> Path:
        """The file of what scans must find."""
        return self.directory / "runs"

    def fill(self, made: list[Record]) -> None:
        """Write the records in every format that is here."""
        for number, kind in enumerate((*engines.PLAIN, *engines.COMPRESSED)):
            missing = kind.missing()
            if missing is not None:
                self.notes.append(f"{kind.name} takes no part; it needs: {missing}")
                continue
            machine.say(f"    filling {kind.name}")
            place = self.directory / f"{number}"
            place.mkdir()
            kind.build(place / "data.gkv", made)
            self.paths[kind.name] = place / "data.gkv"
        made.sort()
        length = min(reader.RUN, len(made))
        begins = range(0, len(made) - length + 1, max(1, (len(made) - length) // RUNS))
        runs = [(made[at][0].decode(), records.checksum(made[at : at + length])) for at in begins]
        self.runs.write_text(json.dumps(runs))

    @contextmanager
    def opened(self, kinds: tuple[type[Engine], ...], memory_bytes: int) -> Iterator[list[Contestant]]:
        """Those of them that are here, each with so much memory for data."""
        with ExitStack() as stack:
            yield [
                stack.enter_context(
                    _contestant(kind, self.paths[kind.name], self.load.records, memory_bytes, self.runs)
                )
                for kind in kinds
                if kind.name in self.paths
            ]

    def turns(self, shape: str, contestants: list[Contestant]) -> dict[str, list[Turn]]:
        """A round each in turn, after one that does not count and fills caches."""
        found: dict[str, list[Turn]] = {}
        for contestant in contestants:
            contestant.turn(shape, self.load.warm_s, 0)
        for number in range(1, self.load.rounds + 1):
            for contestant in contestants if number % 2 else contestants[::-1]:
                turn = contestant.turn(shape, self.load.turn_s, number)
                found.setdefault(contestant.name, []).append(turn)
        ours = contestants[0].name
        for name, each in sorted(found.items(), key=lambda item: item[0] != ours):
            units, faults = sum(turn.units for turn in each), sum(turn.faults for turn in each)
            machine.say(
                f"    {name:14} {sorted(turn.unit_us for turn in each)[len(each) // 2]:8.2f} us, "
                f"{sum(turn.pages for turn in each) / units:.3f} pages and {faults / units:.3f} faults each"
            )
        return {contestant.name: found[contestant.name] for contestant in contestants}

    def disk_us(self, path: Path, threads: int) -> list[float]:
        """Of a read of the C loop, round by round."""
        return [disk.read(path, threads, self.load.turn_s, seed).wall_us for seed in range(self.load.rounds)]


def _rows(
    found: dict[str, list[Turn]], *, row: str, p99: str | None = None, pages: str | None = None
) -> Iterator[Measurement]:
    subject = next(iter(found))
    yield Measurement(row, "us", subject, {name: [turn.unit_us for turn in each] for name, each in found.items()})
    if p99 is not None:
        yield Measurement(p99, "us", subject, {name: [turn.p99_us for turn in each] for name, each in found.items()})
    if pages is not None:
        samples = {name: [turn.unit_pages for turn in each] for name, each in found.items()}
        yield Measurement(pages, "pages", subject, samples)


def _with_disk(rows: Iterator[Measurement], name: str, samples: list[float]) -> Iterator[Measurement]:
    """The first of the rows has the yardstick beside it."""
    first = next(rows)
    yield Measurement(first.row, first.unit, first.subject, {**first.samples, name: samples})
    yield from rows


def measure(directory: Path, load: Load, notes: list[str]) -> Iterator[Measurement]:
    """Plain, then in lz4."""
    stores = Stores(directory, load)
    made = records.make(load.records)
    random.Random(data.SEED).shuffle(made)  # Or what is popular would lie together in a store that keeps their order.
    stores.fill(made)
    kept = {name: machine.size_on_disk(path) for name, path in stores.paths.items()}
    notes += [f"{kind.name}: {kind.settings}" for kind in (*engines.PLAIN, *engines.COMPRESSED)] + stores.notes
    memory_bytes = max(load.records * records.RECORD_BYTES // RATIO, LEAST_BYTES)
    ours = engines.PLAIN[0].name
    with stores.opened(engines.PLAIN, memory_bytes) as contestants:
        machine.say(f"  {goals.LARGER_GET}")
        found = stores.turns(reader.UNIFORM, contestants)
        rows = _rows(found, row=goals.LARGER_GET, p99=goals.LARGER_GET_P99, pages=goals.LARGER_GET_PAGES)
        yield from _with_disk(rows, goals.DISK_1, stores.disk_us(stores.paths[ours], 1))
        machine.say(f"  {goals.LARGER_ZIPF}")
        found = stores.turns(reader.ZIPF, contestants)
        yield from _rows(found, row=goals.LARGER_ZIPF, p99=goals.LARGER_ZIPF_P99, pages=goals.LARGER_ZIPF_PAGES)
        ordered = [each for each in contestants if engines.ALL[each.name].ordered]
        machine.say(f"  {goals.LARGER_MANY}")
        yield from _rows(stores.turns(reader.BATCHES, ordered), row=goals.LARGER_MANY)
        machine.say(f"  {goals.LARGER_SCAN}")
        yield from _rows(stores.turns(reader.SCANS, ordered), row=goals.LARGER_SCAN)
    packed_bytes = max(kept[engines.COMPRESSED[0].name] // RATIO, LEAST_BYTES)
    with stores.opened(engines.COMPRESSED, packed_bytes) as contestants:
        machine.say(f"  {goals.LARGER_LZ4}")
        found = stores.turns(reader.UNIFORM, contestants)
        yield from _rows(found, row=goals.LARGER_LZ4, p99=goals.LARGER_LZ4_P99, pages=goals.LARGER_LZ4_PAGES)
        machine.say(f"  {goals.LARGER_LZ4_ZIPF}")
        found = stores.turns(reader.ZIPF, contestants)
        yield from _rows(found, row=goals.LARGER_LZ4_ZIPF, pages=goals.LARGER_LZ4_ZIPF_PAGES)
    sizes = ", ".join(f"{name} {size_bytes >> 20:,} MiB" for name, size_bytes in kept.items())
    notes.append(
        f"{goals.LARGER_GET}: {load.records:,} records of {records.RECORD_BYTES} bytes; beyond what its process takes "
        f"at its start, each contestant has {memory_bytes >> 20:,} MiB, those in lz4 {packed_bytes >> 20:,} MiB; "
        f"files: {sizes}"
    )
