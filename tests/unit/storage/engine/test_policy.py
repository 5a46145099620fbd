"""When what is merged: rules that hold for any state, and stores simulated by their sizes alone."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossipkv.storage.engine import policy
from gossipkv.storage.engine.policy import Compaction, Limits, StoreState, Weight

MIB = 1 << 20
GIB = 1 << 30
MEMTABLE = 64 * MIB
RECORD = 128
LIMITS = Limits()
EASE = StoreState(0, 0, 0, (), Weight(0, 0), 0, 100 * GIB)


def weight(size_bytes: int, tombstones: int = 0) -> Weight:
    """A run of records of one size."""
    return Weight(size_bytes, size_bytes // RECORD, tombstones)


sizes = st.integers(1, 40).flatmap(lambda power: st.integers(1, 2**power)).map(weight)


@st.composite
def standings(draw: st.DrawFn) -> StoreState:
    """Any state, also such as no store comes to."""
    young = tuple(draw(st.lists(sizes, max_size=18)))
    begun = None
    if draw(st.booleans()):
        below = draw(st.integers(0, max(0, len(young) - 1)))
        begun = Compaction(below, draw(st.integers(min(below, 1), len(young) - below)))
    segments = draw(st.integers(0, 6))
    return StoreState(
        closed_segments=segments,
        closed_bytes=segments * draw(st.integers(1, MEMTABLE)),
        memtables_full=draw(st.integers(0, 2)),
        young=young,
        oldest=draw(st.just(Weight(0, 0)) | sizes),
        dropped_bytes=draw(st.integers(0, 1 << 40)),
        free_bytes=draw(st.integers(0, 1 << 42)),
        begun=begun,
    )


@given(standings())
def test_inputs_are_neighbours(state: StoreState) -> None:
    """A compaction is of runs that are there: what is begun, or newer ones, or all of them; or a purge, of each."""
    found = policy.compaction(state, LIMITS)
    if found is None or found == state.begun:
        return
    if found == Compaction(len(state.young), 0):
        return
    assert found.below >= 0
    assert found.below + found.count <= len(state.young)
    if state.begun is not None:
        assert len(state.young) >= policy.YOUNG_WAITING
        assert found.below > state.begun.below + state.begun.count
    if found.below:
        assert found.count >= 1
    else:
        assert found.count == len(state.young)


@given(standings())
def test_what_is_begun_has_room(state: StoreState) -> None:
    """With room for its inputs, or for two files, and a margin; into the margin only what gives room back."""
    for waits in (False, True):
        due = state.closed_bytes + (0 if waits else LIMITS.margin_bytes) <= state.free_bytes
        assert policy.is_flush_due(replace(state, deletes_wait=waits), LIMITS) == (state.closed_segments > 0 and due)
    compaction = policy.compaction(state, LIMITS)
    if compaction is None:
        return
    needed = policy.compaction_bytes(state, compaction, LIMITS)
    last = len(state.young) - compaction.below
    inputs = sum(run.size_bytes for run in state.runs[last - compaction.count : last + 1])
    assert needed == min(inputs, 2 * LIMITS.file_bytes)
    assert needed <= state.free_bytes
    if needed + LIMITS.margin_bytes > state.free_bytes:
        assert policy.is_scarce(state, LIMITS)
        assert not compaction.count or compaction == state.begun, "a purge, or the rest of what is begun"
    plain = replace(state, dropped_bytes=0, begun=None, young=tuple(run._replace(tombstones=0) for run in state.young))
    assert policy.compaction(replace(plain, free_bytes=LIMITS.margin_bytes), LIMITS) is None


@given(standings())
def test_whoever_is_refused_hears_why(state: StoreState) -> None:
    """Both memtables, young runs or space, with their numbers, and nothing else."""
    told = policy.pressure(state, LIMITS)
    assert 0 <= told.delay_s <= policy.MOST_DELAY_S
    if state.memtables_full >= 2:
        assert told.refusal is not None
        assert "both memtables are full" in told.refusal
        assert f"{state.closed_bytes:,}" in told.refusal
    elif len(state.young) >= 16:
        assert told.refusal is not None
        assert f"{len(state.young)} young runs" in told.refusal
    elif told.refusal is not None:
        assert "too little free space" in told.refusal
        assert f"{state.free_bytes:,}" in told.refusal
        assert policy.pressure(replace(state, free_bytes=1 << 60), LIMITS).refusal is None, "it ends by itself"


@given(standings(), st.integers(0, 3))
def test_pressure_rises(state: StoreState, more: int) -> None:
    """With each young run and each segment that waits, a writer waits no less, and a merge holds back no more."""
    worse = replace(
        state,
        young=state.young + (weight(1),) * more,
        closed_segments=state.closed_segments + more,
        is_merging=True,
    )
    before = replace(worse, young=state.young, closed_segments=state.closed_segments)
    assert policy.pressure(worse, LIMITS).delay_s >= policy.pressure(before, LIMITS).delay_s
    manners = [policy.manner(one, LIMITS, is_flush=False) for one in (before, worse)]
    assert manners[0].gives_way or not manners[1].gives_way
    paces = [one.bytes_per_second or 1 << 60 for one in manners]
    assert paces[0] <= paces[1]


def test_at_ease_nothing_is_held_back() -> None:
    """An empty store, and one with eight small runs that are being merged."""
    eight = replace(EASE, young=(weight(MIB),) * 8, is_merging=True)
    for state in (EASE, replace(EASE, closed_segments=1, closed_bytes=MEMTABLE, memtables_full=1), eight):
        assert policy.pressure(state, LIMITS) == policy.Pressure(0.0, None)
        assert policy.manner(state, LIMITS, is_flush=False) == policy.Manner(
            gives_way=True, bytes_per_second=policy.CALM_BYTES_PER_S
        )


@pytest.mark.parametrize("young", range(8, 17))
def test_the_delay_between_eight_and_sixteen(young: int) -> None:
    """From none to the most, and in need a merge is not held back."""
    state = replace(EASE, young=(weight(MIB),) * young, oldest=weight(GIB), is_merging=True)
    told = policy.pressure(state, LIMITS)
    assert told.delay_s == pytest.approx(policy.MOST_DELAY_S * ((young - 8) / 8) ** 2)
    assert (told.refusal is None) == (young < 16)
    assert (policy.manner(state, LIMITS, is_flush=True).bytes_per_second == 0) == (young >= 14)


def test_a_full_disk() -> None:
    """Before there is too little space writers wait; then they are refused, and nothing is begun."""
    state = replace(EASE, closed_segments=1, closed_bytes=MEMTABLE, young=(weight(GIB),) * 8, oldest=weight(64 * GIB))
    found = policy.compaction(state, LIMITS)
    assert found is not None
    needed = policy.compaction_bytes(state, found, LIMITS) + LIMITS.margin_bytes
    tight = replace(state, free_bytes=needed + needed // 2)
    assert 0 < policy.pressure(tight, LIMITS).delay_s < policy.MOST_DELAY_S
    full = replace(state, free_bytes=needed - 1)
    assert policy.compaction(full, LIMITS) is None
    refusal = policy.pressure(full, LIMITS).refusal
    assert refusal == f"too little free space: a merge needs {needed:,} bytes, and the disk has {needed - 1:,}"


def test_what_gives_room_back() -> None:
    """Where room is scarce: a purge of each run, whatever is begun, of dropped spaces and what tombstones hide."""
    begun, tombstones = Compaction(0, 2), policy.Limits().file_bytes // RECORD
    full = replace(EASE, oldest=weight(64 * GIB), young=(weight(GIB),) * 2, free_bytes=LIMITS.margin_bytes - 1)
    full = replace(full, begun=begun)
    assert policy.compaction(full, LIMITS) == begun, "it leaves a purge its room"
    full = replace(full, free_bytes=4 * LIMITS.file_bytes - 1)
    assert policy.compaction(full, LIMITS) is None
    assert policy.compaction(replace(full, dropped_bytes=1), LIMITS) == Compaction(2, 0)
    assert policy.compaction(replace(full, begun=Compaction(1, 0)), LIMITS) == Compaction(1, 0), "it goes on"
    some = replace(full, young=(weight(GIB, tombstones // 2), weight(GIB)))
    assert policy.compaction(some, LIMITS) is None
    more = replace(full, young=(weight(GIB, tombstones), weight(GIB)))
    assert policy.compaction(more, LIMITS) == Compaction(2, 0)
    assert policy.compaction(replace(more, purged=tombstones), LIMITS) is None, "those have been counted"
    assert policy.compaction(replace(more, free_bytes=2 * LIMITS.file_bytes - 1), LIMITS) is None


def test_a_stretch_is_as_long_as_the_room_allows() -> None:
    """Beside the margin, up to what is set; where there is no room, a file."""
    for free, long in ((0, 0), (400 * MIB, 0), (748 * MIB, 300 * MIB), (100 * GIB, GIB)):
        found = policy.stretch_bytes(replace(EASE, free_bytes=free), LIMITS)
        assert found == max(long, LIMITS.file_bytes)


@pytest.mark.parametrize(
    ("state", "due"),
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
def test_into_the_oldest_run(state: StoreState, *, due: bool) -> None:
    """When young runs, what they hide and what was dropped are half of it: all young runs that there are."""
    wanted = Compaction(0, len(state.young))
    assert (policy.compaction(state, LIMITS) == wanted) == due


def test_the_cheapest_neighbours() -> None:
    """Small runs between large ones are merged, and the large ones left alone."""
    large, small = weight(GIB), weight(MIB)
    young = (large, large, small, small, small, large, large, large)
    state = replace(EASE, oldest=weight(100 * GIB), young=young)
    assert policy.compaction(state, LIMITS) == Compaction(4, 2)
    assert policy.compaction(replace(state, young=young[:7]), LIMITS) is None


def test_what_is_begun_goes_on() -> None:
    """Whatever has become due; but with twelve young runs those that came since are merged before it."""
    begun = Compaction(0, 8)
    state = replace(EASE, oldest=weight(GIB), young=(weight(MIB),) * 2 + (weight(GIB),) * 8, begun=begun)
    assert policy.compaction(state, LIMITS) == begun
    more = replace(state, young=(weight(MIB),) * 4 + (weight(GIB),) * 8)
    assert policy.compaction(more, LIMITS) == Compaction(9, 3)
    assert policy.compaction(replace(more, begun=Compaction(9, 3)), LIMITS) == Compaction(9, 3)


# -- a store by its sizes ----------------------------------------------------------------------------------------------

STRETCH = 2 * LIMITS.stretch_bytes


class Simulated:
    """A store of `live` bytes whose keys are overwritten evenly: flushes come, and merges take their time.

    One merge is under way at a time, and writes `speed` memtables while one fills.  Of two runs, what they both have is
    counted once.
    """

    def __init__(self, live: int, speed: float) -> None:
        self.live = live
        self.speed = speed
        self.young: list[int] = []
        self.oldest = 0
        self.begun: list[list[Compaction | int]] = []  # What it is, what it makes, and what of that is to be written.
        self.written = 0
        self.now = self.free_at = 0.0  # In memtables: when one was full, and when no merge is under way.
        self.waited = 0.0  # The longest that a writer waited for a flush.

    def state(self, closed: int = 0) -> StoreState:
        """As the policy sees it."""
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
        """What runs of evenly drawn keys come to together."""
        missing = 1.0
        for run in runs:
            missing *= 1 - min(1.0, run / self.live)
        return round(self.live * (1 - missing))

    def flush(self) -> None:
        """A memtable is full, and flushed as soon as no stretch is under way."""
        filled = self.now + 1 + 99 * policy.load(self.state(), LIMITS) ** 2  # As writers are slowed.
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
        """Merge a stretch, if anything is due."""
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
        """What its runs take."""
        return sum(self.young) + self.oldest


@pytest.mark.parametrize(("memtables", "most"), [(1, 3.0), (3, 4.0), (10, 4.0), (30, 5.0), (100, 6.0), (1_000, 11.0)])
def test_write_amplification(memtables: int, most: float) -> None:
    """How often a byte is written to runs, of a store so many memtables large; RocksDB's default, for ten: over 5."""
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
    """However long a compaction is, a flush waits for a stretch of it, and no writer is refused."""
    store = Simulated(memtables * MEMTABLE, speed)
    for _ in range(3 * memtables + 200):
        store.flush()
        assert len(store.young) < policy.YOUNG_MOST
        assert policy.pressure(store.state(), LIMITS).refusal is None
    assert store.waited <= STRETCH / MEMTABLE / speed + 1


def test_a_flush_never_gives_way() -> None:
    """Writers may wait for it; a compaction gives way while the store is at ease, and not when it is behind."""
    at_ease = StoreState(0, 0, 0, (), weight(1), 0, 1 << 60)
    behind = replace(at_ease, young=(weight(1),) * policy.YOUNG_MOST)
    assert not policy.manner(at_ease, Limits(), is_flush=True).gives_way
    assert policy.manner(at_ease, Limits(), is_flush=False).gives_way
    assert policy.manner(behind, Limits(), is_flush=False) == policy.Manner(gives_way=False, bytes_per_second=0)
