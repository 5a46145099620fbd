"""When segments and runs are merged, which of them, and how writers are held back meanwhile: functions of sizes alone.

A flush makes one young run of the closed segments.  A compaction merges young runs that neighbour each other, or all
of them into the oldest run.  One of each may be under way at once, on inputs of their own.

* Into the oldest run, once what the young ones have and hide is half as large: so the store has at most half as much
  again as what lives, and a byte is written two to three times after its flush, whatever the store's size.
* Else, with eight young runs, those neighbours whose merge costs the least for each run that it gets rid of: it merges
  runs of a like size, and so in tiers, without any being kept.
* While a compaction takes long, a flush takes the young runs along that are not in it, once there are twelve.

Rejected: levels, which write a byte ten times; and tiers by fixed size ratios, which merge before there is need.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple, final

# A lookup that misses asks each run, so eight cost about as much as one that is found in the oldest.
YOUNG_AIM: Final = 8
YOUNG_MOST: Final = 16
# While a compaction runs, its inputs are among them, and leave with it: until there are so many, it is waited for.
YOUNG_ALONG: Final = 12
MEMTABLES: Final = 2
OLDEST_SHARE: Final = 2  # Into the oldest run at a half of it.
MIB: Final = 1 << 20

# What is left free beside what a merge needs: segments, the manifest, and what others write meanwhile.
MARGIN_BYTES: Final = 256 * MIB

# A delay for each batch: at ease none; before the refusal so long that ten writers bring a hundred batches a second.
MOST_DELAY_S: Final = 0.1

# At ease a merge writes as fast as the log may be written anyhow; in need nothing holds it back.
CALM_BYTES_PER_S: Final = 64 * MIB
CALM_NICENESS: Final = 15


@final
@dataclass(frozen=True, slots=True)
class Limits:
    """What the store was set up with."""

    file_bytes: int = 1 << 30  # The most that a file of a run has.
    segments_waiting: int = 4  # Closed segments that may wait for a flush before writers are held back.
    margin_bytes: int = MARGIN_BYTES


class Weight(NamedTuple):
    """A run by its size."""

    size_bytes: int
    records: int
    tombstones: int = 0


@final
@dataclass(frozen=True, slots=True)
class Compaction:
    """Young runs to merge: `count` of them from `first` on, counted from the newest."""

    first: int
    count: int
    into_oldest: bool


@final
@dataclass(frozen=True, slots=True)
class Flush:
    """Closed segments to merge, and so many of the newest young runs with them."""

    young: int


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
class Standing:
    """How a store stands."""

    closed_segments: int  # That wait for a flush, those of one under way among them.
    closed_bytes: int
    memtables_full: int
    young: tuple[Weight, ...]  # From the newest to the oldest.
    oldest: Weight
    dropped_bytes: int  # What dropped spaces still take in runs, about.
    free_bytes: int  # On the disk.
    active_share: float = 0.0  # How full the memtable is that is written to, or its segment, from 0 to 1.
    flush: Flush | None = None  # Under way.
    compaction: Compaction | None = None  # Under way, counted as the young runs are now.


def debt_bytes(standing: Standing) -> int:
    """What into the oldest run is worth: the young runs, what their tombstones hide there, and dropped spaces."""
    oldest = standing.oldest
    record_bytes = oldest.size_bytes // oldest.records if oldest.records else 0
    hidden = min(oldest.size_bytes, sum(run.tombstones for run in standing.young) * record_bytes)
    return sum(run.size_bytes for run in standing.young) + hidden + standing.dropped_bytes


def flush(standing: Standing, limits: Limits) -> Flush | None:
    """What to flush now."""
    if not standing.closed_segments or standing.flush is not None:
        return None
    young = 0
    if standing.compaction is not None and len(standing.young) >= YOUNG_ALONG:
        young = _taken_along(standing, standing.compaction.first)
    while young and not _is_room(standing, limits, flush_bytes(standing, Flush(young))):
        young -= 1
    return Flush(young) if _is_room(standing, limits, flush_bytes(standing, Flush(young))) else None


def compaction(standing: Standing, limits: Limits) -> Compaction | None:
    """Which young runs to merge now."""
    if standing.compaction is not None:
        return None
    found = _wanted(standing)
    return (
        found if found is not None and _is_room(standing, limits, compaction_bytes(standing, found, limits)) else None
    )


def pressure(standing: Standing, limits: Limits) -> Pressure:
    """How writers are to be held back."""
    if (refusal := _refusal(standing, limits)) is not None:
        return Pressure(MOST_DELAY_S, refusal)
    return Pressure(MOST_DELAY_S * load(standing, limits) ** 2, None)


def load(standing: Standing, limits: Limits) -> float:
    """How near the store is to refusing: 0 at ease, 1 where it does."""
    young = (len(standing.young) - YOUNG_AIM) / (YOUNG_MOST - YOUNG_AIM)
    waiting = (standing.closed_segments - 1) / max(1, limits.segments_waiting)
    if standing.memtables_full:  # The next one that is full finds no room; from a half on there is reason to slow down.
        waiting = max(waiting, 2 * standing.active_share - 1)
    needed = _needed(standing, limits)
    room = 2 - standing.free_bytes / needed if needed else 0.0
    return max(0.0, min(1.0, max(young, waiting, room)))


def bytes_per_second(standing: Standing, limits: Limits) -> int:
    """How fast a merge may write; 0: as fast as it goes."""
    strain = load(standing, limits)
    return 0 if strain >= _UNBOUND else int(CALM_BYTES_PER_S / (1 - strain))


def niceness(standing: Standing, limits: Limits) -> int:
    """How far a merge stands behind others: a node that is behind with its merges serves nobody well for long."""
    return round(CALM_NICENESS * (1 - load(standing, limits)))


def manner(standing: Standing, limits: Limits, *, is_flush: bool) -> Manner:
    """How hard a merge is to work now.

    A flush is a second of work for which writers may come to wait, and who has given way cannot always take it back.
    """
    gives_way = not is_flush and niceness(standing, limits) > CALM_NICENESS // 2
    return Manner(gives_way, bytes_per_second(standing, limits))


# From here on a pace would only cost time.
_UNBOUND: Final = 0.75


def flush_bytes(standing: Standing, wanted: Flush) -> int:
    """What a flush writes at most: its inputs."""
    return standing.closed_bytes + sum(run.size_bytes for run in standing.young[: wanted.young])


def compaction_bytes(standing: Standing, wanted: Compaction, limits: Limits) -> int:
    """What a compaction needs beside what is there: its inputs' size, until they leave.

    Into the oldest run each stretch leaves as soon as it is replaced.  By how much the run grows nobody knows before:
    a merge that finds no more room has kept its stretches, and the next one writes those anew in place.
    """
    young = sum(run.size_bytes for run in standing.young[wanted.first : wanted.first + wanted.count])
    return min(young + standing.oldest.size_bytes, 2 * limits.file_bytes) if wanted.into_oldest else young


def _is_room(standing: Standing, limits: Limits, needed_bytes: int) -> bool:
    return standing.free_bytes >= needed_bytes + limits.margin_bytes


def _wanted(standing: Standing) -> Compaction | None:
    """The compaction that is due, if there is room for it or not."""
    free = standing.flush.young if standing.flush is not None else 0  # A flush has those before.
    runs = standing.young[free:]
    if free == 0 and _is_due_into_oldest(standing):
        return Compaction(0, len(runs), into_oldest=True)
    if len(standing.young) < YOUNG_AIM:
        return None
    windows = [(first, count) for count in range(2, len(runs) + 1) for first in range(len(runs) - count + 1)]
    if not windows:
        return None
    first, count = min(windows, key=lambda window: (_cost(runs, *window), -window[1]))
    return Compaction(free + first, count, into_oldest=False)


def _is_due_into_oldest(standing: Standing) -> bool:
    debt = debt_bytes(standing)
    if not standing.oldest.size_bytes:  # There is nothing to replace: what is worth a merge anyhow becomes the oldest.
        return len(standing.young) >= YOUNG_AIM
    return OLDEST_SHARE * debt >= standing.oldest.size_bytes


def _cost(runs: tuple[Weight, ...], first: int, count: int) -> float:
    """Bytes for each run that a merge gets rid of."""
    return sum(run.size_bytes for run in runs[first : first + count]) / (count - 1)


def _taken_along(standing: Standing, free: int) -> int:
    """How many of the `free` newest runs a flush does best to take: each of them is one run less."""
    costs = [(flush_bytes(standing, Flush(count)) / count, -count) for count in range(1, free + 1)]
    return -min(costs)[1] if costs else 0


def _needed(standing: Standing, limits: Limits) -> int:
    """What the merge needs that is due, or that closing what is written now would make due."""
    needed = flush_bytes(standing, Flush(0))
    wanted = _wanted(standing) if standing.compaction is None else None
    if wanted is not None:
        needed = max(needed, compaction_bytes(standing, wanted, limits))
    return needed + limits.margin_bytes


def _refusal(standing: Standing, limits: Limits) -> str | None:
    if standing.memtables_full >= MEMTABLES:
        return f"both memtables are full: {standing.closed_bytes:,} bytes of the log wait to be merged"
    if len(standing.young) >= YOUNG_MOST:
        return f"{len(standing.young)} young runs wait to be merged, and {YOUNG_MOST} are the most"
    needed = _needed(standing, limits)
    if standing.free_bytes < needed:
        return f"too little free space: a merge needs {needed:,} bytes, and the disk has {standing.free_bytes:,}"
    return None
