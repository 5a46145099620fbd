"""The choice of resident files, compared with the rules for any history of room and files."""

from __future__ import annotations

import random
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from gossipkv.dataset.memory.residency import (
    COMFORTABLE,
    FIRST_PATIENCE_MS,
    LONGEST_PATIENCE_MS,
    Level,
    Mapped,
    Residency,
)

LOOK_MS = 5_000

SIZES = st.integers(0, 1_000)
MAPPED = st.builds(lambda active, others, apart: Mapped(active, active + others, apart), SIZES, SIZES, SIZES)
LOOKS = st.lists(st.tuples(MAPPED, st.none() | SIZES, st.integers(1, 20_000)), max_size=60)


def fits(mapped: Mapped, level: Level, room: float | None) -> bool:
    """True if the files resident at that level fit in the room."""
    return room is None or {Level.NONE: 0, Level.ACTIVE: mapped.active, Level.ALL: mapped.all}[level] <= room


@given(LOOKS, st.integers(0, 1 << 32))
def test_no_more_is_resident_than_fits(looks, seed):
    """After each look as much is resident as fits, unless a level has not been comfortable for long enough."""
    residency, now_ms = Residency("auto", random.Random(seed)), 0
    since_ms = {}  # The time since which each level has been comfortable.
    for mapped, room, pause_ms in looks:
        now_ms += pause_ms
        before = residency.level
        assert residency.decide(mapped, room, now_ms=now_ms) is (residency.level is not before)
        level = residency.level
        assert level is Level.NONE or fits(mapped, level, room)
        if level < before:
            assert not fits(mapped, Level(level + 1), room), "it falls no further than it must"
        comfortable = {each for each in Level if fits(mapped, each, None if room is None else room * COMFORTABLE)}
        since_ms = {each: since_ms.get(each, now_ms) for each in comfortable}
        if level > before:
            assert now_ms - since_ms[level] >= 2 * FIRST_PATIENCE_MS
        elif level < Level.ALL:
            waited_ms = now_ms - since_ms.get(Level(level + 1), now_ms)
            assert waited_ms <= 2 * LONGEST_PATIENCE_MS


@given(LOOKS, MAPPED, SIZES, SIZES)
def test_more_room_pages_nothing(before, mapped, room, more):
    """After the same past, more room or fewer files never give a lower level."""
    for other in ((mapped, room + more), (mapped, None), (Mapped(0, 0, mapped.compressed), room)):
        levels = []
        for told in ((mapped, room), other):
            residency, now_ms = Residency("auto", random.Random(7)), 0
            for seen, seen_room, pause_ms in before:
                now_ms += pause_ms
                residency.decide(seen, seen_room, now_ms=now_ms)
            residency.decide(*told, now_ms=now_ms + LOOK_MS)
            levels.append(residency.level)
        assert levels[0] <= levels[1]


@settings(max_examples=max(5, settings.default.max_examples // 5))
@given(st.integers(0, 1 << 32))
def test_what_comes_and_goes_is_followed_ever_more_slowly(seed):
    """Room that vanishes whenever it is used causes only a few changes an hour in the end."""
    residency, changes_ms = Residency("auto", random.Random(seed)), []
    for now_ms in range(0, 24 * 3_600_000, LOOK_MS):
        room = 50 if residency.level is Level.ALL else 1_000
        if residency.decide(Mapped(100, 100, 0), room, now_ms=now_ms):
            changes_ms.append(now_ms)
    last_hour = [at_ms for at_ms in changes_ms if at_ms >= 23 * 3_600_000]
    assert 0 < len(last_hour) <= 2 * 3_600_000 // LONGEST_PATIENCE_MS + 2
    falls = changes_ms[::2]
    assert all(later - sooner >= 2 * FIRST_PATIENCE_MS for sooner, later in pairwise(falls))


@given(LOOKS)
def test_a_setting_is_obeyed(looks):
    for setting, level in (("resident", Level.ALL), ("paged", Level.NONE)):
        residency = Residency(setting, random.Random(1))
        for mapped, room, pause_ms in looks:
            assert not residency.decide(mapped, room, now_ms=pause_ms)
            assert residency.level is level


def test_a_switch_of_what_fills_more_than_half():
    """While two versions are open only the active one is resident; afterwards the remaining one is."""
    residency = Residency("auto", random.Random(3))
    levels = []
    for at_s, both in ((0, 60), (10, 120), (300, 120), (600, 60), (605, 60), (700, 60)):
        residency.decide(Mapped(60, both, 0), 100, now_ms=at_s * 1_000)
        levels.append(residency.level.name)
    assert levels == ["ALL", "ACTIVE", "ACTIVE", "ACTIVE", "ACTIVE", "ALL"]
