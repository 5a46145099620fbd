"""Write records without end through the Trio shell.

    python -m tests.bench.store.filling DIRECTORY BYTES SEGMENT_BYTES

Sixty-four tasks write batches of a hundred records of a kibibyte in any order of keys; what is refused is tried again.
Prints one line of JSON.
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path
from time import perf_counter
from typing import Final, final

import trio

from gossipkv.errors import Overloaded
from gossipkv.storage.engine.options import Options
from tests.bench.store import ours
from tests.bench.store.overwriting import key_of

WRITERS: Final = 64
BATCH: Final = 100
VALUE_BYTES: Final = 1008
RECORD_BYTES: Final = 16 + VALUE_BYTES
PAUSE_S: Final = 0.01
CHECKED: Final = 1_000


@final
class Filling:
    """What is left to be written, and what came of it."""

    def __init__(self, store: ours.Shell, written_bytes: int) -> None:
        self._store = store
        self._left = written_bytes // RECORD_BYTES
        self._next = 0
        self._noise = random.Random(0).randbytes(1 << 20)
        self.refused = 0

    def value_of(self, number: int) -> bytes:
        """The value of a key, by its number."""
        at = number * 7919 % (len(self._noise) - VALUE_BYTES)
        return self._noise[at : at + VALUE_BYTES]

    async def write(self) -> None:
        """Batches, until there are enough."""
        while self._next < self._left:
            first, self._next = self._next, self._next + BATCH
            records = [(key_of(number), self.value_of(number)) for number in range(first, first + BATCH)]
            while True:
                try:
                    await self._store.write_batch(records)
                except Overloaded:
                    self.refused += 1
                    await trio.sleep(PAUSE_S)
                else:
                    break

    def check(self) -> None:
        """Some of all that was written."""
        for number in random.Random(0).choices(range(self._next), k=CHECKED):
            if self._store.get(key_of(number)) != self.value_of(number):
                raise RuntimeError(f"a wrong value of {key_of(number)!r}")


async def fill(directory: Path, written_bytes: int, segment_bytes: int) -> None:
    """Write, look, and tell."""
    options = Options(segment_bytes=segment_bytes)
    begin = perf_counter()
    async with ours.shell(directory, options) as store:
        filling = Filling(store, written_bytes)
        async with trio.open_nursery() as nursery:
            for _ in range(WRITERS):
                nursery.start_soon(filling.write)
        seconds = perf_counter() - begin
        filling.check()
    told = {"seconds": seconds, "refused": filling.refused}
    told |= {"memtables_bytes": ours.MEMTABLES * options.memtable_bytes, "budget_bytes": options.merge_memory}
    print(json.dumps(told))


if __name__ == "__main__":
    trio.run(fill, Path(sys.argv[1]), *map(int, sys.argv[2:]))
