"""When what is merged: rules that hold for any standing, and stores simulated by their sizes alone."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossipkv.storage.engine import policy
from gossipkv.storage.engine.policy import Compaction, Flush, Limits, Standing, Weight

MIB = 1 << 20
GIB = 1 << 30
MEMTABLE = 64 * MIB
RECORD = 128
LIMITS = Limits()
EASE = Standing(0, 0, 0, (), Weight(0, 0), 0, 100 * GIB)


def weight(size_bytes: int, tombstones: int = 0) -> Weight:
    """A run of records of one size."""
    return Weight(size_bytes, size_bytes // RECORD, tombstones)


sizes = st.integers(1, 40).flatmap(lambda power: st.integers(1, 2**power)).map(weight)


@st.composite
def standings(draw: st.DrawFn) -> Standing:
    """Any standing, also such as no store comes to."""
    young = tuple(draw(st.lists(sizes, max_size=18)))
    flush = draw(st.none() | st.builds(Flush, st.integers(0, len(young))))
    taken = flush.young if flush else 0
    compaction = None
    if taken < len(young) and draw(st.booleans()):
        first = draw(st.integers(taken, len(young) - 1))
        into_oldest = draw(st.booleans())
        count = len(young) - first if into_oldest else draw(st.integers(1, len(young) - first))
        compaction = Compaction(first, count, into_oldest)
    segments = draw(st.integers(0, 6))
    return Standing(
        closed_segments=segments,
        closed_bytes=segments * draw(st.integers(1, MEMTABLE)),
        memtables_full=draw(st.integers(0, 2)),
        young=young,
        oldest=draw(st.just(Weight(0, 0)) | sizes),
        dropped_bytes=draw(st.integers(0, 1 << 40)),
        free_bytes=draw(st.integers(0, 1 << 42)),
        flush=flush,
        compaction=compaction,
    )


@given(standings())
def test_inputs_are_neighbours_of_their_own(standing: Standing) -> None:
    """A compaction takes a stretch of runs that no flush has; into the oldest run it takes all to the end."""
    found = policy.compaction(standing, LIMITS)
    if found is None:
        return
    assert standing.compaction is None
    assert 0 <= found.first <= found.first + found.count <= len(standing.young)
    assert found.first >= (standing.flush.young if standing.flush else 0)
    if found.into_oldest:
        assert found.first + found.count == len(standing.young)
    else:
        assert found.count >= 2


@given(standings())
def test_a_flush_takes_what_no_compaction_has(standing: Standing) -> None:
    """One at a time, of closed segments, and young runs from the newest on up to those that are being merged."""
    found = policy.flush(standing, LIMITS)
    if found is None:
        return
    assert standing.flush is None
    assert standing.closed_segments
    assert 0 <= found.young <= (standing.compaction.first if standing.compaction else 0)


@given(standings())
def test_what_is_begun_has_room(standing: Standing) -> None:
    """With room for its inputs, or for two files into the oldest run, and a margin; with a byte less, nothing is."""
    flush, compaction = policy.flush(standing, LIMITS), policy.compaction(standing, LIMITS)
    if flush is not None:
        needed = policy.flush_bytes(standing, flush) + LIMITS.margin_bytes
        assert needed <= standing.free_bytes
        less = policy.flush(replace(standing, free_bytes=needed - 1), LIMITS)
        assert less is None or less.young < flush.young
    if compaction is not None:
        needed = policy.compaction_bytes(standing, compaction, LIMITS) + LIMITS.margin_bytes
        assert needed <= standing.free_bytes
        assert policy.compaction(replace(standing, free_bytes=needed - 1), LIMITS) is None
        inputs = sum(run.size_bytes for run in standing.young[compaction.first :][: compaction.count])
        if compaction.into_oldest:
            assert needed - LIMITS.margin_bytes == min(inputs + standing.oldest.size_bytes, 2 * LIMITS.file_bytes)
        else:
            assert needed - LIMITS.margin_bytes == inputs


@given(standings())
def test_whoever_is_refused_hears_why(standing: Standing) -> None:
    """Both memtables, young runs or space, with their numbers, and nothing else."""
    told = policy.pressure(standing, LIMITS)
    assert 0 <= told.delay_s <= policy.MOST_DELAY_S
    if standing.memtables_full >= 2:
        assert told.refusal is not None
        assert "both memtables are full" in told.refusal
        assert f"{standing.closed_bytes:,}" in told.refusal
    elif len(standing.young) >= 16:
        assert told.refusal is not None
        assert f"{len(standing.young)} young runs" in told.refusal
    elif told.refusal is not None:
        assert "too little free space" in told.refusal
        assert f"{standing.free_bytes:,}" in told.refusal
        assert policy.pressure(replace(standing, free_bytes=1 << 60), LIMITS).refusal is None, "it ends by itself"


@given(standings(), st.integers(0, 3))
def test_pressure_rises(standing: Standing, more: int) -> None:
    """With each young run and each segment that waits, a writer waits no less, and a merge holds back no more."""
    worse = replace(
        standing,
        young=standing.young + (weight(1),) * more,
        closed_segments=standing.closed_segments + more,
        flush=None,
        compaction=Compaction(0, len(standing.young) + more, into_oldest=True),
    )
    before = replace(worse, young=standing.young, closed_segments=standing.closed_segments)
    before = replace(before, compaction=Compaction(0, len(standing.young), into_oldest=True))
    assert policy.pressure(worse, LIMITS).delay_s >= policy.pressure(before, LIMITS).delay_s
    assert policy.niceness(worse, LIMITS) <= policy.niceness(before, LIMITS)
    paces = [policy.bytes_per_second(one, LIMITS) or 1 << 60 for one in (before, worse)]
    assert paces[0] <= paces[1]


def test_at_ease_nothing_is_held_back() -> None:
    """An empty store, and one with eight small runs that are being merged."""
    eight = replace(EASE, young=(weight(MIB),) * 8, compaction=Compaction(0, 8, into_oldest=False))
    for standing in (EASE, replace(EASE, closed_segments=1, closed_bytes=MEMTABLE, memtables_full=1), eight):
        assert policy.pressure(standing, LIMITS) == policy.Pressure(0.0, None)
        assert policy.niceness(standing, LIMITS) == policy.CALM_NICENESS
        assert policy.bytes_per_second(standing, LIMITS) == policy.CALM_BYTES_PER_S


@pytest.mark.parametrize("young", range(8, 17))
def test_the_delay_between_eight_and_sixteen(young: int) -> None:
    """From none to the most, and in need a merge is not held back."""
    busy = Compaction(0, young, into_oldest=True)
    standing = replace(EASE, young=(weight(MIB),) * young, oldest=weight(GIB), compaction=busy)
    told = policy.pressure(standing, LIMITS)
    assert told.delay_s == pytest.approx(policy.MOST_DELAY_S * ((young - 8) / 8) ** 2)
    assert (told.refusal is None) == (young < 16)
    assert (policy.bytes_per_second(standing, LIMITS) == 0) == (young >= 14)


def test_a_full_disk() -> None:
    """Before there is too little space writers wait; then they are refused, and nothing is begun."""
    standing = replace(
        EASE, closed_segments=1, closed_bytes=MEMTABLE, young=(weight(GIB),) * 8, oldest=weight(64 * GIB)
    )
    found = policy.compaction(standing, LIMITS)
    assert found is not None
    needed = policy.compaction_bytes(standing, found, LIMITS) + LIMITS.margin_bytes
    tight = replace(standing, free_bytes=needed + needed // 2)
    assert 0 < policy.pressure(tight, LIMITS).delay_s < policy.MOST_DELAY_S
    full = replace(standing, free_bytes=needed - 1)
    assert policy.compaction(full, LIMITS) is None
    refusal = policy.pressure(full, LIMITS).refusal
    assert refusal == f"too little free space: a merge needs {needed:,} bytes, and the disk has {needed - 1:,}"


@pytest.mark.parametrize(
    ("standing", "due"),
    [
        (replace(EASE, oldest=weight(GIB), young=(weight(GIB // 2),)), True),
        (replace(EASE, oldest=weight(GIB), young=(weight(GIB // 2 - RECORD),)), False),
        (replace(EASE, oldest=weight(GIB), dropped_bytes=GIB // 2), True),
        (replace(EASE, oldest=weight(GIB), dropped_bytes=GIB // 4, young=(weight(GIB // 4),)), True),
        (replace(EASE, oldest=weight(GIB), young=(Weight(MIB, 1, GIB // RECORD // 2),)), True),
        (replace(EASE, oldest=weight(GIB), young=(Weight(MIB, 1, GIB // RECORD // 4),)), False),
        (replace(EASE, young=(weight(GIB),) * 7), False),
        (replace(EASE, young=(weight(GIB),) * 8), True),
    ],
    ids=["half", "less", "dropped", "both", "hidden", "hidden less", "no oldest", "no oldest, eight"],
)
def test_into_the_oldest_run(standing: Standing, *, due: bool) -> None:
    """When young runs, what they hide and what was dropped are half of it: all young runs that there are."""
    wanted = Compaction(0, len(standing.young), into_oldest=True)
    assert (policy.compaction(standing, LIMITS) == wanted) == due


def test_the_cheapest_neighbours() -> None:
    """Small runs between large ones are merged, and the large ones left alone."""
    large, small = weight(GIB), weight(MIB)
    young = (large, large, small, small, small, large, large, large)
    standing = replace(EASE, oldest=weight(100 * GIB), young=young)
    assert policy.compaction(standing, LIMITS) == Compaction(2, 3, into_oldest=False)
    assert policy.compaction(replace(standing, flush=Flush(4)), LIMITS) == Compaction(4, 4, into_oldest=False)
    assert policy.compaction(replace(standing, young=young[:7]), LIMITS) is None


# -- a store by its sizes ----------------------------------------------------------------------------------------------


class Simulated:
    """A store of `live` bytes whose keys are overwritten evenly: flushes come, and merges take their time.

    A compaction writes `speed` bytes while a memtable fills.  Of two runs, what they both have is counted once.
    """

    def __init__(self, live: int, speed: float) -> None:
        self.live = live
        self.speed = speed
        self.young: list[int] = []
        self.oldest = 0
        self.running: tuple[Compaction, int, float] | None = None  # With what it makes, and what it has yet to write.
        self.written = 0
        self.flushed = 0
        self.most_young = 0

    def standing(self, closed: int) -> Standing:
        """As the policy sees it."""
        return Standing(
            closed_segments=1 if closed else 0,
            closed_bytes=closed,
            memtables_full=1 if closed else 0,
            young=tuple(map(weight, self.young)),
            oldest=weight(self.oldest),
            dropped_bytes=0,
            free_bytes=1 << 50,
            compaction=self.running[0] if self.running else None,
        )

    def union(self, runs: list[int]) -> int:
        """What runs of evenly drawn keys come to together."""
        missing = 1.0
        for run in runs:
            missing *= 1 - min(1.0, run / self.live)
        return round(self.live * (1 - missing))

    def flush(self, size: int) -> None:
        """A memtable is full."""
        found = policy.flush(self.standing(size), LIMITS)
        assert found is not None
        run = self.union([size, *self.young[: found.young]])
        self.young[: found.young] = [run]
        self.written += run
        self.flushed += size
        if self.running:
            compaction, made, left = self.running
            self.running = (replace(compaction, first=compaction.first + 1 - found.young), made, left - self.speed)
        self.step()
        self.most_young = max(self.most_young, len(self.young))

    def step(self) -> None:
        """A compaction ends, and the next may begin."""
        while True:
            if self.running:
                compaction, made, left = self.running
                if left > 0:
                    return
                stretch = slice(compaction.first, compaction.first + compaction.count)
                self.young[stretch] = [] if compaction.into_oldest else [made]
                self.oldest = made if compaction.into_oldest else self.oldest
                self.written += made
                self.running = None
            compaction = policy.compaction(self.standing(0), LIMITS)
            if compaction is None:
                return
            inputs = self.young[compaction.first : compaction.first + compaction.count]
            made = self.union([*inputs, self.oldest] if compaction.into_oldest else inputs)
            self.running = (compaction, made, made if self.speed < math.inf else 0)

    def space(self) -> int:
        """What its runs take."""
        return sum(self.young) + self.oldest


@pytest.mark.parametrize(("memtables", "most"), [(1, 3.0), (3, 4.0), (10, 4.0), (30, 5.0), (100, 6.0), (1_000, 11.0)])
def test_write_amplification(memtables: int, most: float) -> None:
    """How often a byte is written to runs, of a store so many memtables large; RocksDB's default, for ten: over 5."""
    store = Simulated(memtables * MEMTABLE, speed=math.inf)
    for _ in range(3 * memtables + 20):
        store.flush(MEMTABLE)
    store.written = store.flushed = 0
    for _ in range(max(200, memtables)):
        store.flush(MEMTABLE)
        assert store.running is None
        assert len(store.young) <= policy.YOUNG_AIM
        assert store.space() <= 1.5 * store.live + GIB, "at rest"
    assert store.written / store.flushed <= most


@pytest.mark.parametrize("speed", [3.0, 4.0, 8.0, 20.0])
@pytest.mark.parametrize("memtables", [1, 10, 50, 300, 3_000])
def test_merges_that_take_time_keep_up(memtables: int, speed: float) -> None:
    """A compaction that is slow does not hold up flushes: they take young runs along, and no writer is refused."""
    store = Simulated(memtables * MEMTABLE, speed * MEMTABLE)
    for _ in range(3 * memtables + 200):
        store.flush(MEMTABLE)
        assert len(store.young) < policy.YOUNG_MOST
        assert policy.pressure(store.standing(0), LIMITS).refusal is None
    assert store.most_young >= 2 or memtables < 4


def test_a_flush_never_gives_way() -> None:
    """Writers may wait for it; a compaction gives way while the store is at ease, and not when it is behind."""
    at_ease = Standing(0, 0, 0, (), weight(1), 0, 1 << 60)
    behind = replace(at_ease, young=(weight(1),) * policy.YOUNG_MOST)
    assert not policy.manner(at_ease, Limits(), is_flush=True).gives_way
    assert policy.manner(at_ease, Limits(), is_flush=False).gives_way
    assert policy.manner(behind, Limits(), is_flush=False) == policy.Manner(gives_way=False, bytes_per_second=0)
