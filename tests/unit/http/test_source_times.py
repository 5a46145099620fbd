from __future__ import annotations

import pytest
import trio

from gossipkv.errors import Unavailable
from gossipkv.http.source_times import AGAIN_S, SourceTimes
from tests.unit.http.fake_node import baby_names


async def test_a_version_is_asked_for_once():
    """One question tells the times of all versions, in whole seconds."""
    node = baby_names()
    times = SourceTimes(node)
    assert [await times.of("baby-names", version) for version in ("2", "1", "2")] == [
        1_470_052_587,
        1_000_000_000,
        1_470_052_587,
    ]
    assert len(node.calls) == 1


async def test_many_wait_for_one_question(autojump_clock):
    """A thousand reads of a new version ask once."""
    node = baby_names()
    inner = node.call

    async def slow(method, *params, timeout_ms=None):
        await trio.sleep(0.1)
        return await inner(method, *params)

    node.call = slow
    times = SourceTimes(node)
    found = []

    async def look():
        found.append(await times.of("baby-names", "2"))

    async with trio.open_nursery() as nursery:
        for _ in range(1000):
            nursery.start_soon(look)
    assert (set(found), len(node.calls)) == ({1_470_052_587}, 1)


async def test_a_time_does_not_change(autojump_clock):
    """What was told first stays, though owners that come later say something else."""
    node = baby_names()
    times = SourceTimes(node)
    await times.of("baby-names", "2")
    node.databases["baby-names"].times["2"] = 1
    node.databases["baby-names"].times["3"] = 3000
    assert await times.of("baby-names", "3") == 3
    assert await times.of("baby-names", "2") == 1_470_052_587


async def test_what_is_not_told_is_asked_for_again_later(autojump_clock):
    """Not with every read, and not never; other versions do not wait for it."""
    node = baby_names()
    times = SourceTimes(node)
    for _ in range(5):
        assert await times.of("baby-names", "3") is None
    assert len(node.calls) == 1
    assert await times.of("coming", "3") is None
    assert len(node.calls) == 2
    node.databases["baby-names"].times["3"] = 3000
    await trio.sleep(AGAIN_S)
    assert await times.of("baby-names", "3") == 3


async def test_a_node_that_fails(autojump_clock):
    """The read goes on without a time."""
    node = baby_names()
    node.failure = Unavailable("gone")
    times = SourceTimes(node)
    assert await times.of("baby-names", "2") is None
    node.failure = None
    await trio.sleep(AGAIN_S)
    assert await times.of("baby-names", "2") == 1_470_052_587


@pytest.mark.parametrize(
    "answer",
    [None, {}, [None], [{"name": "baby-names"}], [{"name": "baby-names", "times": [1]}], [{"times": {"2": 1000}}]],
)
async def test_an_answer_that_is_none(answer):
    """It says nothing."""
    node = baby_names()
    node._databases = lambda: answer
    assert await SourceTimes(node).of("baby-names", "2") is None


@pytest.mark.parametrize("time_ms", [-1, 10**15, None, "1", 1.5])
async def test_a_time_that_is_none(time_ms):
    """What HTTP cannot say is not said."""
    node = baby_names()
    node.databases["baby-names"].times["2"] = time_ms
    times = SourceTimes(node)
    assert await times.of("baby-names", "2") is None
    assert await times.of("baby-names", "1") == 1_000_000_000
