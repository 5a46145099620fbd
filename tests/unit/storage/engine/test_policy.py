"""The choice of merges: rules that hold for any state, and stores simulated by their sizes alone."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossipkv.storage.engine import policy
from gossipkv.storage.engine.policy import Compaction, MergeLimits, StoreState, Weight

MIB = 1 << 20
GIB = 1 << 30
MEMTABLE = 64 * MIB
RECORD = 128
LIMITS = MergeLimits()
EASE = StoreState(0, 0, 0, (), Weight(0, 0), 0, 100 * GIB)


def weight(size_bytes: int, tombstones: int = 0) -> Weight:
    return Weight(size_bytes, size_bytes // RECORD, tombstones)


sizes = st.tuples(st.integers(1, 40).flatmap(lambda power: st.integers(1, 2**power)), st.booleans()).map(
    lambda drawn: weight(drawn[0])._replace(is_stale=drawn[1])
)


@st.composite
def standings(draw: st.DrawFn) -> StoreState:
    """Draw any state, even one that no store reaches."""
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
    """A compaction continues the begun one, or takes newer runs, or all young runs; a purge takes every run.

    A sweep takes a stale run.
    """
    found = policy.compaction(state, LIMITS)
    if found is None or found == state.begun:
        return
    if found == Compaction(len(state.young), 0):
        return
    if found.sweeps:
        assert not found.count
        assert state.begun is None
        assert state.runs[len(state.young) - found.below].is_stale
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
    """Work needs room for its inputs, or for two files, and a margin; only work that frees room may use the margin."""
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
    *young, oldest = (run._replace(tombstones=0, is_stale=False) for run in state.runs)
    plain = replace(state, dropped_bytes=0, begun=None, young=tuple(young), oldest=oldest)
    assert policy.compaction(replace(plain, free_bytes=LIMITS.margin_bytes), LIMITS) is None


@given(standings())
def test_whoever_is_refused_hears_why(state: StoreState) -> None:
    """The reason is space, full memtables or young runs, with the numbers."""
    told = policy.pressure(state, LIMITS)
    assert 0 <= told.delay_s <= policy.MAX_DELAY_S
    if policy.is_scarce(state, LIMITS):
        assert told.refusal is not None
        assert "too little free space" in told.refusal
        assert f"{state.free_bytes:,}" in told.refusal
    elif state.memtables_full >= 2:
        assert told.refusal is not None
        assert "both memtables are full" in told.refusal
        assert f"{state.closed_bytes:,}" in told.refusal
    elif len(state.young) >= 16:
        assert told.refusal is not None
        assert f"{len(state.young)} young runs" in told.refusal
    else:
        assert told.refusal is None


@given(standings(), st.integers(0, 3))
def test_pressure_rises(state: StoreState, more: int) -> None:
    """With more young runs and closed segments, writers wait no less, and merges are not held back more."""
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
    """The states are an empty store, a full memtable, and eight small runs in a merge."""
    eight = replace(EASE, young=(weight(MIB),) * 8, is_merging=True)
    for state in (EASE, replace(EASE, closed_segments=1, closed_bytes=MEMTABLE, memtables_full=1), eight):
        assert policy.pressure(state, LIMITS) == policy.Pressure(0.0, None)
        assert policy.manner(state, LIMITS, is_flush=False) == policy.Manner(
            gives_way=True, bytes_per_second=policy.CALM_BYTES_PER_S
        )


@pytest.mark.parametrize("young", range(8, 17))
def test_the_delay_between_eight_and_sixteen(young: int) -> None:
    """The delay rises from zero to its maximum, and an urgent merge runs at full speed."""
    state = replace(EASE, young=(weight(MIB),) * young, oldest=weight(GIB), is_merging=True)
    told = policy.pressure(state, LIMITS)
    assert told.delay_s == pytest.approx(policy.MAX_DELAY_S * ((young - 8) / 8) ** 2)
    assert (told.refusal is None) == (young < 16)
    assert (policy.manner(state, LIMITS, is_flush=True).bytes_per_second == 0) == (young >= 14)


def test_a_full_disk() -> None:
    """Writers wait before space is too low; then they are refused, and no merge begins."""
    state = replace(EASE, closed_segments=1, closed_bytes=MEMTABLE, young=(weight(GIB),) * 8, oldest=weight(64 * GIB))
    found = policy.compaction(state, LIMITS)
    assert found is not None
    needed = policy.compaction_bytes(state, found, LIMITS) + LIMITS.margin_bytes
    tight = replace(state, free_bytes=needed + needed // 2)
    assert 0 < policy.pressure(tight, LIMITS).delay_s < policy.MAX_DELAY_S
    full = replace(state, free_bytes=needed - 1)
    assert policy.compaction(full, LIMITS) is None
    refusal = policy.pressure(full, LIMITS).refusal
    assert refusal == (
        f"too little free space: a merge needs {needed:,} bytes, and the disk has {needed - 1:,}: "
        "free disk space, drop a table, or delete records"
    )


def test_what_gives_room_back() -> None:
    """On a nearly full disk each run is purged of dropped spaces and hidden records, even during a compaction."""
    begun, tombstones = Compaction(0, 2), policy.MergeLimits().file_bytes // RECORD
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
    """A stretch may use the free space beyond the margin, up to the limit, and at least a file."""
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
    """All young runs are merged once young, hidden and dropped bytes are half of the oldest run."""
    wanted = Compaction(0, len(state.young))
    assert (policy.compaction(state, LIMITS) == wanted) == due


def test_stale_runs() -> None:
    """A stale run is swept, the oldest one first, unless other work is due; room that is scarce makes it a purge."""
    plain, stale = weight(MIB), weight(MIB)._replace(is_stale=True)
    state = replace(EASE, oldest=weight(GIB), young=(plain, stale, plain))
    assert policy.compaction(state, LIMITS) == Compaction(2, 0, sweeps=True)
    old = replace(state, oldest=weight(GIB)._replace(is_stale=True))
    assert policy.compaction(old, LIMITS) == Compaction(0, 0, sweeps=True)
    assert policy.compaction(replace(state, begun=Compaction(0, 3)), LIMITS) == Compaction(0, 3)
    assert policy.compaction(replace(state, young=(stale,) * 8), LIMITS) == Compaction(1, 7), "there are too many runs"
    assert policy.compaction(replace(state, free_bytes=LIMITS.margin_bytes - 1), LIMITS) == Compaction(3, 0)
    assert policy.compaction(replace(state, oldest=Weight(0, 0)), LIMITS) == Compaction(0, 3), "it is made first"
    rests = replace(EASE, young=(weight(MIB, MIB // RECORD // 2 + 1),))
    assert policy.compaction(rests, LIMITS) == Compaction(0, 1), "tombstones hide nothing any more"


def test_the_cheapest_neighbours() -> None:
    """Small runs between large ones are merged, and the large ones left alone."""
    large, small = weight(GIB), weight(MIB)
    young = (large, large, small, small, small, large, large, large)
    state = replace(EASE, oldest=weight(100 * GIB), young=young)
    assert policy.compaction(state, LIMITS) == Compaction(4, 2)
    assert policy.compaction(replace(state, young=young[:7]), LIMITS) is None


def test_what_is_begun_goes_on() -> None:
    """A compaction continues whatever becomes due; with twelve young runs, newer runs are merged first."""
    begun = Compaction(0, 8)
    state = replace(EASE, oldest=weight(GIB), young=(weight(MIB),) * 2 + (weight(GIB),) * 8, begun=begun)
    assert policy.compaction(state, LIMITS) == begun
    more = replace(state, young=(weight(MIB),) * 4 + (weight(GIB),) * 8)
    assert policy.compaction(more, LIMITS) == Compaction(9, 3)
    assert policy.compaction(replace(more, begun=Compaction(9, 3)), LIMITS) == Compaction(9, 3)


def test_a_flush_never_gives_way() -> None:
    """Writers may wait for a flush; a compaction yields only while the store keeps up."""
    at_ease = StoreState(0, 0, 0, (), weight(1), 0, 1 << 60)
    behind = replace(at_ease, young=(weight(1),) * policy.YOUNG_MOST)
    assert not policy.manner(at_ease, MergeLimits(), is_flush=True).gives_way
    assert policy.manner(at_ease, MergeLimits(), is_flush=False).gives_way
    assert policy.manner(behind, MergeLimits(), is_flush=False) == policy.Manner(gives_way=False, bytes_per_second=0)
