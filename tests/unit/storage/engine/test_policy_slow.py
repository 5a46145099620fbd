"""Tests that cost seconds; `test_policy.py` has the others."""

from __future__ import annotations

import math

import pytest

from gossipkv.storage.engine import policy
from gossipkv.storage.engine.policy import Compaction, MergeLimits, StoreState, Weight

MIB = 1 << 20
GIB = 1 << 30
MEMTABLE = 64 * MIB
RECORD = 128
LIMITS = MergeLimits()


def weight(size_bytes: int, tombstones: int = 0) -> Weight:
    return Weight(size_bytes, size_bytes // RECORD, tombstones)


# -- a store by its sizes ----------------------------------------------------------------------------------------------

STRETCH = 2 * LIMITS.stretch_bytes


class Simulated:
    """A store of `live` bytes whose keys are overwritten evenly, with flushes and merges that take time.

    One merge runs at a time, and writes `speed` memtables while one fills. Bytes that two runs share are counted
    once.
    """

    def __init__(self, live: int, speed: float) -> None:
        self.live = live
        self.speed = speed
        self.young: list[int] = []
        self.oldest = 0
        self.begun: list[list[Compaction | int]] = []  # The compaction, its result, and the bytes still to write.
        self.written = 0
        self.now = self.free_at = 0.0  # In memtables: when the last one was full, and when the last merge ends.
        self.waited = 0.0  # The longest wait of a writer for a flush.

    def state(self, closed: int = 0) -> StoreState:
        return StoreState(
            closed_segments=1 if closed else 0,
            closed_bytes=closed,
            memtables_full=1 if closed else 0,
            young=tuple(map(weight, self.young)),
            oldest=weight(self.oldest),
            dropped_bytes=0,
            free_bytes=1 << 50,
            begun=self.begun[-1][0] if self.begun else None,
        )

    def union(self, runs: list[int]) -> int:
        """Return the merged size of runs of evenly drawn keys."""
        missing = 1.0
        for run in runs:
            missing *= 1 - min(1.0, run / self.live)
        return round(self.live * (1 - missing))

    def flush(self) -> None:
        """Fill a memtable, and flush it as soon as no stretch is running."""
        filled = self.now + 1 + 99 * policy.load(self.state(), LIMITS) ** 2  # Includes the delay of writers.
        full = max(filled, self.free_at)
        while self.free_at < full and self.step():
            pass
        self.waited = max(self.waited, full - filled)
        self.now = full
        self.free_at = max(self.free_at, full) + 1 / self.speed
        assert policy.is_flush_due(self.state(MEMTABLE), LIMITS)
        run = self.union([MEMTABLE])
        self.young.insert(0, run)
        self.written += run

    def step(self) -> bool:
        chosen = policy.compaction(self.state(), LIMITS)
        if chosen is None:
            return False
        runs = [*self.young, self.oldest]
        last = len(self.young) - chosen.below
        inputs = slice(last - chosen.count, last + 1)
        if not self.begun or self.begun[-1][0] != chosen:
            made = self.union(runs[inputs])
            self.begun.append([chosen, made, made])
        _, made, left = self.begun.pop()
        stretch = min(left, STRETCH)
        self.written += stretch
        self.free_at += stretch / MEMTABLE / self.speed
        if left > stretch:
            self.begun.append([chosen, made, left - stretch])
        else:
            runs[inputs] = [made]
            *self.young, self.oldest = runs
        return True

    def space(self) -> int:
        return sum(self.young) + self.oldest


@pytest.mark.parametrize(("memtables", "most"), [(1, 3.0), (3, 4.0), (10, 4.0), (30, 5.0), (100, 6.0), (1_000, 11.0)])
def test_write_amplification(memtables: int, most: float) -> None:
    """Each byte is written to runs at most `most` times; RocksDB's default exceeds 5 for a store of ten memtables."""
    store = Simulated(memtables * MEMTABLE, speed=math.inf)
    for _ in range(3 * memtables + 20):
        store.flush()
    store.written, count = 0, max(200, memtables)
    for _ in range(count):
        store.flush()
        while store.step():
            pass
        assert not store.begun
        assert len(store.young) <= policy.YOUNG_AIM
        assert store.space() <= 1.5 * store.live + GIB, "at rest"
    assert store.written / count / MEMTABLE <= most


@pytest.mark.parametrize("speed", [3.0, 4.0, 8.0, 20.0])
@pytest.mark.parametrize("memtables", [1, 10, 50, 300, 1_000])
def test_merges_that_take_time_keep_up(memtables: int, speed: float) -> None:
    """A flush waits for one stretch of a compaction, and no writer is refused."""
    store = Simulated(memtables * MEMTABLE, speed)
    for _ in range(3 * memtables + 200):
        store.flush()
        assert len(store.young) < policy.YOUNG_MOST
        assert policy.pressure(store.state(), LIMITS).refusal is None
    assert store.waited <= STRETCH / MEMTABLE / speed + 1
