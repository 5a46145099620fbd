"""Rules for merges and back-pressure, as functions of sizes alone (`docs/development/store.md`, Merging).

One merge runs at a time, stretch by stretch, and a flush goes first between two stretches. Compactions are chosen so:

* Into the oldest run, once its *debt* is half its size: the bytes of the young runs, of records that their tombstones
  hide, and of dropped spaces. So a byte is written two to three times after its flush, whatever the store's size.
* A *sweep* of the files of a run that are stale: a third of their bytes has expired. So a table of which half expires
  each hour takes about 1.5 times its size, and two bytes are written for each that leaves.
* Otherwise, with eight young runs: the neighbours whose merge writes the fewest bytes per run removed. Such neighbours
  have similar sizes, so tiers form without bookkeeping.
* A started compaction continues until it is done; but with twelve young runs, newer runs are merged first.

A margin stays free beside the needs of a merge, most of it in a file, the *reserve*, which keeps other writers away.
With less free the store is *scarce*: it takes only batches that free room, as their makers say. The margin then serves
flushes that deletes wait for, *purges* of dropped spaces and of records that newer runs hide, and the rest of a
compaction, while that leaves a purge its room.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple, final

# A missed lookup asks each run, so eight runs cost about as much as finding a key in the oldest.
YOUNG_AIM: Final = 8
YOUNG_MOST: Final = 16
# A started compaction has priority below this count, which includes its inputs: they leave only at its end.
YOUNG_WAITING: Final = 12
MIN_RUNS: Final = 2  # Fewer runs are not worth a merge.
MEMTABLES: Final = 2
OLDEST_SHARE: Final = 2  # Merge into the oldest run when the debt is half of it.
MIB: Final = 1 << 20

# Delay of a batch: zero at ease; just before refusal, ten writers still get a hundred batches a second.
MAX_DELAY_S: Final = 0.1

# A merge at ease writes as fast as the log may be written anyway; under load it is not limited.
CALM_BYTES_PER_S: Final = 64 * MIB
EASY_LOAD: Final = 0.5  # Up to this load a compaction yields to everything else on the machine.
UNBOUND_LOAD: Final = 0.75  # From this load on, a limited rate would only cost time.


@final
@dataclass(frozen=True, slots=True)
class MergeLimits:
    """The limits that the store's options set."""

    file_bytes: int = 64 * MIB  # The longest file of a run.
    stretch_bytes: int = 1 << 30  # Output of a stretch, about, if there is room.
    segments_waiting: int = 4  # Closed segments that may wait for a flush before writers are held back.
    margin_bytes: int = 448 * MIB  # Left free beside the needs of a merge.


class Weight(NamedTuple):
    """The sizes of a run."""

    size_bytes: int
    records: int
    tombstones: int = 0
    longest_bytes: int = 0  # The longest of its files.
    is_stale: bool = False  # True if a file of it is stale.


@final
@dataclass(frozen=True, slots=True)
class Compaction:
    """A merge of runs: the `count` newer neighbours of the run that has `below` runs under it, into that run.

    Runs are counted from the oldest, which has none under it, since flushes add runs at the other end. With `count` 0
    it is a purge of that run, and then of those under it, or a sweep of that run alone.
    """

    below: int
    count: int
    sweeps: bool = False


@final
@dataclass(frozen=True, slots=True)
class Pressure:
    """Back-pressure on writers."""

    delay_s: float  # Delay before each batch.
    refusal: str | None  # The reason for which no batch is taken.


class Manner(NamedTuple):
    """The effort of a merge."""

    gives_way: bool  # True if it yields to everything else on the machine.
    bytes_per_second: int  # Maximum; 0: unlimited.


@final
@dataclass(frozen=True, slots=True)
class StoreState:
    """The state of a store, by sizes, and the work under way."""

    closed_segments: int  # Waiting for a flush, or in the one under way.
    closed_bytes: int
    memtables_full: int
    young: tuple[Weight, ...]  # Ordered from the newest to the oldest.
    oldest: Weight  # May be empty.
    dropped_bytes: int  # Estimate of the bytes of dropped spaces in runs.
    free_bytes: int  # On the disk, including the reserve.
    purged: int = 0  # Tombstones of young runs that hide nothing any more.
    deletes_wait: bool = False  # True if deletes wait for a flush, which may then use the margin.
    active_share: float = 0.0  # Fill level of the active memtable or segment, from 0 to 1.
    is_merging: bool = False
    begun: Compaction | None = None  # The newest compaction with a stretch done or under way.

    @property
    def tombstones(self) -> int:
        """The tombstones of young runs that may hide something."""
        return sum(run.tombstones for run in self.young) - self.purged

    @property
    def runs(self) -> tuple[Weight, ...]:
        return (*self.young, self.oldest)


def debt_bytes(state: StoreState) -> int:
    """Return the bytes that justify a merge into the oldest run: young, hidden and dropped ones."""
    oldest = state.oldest
    record_bytes = oldest.size_bytes // oldest.records if oldest.records else 0
    hidden = min(oldest.size_bytes, state.tombstones * record_bytes)
    return sum(run.size_bytes for run in state.young) + hidden + state.dropped_bytes


def is_flush_due(state: StoreState, limits: MergeLimits) -> bool:
    """Return True if a flush should begin now."""
    margin_bytes = 0 if state.deletes_wait else limits.margin_bytes
    return state.closed_segments > 0 and state.free_bytes >= state.closed_bytes + margin_bytes


def compaction(state: StoreState, limits: MergeLimits) -> Compaction | None:
    """Return the compaction to begin or to go on with now, or None."""
    relief = _relief(state, limits) if is_scarce(state, limits) else None
    found = relief or _wanted(state)
    if found is None:
        return None
    needed = compaction_bytes(state, found, limits) + (0 if relief else limits.margin_bytes)
    return found if state.free_bytes >= needed else None


def stretch_bytes(state: StoreState, limits: MergeLimits) -> int:
    """Return the length of the next stretch of a compaction: as the room allows, and at least a file."""
    return max(limits.file_bytes, min(limits.stretch_bytes, state.free_bytes - limits.margin_bytes))


def is_scarce(state: StoreState, limits: MergeLimits) -> bool:
    """Return True if only work that frees room is written and merged."""
    return state.free_bytes < _needed(state, limits)


def hidden_bytes(state: StoreState, tombstones: int) -> int:
    """Estimate the bytes that this many tombstones hide."""
    values = sum(run.records - run.tombstones for run in state.runs)
    return tombstones * sum(run.size_bytes for run in state.runs) // values if values else 0


def pressure(state: StoreState, limits: MergeLimits) -> Pressure:
    """Return how writers are to be held back."""
    needed = _needed(state, limits)
    if (refusal := _refusal(state, needed)) is not None:
        return Pressure(MAX_DELAY_S, refusal)
    return Pressure(MAX_DELAY_S * _load(state, limits, needed) ** 2, None)


def load(state: StoreState, limits: MergeLimits) -> float:
    """Return how near the store is to refusing: 0 at ease, 1 where it refuses."""
    return _load(state, limits, _needed(state, limits))


def _load(state: StoreState, limits: MergeLimits, needed: int) -> float:
    young = (len(state.young) - YOUNG_AIM) / (YOUNG_MOST - YOUNG_AIM)
    waiting = (state.closed_segments - 1) / max(1, limits.segments_waiting)
    if state.memtables_full:  # The next full memtable finds no room; slowing down begins when it is half full.
        waiting = max(waiting, 2 * state.active_share - 1)
    room = 2 - state.free_bytes / needed if needed else 0.0
    return max(0.0, min(1.0, max(young, waiting, room)))


def manner(state: StoreState, limits: MergeLimits, *, is_flush: bool) -> Manner:
    """Return how hard a merge should work now: a node that lags with its merges soon serves nobody well.

    A flush never lowers its priority: it takes a second, writers may come to wait for it, and a process that lowered
    its priority cannot always raise it again.
    """
    strain = load(state, limits)
    pace = 0 if strain >= UNBOUND_LOAD else int(CALM_BYTES_PER_S / (1 - strain))
    return Manner(gives_way=not is_flush and strain <= EASY_LOAD, bytes_per_second=pace)


def compaction_bytes(state: StoreState, wanted: Compaction, limits: MergeLimits) -> int:
    """Return the room that a compaction needs in its shortest stretches: each replaced file leaves at once.

    The growth of the run is not known in advance. A merge that runs out of room has kept its stretches; the next merge
    rewrites those in place.
    """
    end = len(state.runs) - wanted.below
    inputs = sum(run.size_bytes for run in state.runs[end - 1 - wanted.count : end])
    return min(inputs, limits.file_bytes + max(limits.file_bytes, state.runs[end - 1].longest_bytes))


def _relief(state: StoreState, limits: MergeLimits) -> Compaction | None:
    """Return the compaction that frees room, if there is any."""
    begun = state.begun
    if begun is not None and not begun.count:
        return begun
    is_worth = _stale_below(state) or state.dropped_bytes or hidden_bytes(state, state.tombstones) >= limits.file_bytes
    if is_worth:
        return Compaction(len(state.young), 0)
    if begun is None or state.free_bytes < 2 * compaction_bytes(state, begun, limits):
        return None
    return begun


def _wanted(state: StoreState) -> Compaction | None:
    """Return the compaction that is due, regardless of room."""
    count, begun = len(state.young), state.begun
    # Newer runs, which take no part in the started one.
    free = count if begun is None else count - begun.below - begun.count
    if begun is not None and (count < YOUNG_WAITING or free < MIN_RUNS):
        return begun
    if begun is None and _is_due_into_oldest(state):
        return Compaction(0, count)
    if count < YOUNG_AIM:
        stale = _stale_below(state) if begun is None else ()
        return Compaction(stale[0], 0, sweeps=True) if stale else None
    windows = [(first, size) for size in range(MIN_RUNS, free + 1) for first in range(free - size + 1)]
    first, size = min(windows, key=lambda window: (_cost(state.young, *window), -window[1]))
    return Compaction(count + 1 - first - size, size - 1)


def _is_due_into_oldest(state: StoreState) -> bool:
    young, debt = state.young, debt_bytes(state)
    if not state.oldest.size_bytes:  # There is nothing to replace: the next worthwhile merge makes the oldest run.
        is_worth = _stale_below(state) or 2 * state.tombstones > sum(run.records for run in young)
        return len(young) >= YOUNG_AIM or bool(young and is_worth)
    return OLDEST_SHARE * debt >= state.oldest.size_bytes


def _stale_below(state: StoreState) -> list[int]:
    """Return the stale runs, by the number of runs under each, from the oldest on."""
    return [below for below, run in enumerate(reversed(state.runs)) if run.is_stale]


def _cost(runs: tuple[Weight, ...], first: int, count: int) -> float:
    """Return the bytes to merge for each run removed."""
    return sum(run.size_bytes for run in runs[first : first + count]) / (count - 1)


def _needed(state: StoreState, limits: MergeLimits) -> int:
    """Return the room for the merge that is due, or that closing the active memtable would make due."""
    needed = state.closed_bytes
    wanted = None if state.is_merging else _wanted(state)
    if wanted is not None:
        needed = max(needed, compaction_bytes(state, wanted, limits))
    return needed + limits.margin_bytes


def _refusal(state: StoreState, needed: int) -> str | None:
    if state.free_bytes < needed:  # Said first: what else waits cannot be merged for it.
        return (
            f"too little free space: a merge needs {needed:,} bytes, and the disk has {state.free_bytes:,}: "
            "free disk space, drop a table, or delete records"
        )
    if state.memtables_full >= MEMTABLES:
        return f"both memtables are full: {state.closed_bytes:,} bytes of the log wait to be merged"
    if len(state.young) >= YOUNG_MOST:
        return f"{len(state.young)} young runs wait to be merged; the limit is {YOUNG_MOST}"
    return None
