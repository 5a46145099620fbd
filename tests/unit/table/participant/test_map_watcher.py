"""A map that another node follows is read at once; a map without news is read once a second."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import trio

from gossipkv.errors import Unavailable
from gossipkv.table.participant.map_watcher import LOOK_S, MapWatcher

REGISTER, OTHER = b"r" * 32, b"o" * 16
READ_S = 0.01


class Map:
    """A map of which this node knows an older state."""

    def __init__(self):
        self.newest, self.known, self.looks = 1, {}, []
        self.know()

    def know(self):
        self.known[REGISTER] = SimpleNamespace(config=self.newest)

    async def look(self, register, node):
        assert register == REGISTER
        self.looks.append(node)
        found = self.newest
        await trio.sleep(READ_S)
        if not found:
            raise Unavailable("no server answers")
        if found != self.known[REGISTER].config:
            self.known[REGISTER] = SimpleNamespace(config=found)


@pytest.fixture
async def followed(nursery):
    """Return a map, and the method by which it is looked at."""
    map_ = Map()
    watcher = MapWatcher(None, SimpleNamespace(metadata=map_), None, lambda: None)
    watcher.begin(nursery)
    return map_, watcher.look_at


async def test_each_newer_map_is_read_at_once(autojump_clock, followed):
    map_, look_at = followed
    for map_.newest in (2, 3, 4):
        look_at(REGISTER, OTHER, map_.newest)
        look_at(REGISTER, OTHER, map_.newest)
        await trio.sleep(2 * READ_S)
        look_at(REGISTER, OTHER, map_.newest)  # Known by now.
        assert map_.known[REGISTER].config == map_.newest
    assert map_.looks == [OTHER] * 3


async def test_a_map_that_became_newer_during_a_read_is_read_next(autojump_clock, followed):
    map_, look_at = followed
    map_.newest = 2
    look_at(REGISTER, OTHER, 2)
    await trio.sleep(READ_S / 2)
    map_.newest = 3
    look_at(REGISTER, OTHER, 3)
    await trio.sleep(2 * READ_S)
    assert map_.known[REGISTER].config == 3
    assert len(map_.looks) == 2


@pytest.mark.parametrize("newest", [0, 1])
async def test_a_read_without_news_is_repeated_later(autojump_clock, followed, newest):
    """A node that errs, or an unreachable quorum, causes one read a second."""
    map_, look_at = followed
    map_.newest = newest
    for _ in range(10):
        look_at(REGISTER, OTHER, 9)
        await trio.sleep(LOOK_S / 5)
    assert len(map_.looks) == 2
