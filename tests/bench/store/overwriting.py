"""Overwrite records at random, as a process of its own, and say what that wrote to the disk.

    python -m tests.bench.store.overwriting SIDE DIRECTORY MEMTABLE_BYTES KEYS PUTS

Prints one line of JSON.  What was written is the kernel's count of pages made dirty (`write_bytes` of /proc/self/io),
the log's among them, of this process and of the children that it has waited for.  Values cannot be compressed, and each
says which put it was.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import sys
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING, Final, NamedTuple, final

import trio

from gossipkv.errors import Overloaded
from gossipkv.storage.engine.options import Options
from tests.bench.machine import BLOCK_BYTES
from tests.bench.store import ours, rocksdb

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from tests.bench.data import Record

BATCH: Final = 1_000
VALUE_BYTES: Final = 100
KEY_BYTES: Final = 16
SEED: Final = 42
CHECKED: Final = 50_000
FILE_MEMTABLES: Final = 16  # A file of a run ends at 1 GiB by default, a segment at 64 MiB.
SAMPLE_S: Final = 0.02
_STAMP_BYTES: Final = 8
_MULTIPLIER: Final = 0x9E3779B97F4A7C15  # Odd, so a number's product is another's, modulo 2^64.


class Figures(NamedTuple):
    """What came of it, in bytes."""

    put: int  # Keys and values.
    written: int
    live: int  # Keys and values that can still be read.
    resting: int  # Files of records at the end.
    most: int  # The most they took at any time.


def key_of(number: int) -> bytes:
    """The key with a number: neighbours lie far apart."""
    return b"%016x" % (number * _MULTIPLIER % (1 << 64))


@final
class Values:
    """Values of `VALUE_BYTES` each from one pool of noise, stamped with the number of the put."""

    def __init__(self) -> None:
        self._pool = random.Random(SEED).randbytes(1 << 20)

    def of(self, put: int) -> bytes:
        """The value that the put with this number writes."""
        at = put * 7919 % (len(self._pool) - VALUE_BYTES)
        return put.to_bytes(_STAMP_BYTES, "little") + self._pool[at : at + VALUE_BYTES - _STAMP_BYTES]


@final
class Space:
    """What the files of some kind below a directory take, looked at all the time until the block ends."""

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
        """At this moment."""
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


def written_bytes() -> int:
    """By this process and the children it has waited for."""
    lines = Path("/proc/self/io").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("write_bytes"))


async def run_ours(directory: Path, memtable_bytes: int, keys: int, puts: int) -> Figures:
    """Through the Trio shell, as in a node: a child merges."""
    options = Options(segment_bytes=memtable_bytes, table_log=0, file_bytes=FILE_MEMTABLES * memtable_bytes)
    with Space(directory, ".gkv") as space:
        async with ours.shell(directory / "store", options) as store:

            async def write(records: list[Record]) -> None:
                while True:
                    try:
                        return await store.write_batch(records)
                    except Overloaded:  # Merges are behind; the write waited for them as long as it does.
                        pass

            return await _run(write, store.get, store.idle, space, keys=keys, puts=puts)


async def run_rocksdb(directory: Path, memtable_bytes: int, keys: int, puts: int) -> Figures:
    """With its own settings but for the memtable, and the files and levels that follow from it."""
    with Space(directory, ".sst") as space:
        store = rocksdb.RocksStore(directory / "rocksdb", sync=False, compressed=True, memtable_bytes=memtable_bytes)

        async def write(records: list[Record]) -> None:
            store.write_batch(records)

        async def settle() -> None:
            store.settle()

        try:
            return await _run(write, store.get, settle, space, keys=keys, puts=puts)
        finally:
            store.close()


async def _run(
    write: Callable[[list[Record]], Awaitable[None]],
    get: Callable[[bytes], bytes | None],
    settle: Callable[[], Awaitable[None]],
    space: Space,
    *,
    keys: int,
    puts: int,
) -> Figures:
    values, last = Values(), [0] * keys
    before = written_bytes()
    for batch in _batches(keys, puts):
        records = []
        for put, number in batch:
            records.append((key_of(number), values.of(put)))
            last[number] = put
        await write(records)
    await settle()
    written = written_bytes() - before
    for number in random.Random(SEED).sample(range(keys), min(CHECKED, keys)):
        if get(key_of(number)) != values.of(last[number]):
            raise RuntimeError(f"the value of {key_of(number)!r} is not the one that was put last")
    record_bytes = KEY_BYTES + VALUE_BYTES
    return Figures(puts * record_bytes, written, keys * record_bytes, space.now(), max(space.most, space.now()))


def _batches(keys: int, puts: int) -> Iterator[list[tuple[int, int]]]:
    """Every key once, in the order of their numbers, then any of them: the number of the put, and the key's."""
    chance = random.Random(SEED + 1)
    for first in range(0, puts, BATCH):
        numbers = range(first, min(puts, first + BATCH))
        yield [(put, put if put < keys else chance.randrange(keys)) for put in numbers]


def main() -> None:
    """Do it, and say what came of it."""
    side, directory, *numbers = sys.argv[1:]
    run = {ours.NAME: run_ours, rocksdb.NAME: run_rocksdb}[side]
    memtable_bytes, keys, puts = map(int, numbers)
    print(json.dumps(trio.run(run, Path(directory), memtable_bytes, keys, puts)))


if __name__ == "__main__":
    main()
