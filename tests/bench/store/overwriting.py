"""The rows about a store's disk writes for each byte put, and its disk space.

Each side is a separate process: it puts records of ten memtables, then overwrites as many bytes repeatedly at random,
until nothing is left to merge. The written bytes are the kernel's count of dirtied pages (`write_bytes` of
/proc/self/io), including the log, of that process and its awaited children. Values cannot be compressed, and each names
its put.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import subprocess
import sys
from functools import partial
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING, Final, NamedTuple, final

import trio

from gossipkv.storage.engine.options import EngineOptions
from tests.bench import building, goals
from tests.bench.data import RECORD_BYTES, SEED, Noise, key_of
from tests.bench.machine import BLOCK_BYTES
from tests.bench.measurement import OURS, WrongAnswerError
from tests.bench.processes import disk_bytes
from tests.bench.store import ours, rocksdb

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from tests.bench.data import Record
    from tests.bench.measurement import Bench, Row

MIB: Final = 1 << 20
BATCH: Final = 1_000
CHECKED: Final = 50_000
FILE_MEMTABLES: Final = 16  # A file of a run ends at 1 GiB by default, a segment at 64 MiB.
SAMPLE_S: Final = 0.02


class Figures(NamedTuple):
    """The results in bytes."""

    put: int  # Keys and values.
    written: int
    live: int  # Keys and values that can still be read.
    resting: int  # Files of records at the end.
    most: int  # The maximum of these files at any time.


def measure(
    bench: Bench, *, memtable_bytes: int = 64 * MIB, memtables: int = 10, overwrites: int = 3, rounds: int = 1
) -> None:
    """Measure writes and space for ten memtables of records, written some ten times over."""
    keys = memtables * memtable_bytes // RECORD_BYTES
    file_mib = FILE_MEMTABLES * memtable_bytes / MIB
    sides = [OURS, *([goals.ROCKSDB] if bench.takes_part(goals.ROCKSDB, rocksdb.missing()) else [])]

    def side(name: str) -> dict[Row, float]:
        place = bench.directory / name
        place.mkdir()
        numbers = [str(number) for number in (memtable_bytes, keys, keys * (overwrites + 1))]
        command = [sys.executable, "-m", __name__, name, str(place), *numbers]
        found = Figures(*json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout))
        building.remove(place)
        bench.notes.append(
            f"{name}: {found.resting / found.live:.2f} x live bytes at rest, {found.most / found.live:.2f} x at most"
        )
        if name == OURS:
            live_mib = found.live / MIB
            bench.add(goals.STORE_SPACE, found.resting / MIB)
            bench.add(goals.STORE_SPACE, 1.5 * live_mib + file_mib, goals.LIVE_BYTES)
            bench.add(goals.STORE_SPACE_MERGING, found.most / MIB)
            bench.add(goals.STORE_SPACE_MERGING, 2 * live_mib + file_mib, goals.TWICE_LIVE_BYTES)
        return {goals.STORE_AMPLIFICATION: found.written / found.put}

    bench.compare(goals.STORE_AMPLIFICATION, {name: partial(side, name) for name in sides}, rounds, warm=0)
    bench.notes.append(
        f"Overwriting: {keys:,} keys, memtables of {memtable_bytes // MIB} MiB on both sides, each key put "
        f"{overwrites + 1} times on average, values that cannot be compressed; files of a run end at "
        f"{FILE_MEMTABLES} memtables, which are 1 GiB by default"
    )


@final
class Space:
    """The space of files of some kind below a directory, sampled until the block ends."""

    def __init__(self, directory: Path, suffix: str) -> None:
        self._directory = directory
        self._suffix = suffix
        self._ended = Event()
        self._thread = Thread(target=self._watch)
        self.most = 0

    def __enter__(self) -> Space:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def now(self) -> int:
        taken = 0
        for place, _, names in os.walk(self._directory):
            for name in names:
                if self._suffix in name:
                    with contextlib.suppress(FileNotFoundError):  # A merge has removed it meanwhile.
                        taken += os.stat(f"{place}/{name}").st_blocks * BLOCK_BYTES
        return taken

    def _watch(self) -> None:
        while not self._ended.wait(SAMPLE_S):
            self.most = max(self.most, self.now())


async def run_ours(directory: Path, memtable_bytes: int, keys: int, puts: int) -> Figures:
    """Run through the Trio shell, as in a node: a child merges."""
    options = EngineOptions(segment_bytes=memtable_bytes, table_log=0, file_bytes=FILE_MEMTABLES * memtable_bytes)
    with Space(directory, ".gkv") as space:
        async with ours.shell(directory / "store", options) as store:
            return await _run(store.write_batch, store.get, store.idle, space, keys=keys, puts=puts)


async def run_rocksdb(directory: Path, memtable_bytes: int, keys: int, puts: int) -> Figures:
    """Run RocksDB with its default settings except the memtable and its derived files and levels."""
    with Space(directory, ".sst") as space:
        store = rocksdb.RocksStore(directory / "rocksdb", sync=True, compressed=True, memtable_bytes=memtable_bytes)

        async def write(records: list[Record]) -> None:
            store.write_batch(records)

        async def settle() -> None:
            store.settle()

        try:
            return await _run(write, store.get, settle, space, keys=keys, puts=puts)
        finally:
            store.close()


async def _run(
    write: Callable[[list[Record]], Awaitable[object]],
    get: Callable[[bytes], bytes | None],
    settle: Callable[[], Awaitable[None]],
    space: Space,
    *,
    keys: int,
    puts: int,
) -> Figures:
    values, last = Noise(), [0] * keys
    before = disk_bytes("self", "write_bytes")
    for batch in _batches(keys, puts):
        await write([(key_of(number), values.of(put)) for put, number in batch])
        for put, number in batch:
            last[number] = put
    await settle()
    written = disk_bytes("self", "write_bytes") - before
    for number in random.Random(SEED).sample(range(keys), min(CHECKED, keys)):
        if get(key_of(number)) != values.of(last[number]):
            raise WrongAnswerError(f"the value of {key_of(number)!r} is not the one that was put last")
    return Figures(puts * RECORD_BYTES, written, keys * RECORD_BYTES, space.now(), max(space.most, space.now()))


def _batches(keys: int, puts: int) -> Iterator[list[tuple[int, int]]]:
    """Yield every key once, in the order of their numbers, then random ones: the put's number and the key's."""
    chance = random.Random(SEED + 1)
    for first in range(0, puts, BATCH):
        numbers = range(first, min(puts, first + BATCH))
        yield [(put, put if put < keys else chance.randrange(keys)) for put in numbers]


def main() -> None:
    side, directory, *numbers = sys.argv[1:]
    run = {OURS: run_ours, goals.ROCKSDB: run_rocksdb}[side]
    print(json.dumps(trio.run(run, Path(directory), *map(int, numbers))))


if __name__ == "__main__":
    main()
