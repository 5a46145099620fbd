"""The space of decisions keeps order, waits for room, and ends with its store."""

from __future__ import annotations

from random import Random

import pytest
import trio

from gossipkv.errors import Unavailable
from gossipkv.register.space import Space
from tests.world.logs import capture_logs
from tests.world.metadata.store import Disk, Mood, SimulatedStore


class Batches:
    """A witness that lists the synced records."""

    def __init__(self):
        self.seen = []

    def synced(self, disk, records):
        self.seen.append(records)


@pytest.fixture
def scene():
    """Return a disk, its mood, and the synced batches."""
    return Disk(b"n" * 16, 7), Mood(), Batches()


def opened(scene):
    """Return the space of a new life on that disk."""
    disk, mood, batches = scene
    return Space(SimulatedStore(disk, mood, Random(1), batches, lambda when: None))


async def test_what_comes_meanwhile_goes_together(scene, nursery, autojump_clock):
    """Waiting records share a batch, in order, and callbacks run after the sync; the first batch makes the space."""
    space, told = opened(scene), []
    assert space.get(b"ka") is None
    assert space.scan(b"k") == []
    await nursery.start(space.run)
    space.append({b"ka": b"0"}, lambda: told.append(0))
    await trio.testing.wait_all_tasks_blocked()
    for number in range(1, 4):
        space.append({b"ka": b"%d" % number, b"kb": b"x"}, lambda number=number: told.append(number))
    assert told == []
    await space.write({b"kb": None})
    assert told == [0, 1, 2, 3]
    assert [len(records) for records in scene[2].seen] == [1, 2]  # Only the last record of each key is written.
    assert space.get(b"ka") == b"3"
    assert space.scan(b"k") == [(b"ka", b"3")]


async def test_all_under_a_prefix(scene, nursery, autojump_clock):
    """The scan covers several pages of the store, and no other prefix."""
    space = opened(scene)
    await nursery.start(space.run)
    await space.write({b"%c%02d" % (letter, number): b"" for letter in b"jkl" for number in range(30)})
    assert [key for key, _ in space.scan(b"k")] == [b"k%02d" % number for number in range(30)]
    assert [key for key, _ in opened(scene).scan(b"k1")] == [b"k1%d" % number for number in range(10)]


async def test_it_waits_for_room(scene, nursery, autojump_clock):
    """All waiting records are kept, and no callback runs early."""
    space, told = opened(scene), []
    await nursery.start(space.run)
    scene[1].is_full = True
    space.append({b"ka": b"1"}, lambda: told.append(1))
    await trio.sleep(10)
    assert told == []
    scene[1].is_full = False
    await space.write({b"kb": b"2"})
    assert (told, space.get(b"ka"), space.closed) == ([1], b"1", None)


async def test_a_wait_for_room_is_logged_once_and_counted(scene, nursery, autojump_clock):
    """Each wait is logged once, however long it takes."""
    space = opened(scene)
    await nursery.start(space.run)
    with capture_logs() as logs:
        for _ in range(2):
            scene[1].is_full = True
            space.append({b"k": b"1"}, lambda: None)
            await trio.sleep(60)
            scene[1].is_full = False
            await trio.sleep(1)
    assert [line["event"] for line in logs] == ["decisions_wait_for_room", "decisions_have_room"] * 2
    assert all(100 < line["attempts"] <= 122 for line in logs[1::2])


async def test_a_store_that_fails_closes_it(scene, nursery, autojump_clock):
    """Waiters fail, no callback runs, later records are refused, and the reason is given."""
    space, told, ends = opened(scene), [], []
    space.on_closed(lambda: ends.append(1))
    await nursery.start(space.run)
    scene[1].fails = True
    space.append({b"ka": b"1"}, lambda: told.append(1))
    with trio.fail_after(5), pytest.raises(Unavailable, match="the disk failed"):
        await space.write({b"kb": b"2"})
    assert (told, ends, space.closed) == ([], [1], "the disk failed")
    with pytest.raises(Unavailable, match="no part in decisions: the disk failed"):
        space.append({b"ka": b"1"}, lambda: None)


async def test_a_cancelled_write_is_written(scene, nursery, autojump_clock):
    """A caller that gave up waiting has not withdrawn its record."""
    space = opened(scene)
    await nursery.start(space.run)
    with trio.move_on_after(0):
        await space.write({b"ka": b"1"})
    await space.write({b"kb": b"2"})
    assert space.get(b"ka") == b"1"
