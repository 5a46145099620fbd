"""Periodic tasks wake together, about once in their periods."""

from __future__ import annotations

import pytest
import trio

from gossipkv.environment import ticks


async def test_tasks_wake_together_and_about_in_their_periods(autojump_clock):
    wakes = {}
    ends_at = 60.0

    async def look(period_s, start_s):
        await trio.sleep(start_s)
        last = trio.current_time()
        while last < ends_at:
            assert not await ticks.rest(period_s)
            now = trio.current_time()
            assert ticks.SHORTEST <= round((now - last) / period_s, 6) <= ticks.LONGEST
            wakes.setdefault(now, []).append(period_s)
            last = now

    async with trio.open_nursery() as nursery:
        for number, period_s in enumerate((1.0, 1.0, 1.0, 2.0, 5.0)):
            nursery.start_soon(look, period_s, number / 9)
    late = [at for at in wakes if 20 < at < ends_at]
    assert len(late) < 1.2 * (ends_at - 20)  # About one wake for each second, and not for each task.


async def test_a_task_joins_a_wake_for_another_reason(autojump_clock):
    async def look():
        assert not await ticks.rest(10.0)
        assert trio.current_time() == pytest.approx(began + 8)

    began, alarm = trio.current_time(), trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(look)
        assert not await ticks.rest_until(began + 7, alarm)  # The first wake is too early.
        nursery.start_soon(ticks.rest_until, began + 60, alarm := trio.Event())
        await trio.testing.wait_all_tasks_blocked()
        ticks.move(alarm, began + 8)


async def test_the_alarm_is_moved_before_trio_cancels_its_task(autojump_clock):
    await ticks.rest(1.0)
    alarm = ticks._ticks()._alarm
    for period_s in (1.0, 2.0, 1.0):
        await ticks.rest(period_s)
    assert ticks._ticks()._alarm is alarm


async def test_news_end_a_rest_at_once(autojump_clock):
    news, began = trio.Event(), trio.current_time()
    async with trio.open_nursery() as nursery:

        async def look():
            assert await ticks.rest(10.0, news)
            assert trio.current_time() == pytest.approx(began + 1)

        nursery.start_soon(look)
        await trio.sleep(1)
        news.set()
