"""A contestant in a separate process that opens its store, runs turns on request, and checks each value.

    python -m tests.bench.memory.reader ENGINE PATH RECORDS CACHE_BYTES RUNS

The program prints `ready`. Each input line is a turn, `SHAPE SECONDS SEED`, and each output line a `Turn` as JSON. The
times are wall-clock times, since a cold read is a wait; drawing keys and checking values are excluded.
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path
from time import perf_counter_ns
from typing import TYPE_CHECKING, NamedTuple, final

from gossipkv.loadtest._loadtest import KeyChooser
from tests.bench.data import checksum, mixed_key_of, object_of
from tests.bench.measurement import WrongAnswerError
from tests.bench.memory import engines
from tests.bench.processes import disk_bytes
from tests.bench.verification import values_of

if TYPE_CHECKING:
    from tests.bench.peers.base import Engine

    # The first key of a run of records in key order, and the checksum of the run.
    Run = tuple[str, int]

UNIFORM, ZIPF, BATCHES, SCANS = "uniform", "zipf", "batches", "scans"
CHUNK = 200  # Keys drawn at once.
BATCH = 100
RUN = 10_000  # The records of a scan: 1.2 MB.
PAGE_BYTES = 4096
SECOND_NS, MICROSECOND_NS = 1e9, 1e3


class Turn(NamedTuple):
    """The outcome of a turn. A unit is a get, a key of a batch, or a record of a scan; times are of calls."""

    units: int
    busy_ns: int
    pages: float  # Pages of 4 KiB that were read from the disk.

    @property
    def unit_us(self) -> float:
        return self.busy_ns / MICROSECOND_NS / self.units

    @property
    def unit_pages(self) -> float:
        return self.pages / self.units


def pages_read(process: int | str = "self") -> float:
    """Return the pages that a process has read from disks since its start: by mapping, call and direct read."""
    return disk_bytes(process, "read_bytes") / PAGE_BYTES


@final
class Asker:
    """An open store, and the counts of this turn."""

    def __init__(self, engine: Engine, count: int, runs: list[Run]) -> None:
        self._engine = engine
        self._count = count
        self._runs = [(start.encode(), right) for start, right in runs]
        self._units = 0
        self._busy_ns = 0

    def turn(self, shape: str, seconds: float, seed: int) -> Turn:
        """Ask until `seconds` have been spent waiting for the store."""
        self._units = self._busy_ns = 0
        before_pages = pages_read()
        chooser = KeyChooser(ZIPF if shape == ZIPF else UNIFORM, self._count, seed=seed)
        rng = random.Random(seed)
        end_ns = perf_counter_ns() + int(seconds * SECOND_NS)
        while perf_counter_ns() < end_ns:
            match shape:
                case "scans":
                    self._scan(*rng.choice(self._runs))
                case "batches":
                    self._batch(chooser.draws(BATCH))
                case _:
                    self._gets(chooser.draws(CHUNK))
        return Turn(self._units, self._busy_ns, pages_read() - before_pages)

    def _gets(self, numbers: list[int]) -> None:
        get = self._engine.get
        keys = [mixed_key_of(number) for number in numbers]
        begin_ns = perf_counter_ns()
        found = [get(key) for key in keys]
        self._busy_ns += perf_counter_ns() - begin_ns
        self._check(numbers, found)

    def _batch(self, numbers: list[int]) -> None:
        keys = [mixed_key_of(number) for number in numbers]
        begin_ns = perf_counter_ns()
        found = self._engine.get_many(keys)
        self._busy_ns += perf_counter_ns() - begin_ns
        self._check(numbers, values_of(found))

    def _scan(self, start: bytes, right: int) -> None:
        begin_ns = perf_counter_ns()
        found = self._engine.first(start, RUN)
        self._busy_ns += perf_counter_ns() - begin_ns
        self._units += len(found)
        if checksum(found) != right:
            raise WrongAnswerError(f"{self._engine.name}: the records from {start!r} are not those that were written")

    def _check(self, numbers: list[int], found: list[bytes | None]) -> None:
        self._units += len(numbers)
        if found != [object_of(number) for number in numbers]:
            raise WrongAnswerError(f"{self._engine.name}: a wrong value among those of {numbers}")


def main() -> None:
    name, path, count, cache_bytes, runs = sys.argv[1:]
    kind = engines.ALL[name]
    if issubclass(kind, engines.RocksDBShort):
        kind.cache_bytes = int(cache_bytes)
    engine = kind.open(Path(path), [])
    asker = Asker(engine, int(count), json.loads(Path(runs).read_text()))
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    for line in sys.stdin:
        shape, seconds, seed = line.split()
        sys.stdout.write(json.dumps(asker.turn(shape, float(seconds), int(seed))) + "\n")
        sys.stdout.flush()
    engine.close()


if __name__ == "__main__":
    main()
