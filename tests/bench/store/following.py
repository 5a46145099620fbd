"""The rows about following the log: two followers one batch apart, and one that is far behind.

The store is open under Trio, as in a node, and the followers' cursors are read one after the other.  A round: the later
one reads up to the last batch, another batch is written, the earlier one reads that.  Processor time is the process's,
worker threads included.  For the row of memory one cursor goes over all of a log that is at rest; anonymous memory is
looked at all the time, and counted is what it took beyond what was there before.
"""

from __future__ import annotations

import os
from functools import partial
from statistics import median
from time import process_time_ns
from typing import TYPE_CHECKING

import trio

from gossipkv.storage.engine.options import Options
from tests.bench import data, goals, machine
from tests.bench.measurement import WrongAnswerError
from tests.bench.processes import anonymous_bytes
from tests.bench.store import ours

if TYPE_CHECKING:
    from gossipkv.storage.engine.log_reader import Cursor
    from tests.bench.measurement import Bench

MIB = 1 << 20
VALUE_BYTES = 1008
RECORD_BYTES = data.KEY_BYTES + VALUE_BYTES
BATCH = 100
LOOKS_EACH = 50  # Slices between two looks at the memory.


def measure(
    bench: Bench,
    *,
    before_bytes: int = 32 * MIB,
    log_bytes: int = 1024 * MIB,
    segment_bytes: int = 64 * MIB,
    turns: int = 200,
    rounds: int = 9,
) -> None:
    """Both rows."""
    options = Options(segment_bytes=segment_bytes, table_log=2 * log_bytes)
    trio.run(partial(_measure, bench, options, before_bytes, log_bytes, turns=turns, rounds=rounds))


async def _measure(
    bench: Bench, options: Options, before_bytes: int, log_bytes: int, *, turns: int, rounds: int
) -> None:
    async with ours.shell(bench.directory / "store", options) as shell:
        following = _Following(shell)
        await following.fill(before_bytes)
        with machine.uncollected():
            for _ in range(rounds):
                bench.add(goals.STORE_FOLLOWERS, await following.two(turns))
        bench.notes.append(f"Following: {before_bytes // MIB} MiB in the segment, {rounds} rounds of {turns} batches")
        await following.fill(log_bytes - before_bytes)
        await shell.idle()
        bench.add(goals.STORE_FOLLOWER_MEMORY, await following.memory_of_one() / MIB)


class _Following:
    """A store that is written, and who follows its log."""

    def __init__(self, shell: ours.Shell) -> None:
        self._shell, self._store = shell, shell.store
        self._values, self._count = data.Noise(VALUE_BYTES), 0

    async def _write(self, count: int) -> None:
        numbers = range(self._count, self._count + count)
        await self._shell.write_batch([(data.key_of(number), self._values.of(number)) for number in numbers])
        self._count += count

    async def fill(self, size_bytes: int) -> None:
        """Write so many bytes."""
        for _ in range(0, size_bytes, BATCH * RECORD_BYTES):
            await self._write(BATCH)

    async def two(self, turns: int) -> float:
        """Microseconds that two take of a round."""
        at = self._store.engine.synced_position
        earlier, later = (self._store.follow({self._shell.space}, at) for _ in range(2))
        await self._write(1)
        await self._read(earlier, 1)
        taken_ns = []
        for _ in range(turns):
            begin_ns = process_time_ns()
            await self._read(later, 1)
            later_ns = process_time_ns() - begin_ns
            await self._write(1)
            begin_ns = process_time_ns()
            await self._read(earlier, 1)
            taken_ns.append(later_ns + process_time_ns() - begin_ns)
        return median(taken_ns) / 1e3

    async def _read(self, cursor: Cursor, count: int) -> None:
        batches, _ = await self._store.read_log(cursor)
        if len(batches) != count:
            raise WrongAnswerError(f"{len(batches)} batches where {count} were written")

    async def memory_of_one(self) -> int:
        """Bytes that one takes who reads all of the log."""
        cursor, read, slices = self._store.follow({self._shell.space}, self._store.engine.log_floor), 0, 0
        before = most = anonymous_bytes(os.getpid())
        position = None
        while position != cursor.position:
            position = cursor.position
            batches, _ = await self._store.read_log(cursor)
            read += sum(len(operations) for _, operations in batches)
            slices += 1
            if slices % LOOKS_EACH == 0:
                most = max(most, anonymous_bytes(os.getpid()))
        if read < self._count:
            raise WrongAnswerError(f"{read:,} records in the log, and {self._count:,} were written")
        return most - before
