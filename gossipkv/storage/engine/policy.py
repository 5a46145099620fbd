"""When segments and runs are merged, which of them, and how writers are held back meanwhile: functions of sizes alone.

One merge is under way at a time.  A flush makes one young run of the closed segments.  A compaction merges runs that
neighbour each other in age into the oldest of them, stretch by stretch, and between two stretches a flush goes first:
so a flush waits for a file or two, whatever the size of the store.

* Into the oldest run, once what the young ones have and hide is half as large: so the store has at most half as much
  again as what lives, and a byte is written two to three times after its flush, whatever the store's size.
* Else, with eight young runs, those neighbours whose merge costs the least for each run that it gets rid of: it merges
  runs of a like size, and so in tiers, without any being kept.
* A compaction that is begun goes on until it is done, but with twelve young runs those that came since go first: it may
  be long, and they would become too many.

Beside what a merge needs a margin is left free, and most of it kept as a file, the *reserve*: else whoever else writes
to the disk would fill it, and nothing could be done that gives room back.  Where less is free the store is *scarce*:
only batches are taken that free room, as their makers say, and these merges may use the margin:

* a flush that deletes wait for;
* a *purge*, run by run, of what dropped spaces take and newer runs hide: files that have some of it are written anew
  without it, or go, and nothing newer goes into them;
* the rest of a compaction, at whose end all that went into another run leaves, while it leaves a purge its room.

Rejected: a child each for flushes and compactions, since a stretch is as long as a flush may wait; levels, which write
a byte ten times; and tiers by fixed size ratios, which merge before there is need.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple, final

# A lookup that misses asks each run, so eight cost about as much as one that is found in the oldest.
YOUNG_AIM: Final = 8
YOUNG_MOST: Final = 16
# While a compaction is begun, its inputs are among them, and leave with it: until there are so many, it goes on.
YOUNG_WAITING: Final = 12
LEAST_RUNS: Final = 2  # That are worth a merge.
MEMTABLES: Final = 2
OLDEST_SHARE: Final = 2  # Into the oldest run at a half of it.
MIB: Final = 1 << 20

# A delay for each batch: at ease none; before the refusal so long that ten writers bring a hundred batches a second.
MOST_DELAY_S: Final = 0.1

# At ease a merge writes as fast as the log may be written anyhow; in need nothing holds it back.
CALM_BYTES_PER_S: Final = 64 * MIB
EASY_LOAD: Final = 0.5  # Up to here a compaction stands behind all else on the machine.
UNBOUND_LOAD: Final = 0.75  # From here on a pace would only cost time.


@final
@dataclass(frozen=True, slots=True)
class Limits:
    """What the store was set up with."""

    file_bytes: int = 64 * MIB  # The most that a file of a run has.
    stretch_bytes: int = 1 << 30  # What a stretch writes, about, where there is room.
    segments_waiting: int = 4  # Closed segments that may wait for a flush before writers are held back.
    margin_bytes: int = 448 * MIB  # What is left free beside what a merge needs.


class Weight(NamedTuple):
    """A run by its size."""

    size_bytes: int
    records: int
    tombstones: int = 0
    longest_bytes: int = 0  # Of its files.


@final
@dataclass(frozen=True, slots=True)
class Compaction:
    """Runs to merge: the `count` newer neighbours of the one that has `below` runs under it, into that one.

    Counted from the oldest, which has none under it, for flushes add runs at the other end.  Without any it is a purge:
    of that run, and then of those under it.
    """

    below: int
    count: int


@final
@dataclass(frozen=True, slots=True)
class Pressure:
    """How a writer is held back."""

    delay_s: float  # Before each batch.
    refusal: str | None  # Why none is taken.


class Manner(NamedTuple):
    """How hard a merge is to work."""

    gives_way: bool  # To all else on the machine.
    bytes_per_second: int  # At most; 0: as fast as it goes.


@final
@dataclass(frozen=True, slots=True)
class StoreState:
    """What a store consists of, by sizes, and what is under way."""

    closed_segments: int  # That wait for a flush, those of one under way among them.
    closed_bytes: int
    memtables_full: int
    young: tuple[Weight, ...]  # From the newest to the oldest.
    oldest: Weight  # May have nothing.
    dropped_bytes: int  # What dropped spaces still take in runs, about.
    free_bytes: int  # On the disk, with what the reserve has.
    purged: int = 0  # Tombstones of young runs that hide nothing any more.
    deletes_wait: bool = False  # For a flush, which may go into the margin.
    active_share: float = 0.0  # How full the memtable is that is written to, or its segment, from 0 to 1.
    is_merging: bool = False
    begun: Compaction | None = None  # Of which a stretch is done or under way: the newest, if there are several.

    @property
    def tombstones(self) -> int:
        """Those of young runs that may hide something."""
        return sum(run.tombstones for run in self.young) - self.purged

    @property
    def runs(self) -> tuple[Weight, ...]:
        """All of them, from the newest to the oldest."""
        return (*self.young, self.oldest)


def debt_bytes(state: StoreState) -> int:
    """What into the oldest run is worth: the young runs, what their tombstones hide there, and dropped spaces."""
    oldest = state.oldest
    record_bytes = oldest.size_bytes // oldest.records if oldest.records else 0
    hidden = min(oldest.size_bytes, state.tombstones * record_bytes)
    return sum(run.size_bytes for run in state.young) + hidden + state.dropped_bytes


def is_flush_due(state: StoreState, limits: Limits) -> bool:
    """Whether to flush now."""
    margin_bytes = 0 if state.deletes_wait else limits.margin_bytes
    return state.closed_segments > 0 and state.free_bytes >= state.closed_bytes + margin_bytes


def compaction(state: StoreState, limits: Limits) -> Compaction | None:
    """Which runs to merge now, or to go on with."""
    relief = _relief(state, limits) if is_scarce(state, limits) else None
    found = relief or _wanted(state)
    if found is None:
        return None
    needed = compaction_bytes(state, found, limits) + (0 if relief else limits.margin_bytes)
    return found if state.free_bytes >= needed else None


def stretch_bytes(state: StoreState, limits: Limits) -> int:
    """How long the next stretch of a compaction may be: as the room allows, and a file at the least."""
    return max(limits.file_bytes, min(limits.stretch_bytes, state.free_bytes - limits.margin_bytes))


def is_scarce(state: StoreState, limits: Limits) -> bool:
    """Whether only what gives room back is written and merged."""
    return state.free_bytes < _needed(state, limits)


def hidden_bytes(state: StoreState, tombstones: int) -> int:
    """What so many tombstones hide, about."""
    values = sum(run.records - run.tombstones for run in state.runs)
    return tombstones * sum(run.size_bytes for run in state.runs) // values if values else 0


def pressure(state: StoreState, limits: Limits) -> Pressure:
    """How writers are to be held back."""
    if (refusal := _refusal(state, limits)) is not None:
        return Pressure(MOST_DELAY_S, refusal)
    return Pressure(MOST_DELAY_S * load(state, limits) ** 2, None)


def load(state: StoreState, limits: Limits) -> float:
    """How near the store is to refusing: 0 at ease, 1 where it does."""
    young = (len(state.young) - YOUNG_AIM) / (YOUNG_MOST - YOUNG_AIM)
    waiting = (state.closed_segments - 1) / max(1, limits.segments_waiting)
    if state.memtables_full:  # The next one that is full finds no room; from a half on there is reason to slow down.
        waiting = max(waiting, 2 * state.active_share - 1)
    needed = _needed(state, limits)
    room = 2 - state.free_bytes / needed if needed else 0.0
    return max(0.0, min(1.0, max(young, waiting, room)))


def manner(state: StoreState, limits: Limits, *, is_flush: bool) -> Manner:
    """How hard a merge is to work now: a node that is behind with its merges serves nobody well for long.

    A flush is a second of work for which writers may come to wait, and who has given way cannot always take it back.
    """
    strain = load(state, limits)
    pace = 0 if strain >= UNBOUND_LOAD else int(CALM_BYTES_PER_S / (1 - strain))
    return Manner(gives_way=not is_flush and strain <= EASY_LOAD, bytes_per_second=pace)


def compaction_bytes(state: StoreState, wanted: Compaction, limits: Limits) -> int:
    """What a compaction needs beside what is there, in its shortest stretches: each leaves as soon as it is replaced.

    By how much the run grows nobody knows before: a merge that finds no more room has kept its stretches, and the next
    one writes those anew in place.
    """
    end = len(state.runs) - wanted.below
    inputs = sum(run.size_bytes for run in state.runs[end - 1 - wanted.count : end])
    return min(inputs, limits.file_bytes + max(limits.file_bytes, state.runs[end - 1].longest_bytes))


def _relief(state: StoreState, limits: Limits) -> Compaction | None:
    """The compaction that gives room back, if there is any to be had."""
    begun = state.begun
    if begun is not None and not begun.count:
        return begun
    is_worth = state.dropped_bytes or hidden_bytes(state, state.tombstones) >= limits.file_bytes
    if is_worth:
        return Compaction(len(state.young), 0)
    if begun is None or state.free_bytes < 2 * compaction_bytes(state, begun, limits):
        return None
    return begun


def _wanted(state: StoreState) -> Compaction | None:
    """The compaction that is due, if there is room for it or not."""
    count, begun = len(state.young), state.begun
    free = count if begun is None else count - begun.below - begun.count  # Those before take no part in what is begun.
    if begun is not None and (count < YOUNG_WAITING or free < LEAST_RUNS):
        return begun
    if begun is None and _is_due_into_oldest(state):
        return Compaction(0, count)
    if count < YOUNG_AIM:
        return None
    windows = [(first, size) for size in range(LEAST_RUNS, free + 1) for first in range(free - size + 1)]
    first, size = min(windows, key=lambda window: (_cost(state.young, *window), -window[1]))
    return Compaction(count + 1 - first - size, size - 1)


def _is_due_into_oldest(state: StoreState) -> bool:
    debt = debt_bytes(state)
    if not state.oldest.size_bytes:  # There is nothing to replace: what is worth a merge anyhow becomes the oldest.
        return len(state.young) >= YOUNG_AIM
    return OLDEST_SHARE * debt >= state.oldest.size_bytes


def _cost(runs: tuple[Weight, ...], first: int, count: int) -> float:
    """Bytes for each run that a merge gets rid of."""
    return sum(run.size_bytes for run in runs[first : first + count]) / (count - 1)


def _needed(state: StoreState, limits: Limits) -> int:
    """What the merge needs that is due, or that closing what is written now would make due."""
    needed = state.closed_bytes
    wanted = None if state.is_merging else _wanted(state)
    if wanted is not None:
        needed = max(needed, compaction_bytes(state, wanted, limits))
    return needed + limits.margin_bytes


def _refusal(state: StoreState, limits: Limits) -> str | None:
    if state.memtables_full >= MEMTABLES:
        return f"both memtables are full: {state.closed_bytes:,} bytes of the log wait to be merged"
    if len(state.young) >= YOUNG_MOST:
        return f"{len(state.young)} young runs wait to be merged, and {YOUNG_MOST} are the most"
    if is_scarce(state, limits):
        needed = _needed(state, limits)
        return f"too little free space: a merge needs {needed:,} bytes, and the disk has {state.free_bytes:,}"
    return None
