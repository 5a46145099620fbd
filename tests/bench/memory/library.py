"""The rows from Python: stores are read in processes that have a third of the memory that their records take."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import TYPE_CHECKING

from tests.bench import data, engines, goals, machine
from tests.bench.measurement import WrongAnswerError
from tests.bench.memory import cgroup, disk, reader
from tests.bench.memory import engines as short
from tests.bench.memory.reader import Turn
from tests.bench.processes import anonymous_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.bench.data import Record
    from tests.bench.measurement import Bench, Row
    from tests.bench.peers.base import Engine

KIB = 1024
RATIO = 3  # The ratio of data to memory.
MIN_BYTES = 16 << 20  # A process uses a few MiB more or less at times.
CACHE_SHARE = 0.8  # The share of memory for a store's own cache: its allocator needs some, too.
FILTER_BYTES = 3  # The bytes per record of a filter and index that a store keeps in memory.
RUNS = 300


@dataclass(frozen=True)
class Contestant:
    """A child process that reads, and waits for its turn."""

    name: str
    child: subprocess.Popen[str]

    def turn(self, shape: str, seconds: float, seed: int) -> Turn:
        """Run a turn. Raises WrongAnswerError if the child has found a wrong value."""
        assert self.child.stdin is not None
        assert self.child.stdout is not None
        self.child.stdin.write(f"{shape} {seconds} {seed}\n")
        self.child.stdin.flush()
        line = self.child.stdout.readline()
        if not line:
            raise WrongAnswerError(f"{self.name} ended in a turn of {shape}")
        return Turn(*json.loads(line))


@contextmanager
def _contestant(kind: type[Engine], path: Path, records: int, memory_bytes: int, runs: Path) -> Iterator[Contestant]:
    """Run a child in a group that may use `memory_bytes` beyond the child's size at its start."""
    cache_bytes = int(memory_bytes * CACHE_SHARE) - FILTER_BYTES * records
    command = [sys.executable, "-m", "tests.bench.memory.reader", kind.name, str(path), str(records)]
    machine.forget(path if path.is_dir() else path.parent)
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


def _fill(bench: Bench, made: list[Record]) -> dict[str, Path]:
    """Write the records in every available format, and the expected runs of scans."""
    paths = {}
    for number, kind in enumerate(engines.present(bench, (*short.PLAIN, *short.COMPRESSED))):
        machine.say(f"    filling {kind.name}")
        paths[kind.name] = bench.directory / f"{number}" / "data.gkv"
        paths[kind.name].parent.mkdir()
        kind.build(paths[kind.name], made)
    made.sort()
    length = min(reader.RUN, len(made))
    begins = range(0, len(made) - length + 1, max(1, (len(made) - length) // RUNS))
    runs = [(made[at][0].decode(), data.checksum(made[at : at + length])) for at in begins]
    (bench.directory / "runs").write_text(json.dumps(runs))
    return paths


def measure(
    bench: Bench, *, records: int = 3_000_000, warm_s: float = 5.0, turn_s: float = 2.0, rounds: int = 5
) -> None:
    made = data.mixed(records)
    # Otherwise popular records would be adjacent in a store that keeps their order.
    random.Random(data.SEED).shuffle(made)
    paths = _fill(bench, made)
    kept = {name: machine.size_on_disk(path) for name, path in paths.items()}
    memory_bytes = max(records * data.RECORD_BYTES // RATIO, MIN_BYTES)
    packed_bytes = max(kept[short.COMPRESSED[0].name] // RATIO, MIN_BYTES)
    plain = (
        (reader.UNIFORM, goals.LARGER_GET, goals.LARGER_GET_PAGES),
        (reader.ZIPF, goals.LARGER_ZIPF, goals.LARGER_ZIPF_PAGES),
        (reader.BATCHES, goals.LARGER_MANY, None),
        (reader.SCANS, goals.LARGER_SCAN, None),
    )
    packed = (
        (reader.UNIFORM, goals.LARGER_LZ4, goals.LARGER_LZ4_PAGES),
        (reader.ZIPF, goals.LARGER_LZ4_ZIPF, goals.LARGER_LZ4_ZIPF_PAGES),
    )
    for kinds, size_bytes, asked in ((short.PLAIN, memory_bytes, plain), (short.COMPRESSED, packed_bytes, packed)):
        with ExitStack() as stack:
            opened = [
                stack.enter_context(_contestant(kind, paths[kind.name], records, size_bytes, bench.directory / "runs"))
                for kind in kinds
                if kind.name in paths
            ]
            for shape, row, pages in asked:
                ordered = shape in {reader.BATCHES, reader.SCANS}
                contestants = [each for each in opened if not ordered or short.ALL[each.name].ordered]
                for each in contestants:
                    each.turn(shape, warm_s, 0)  # The turn does not count, and fills caches.
                sides = {
                    each.name: partial(_figures, each, shape, turn_s, count(1), (row, pages)) for each in contestants
                }
                bench.compare(row, sides, rounds, warm=0)
                for seed in range(rounds) if row == goals.LARGER_GET else ():
                    bench.add(row, disk.read(paths[kinds[0].name], 1, turn_s, seed).wall_us, goals.DISK_1)
    sizes = ", ".join(f"{name} {size_bytes >> 20:,} MiB" for name, size_bytes in kept.items())
    bench.notes.append(
        f"{goals.LARGER_GET}: {records:,} records of {data.RECORD_BYTES} bytes; beyond what its process takes "
        f"at its start, each contestant has {memory_bytes >> 20:,} MiB, those in lz4 {packed_bytes >> 20:,} MiB; "
        f"files: {sizes}"
    )


def _figures(
    contestant: Contestant,
    shape: str,
    turn_s: float,
    seeds: Iterator[int],
    rows: tuple[Row | None, ...],
) -> dict[Row, float]:
    turn = contestant.turn(shape, turn_s, next(seeds))
    figures = (turn.unit_us, turn.unit_pages)
    return {row: figure for row, figure in zip(rows, figures, strict=True) if row is not None}
