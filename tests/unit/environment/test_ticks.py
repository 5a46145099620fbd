"""Periodic tasks wake at the same moments, and never later than their periods."""

from __future__ import annotations

import pytest
import trio

from gossipkv.environment.ticks import TICK_S, next_look


@pytest.mark.parametrize("period_s", [TICK_S, 1.0, 1.3, 10.0])
async def test_looks_come_at_ticks_and_within_the_period(period_s, autojump_clock):
    looks = []
    for start_s in (0.0, 0.1, 0.25, 0.499, 0.77):
        await trio.sleep(start_s)
        for _ in range(3):
            before = trio.current_time()
            looks.append(next_look(period_s))
            assert before < looks[-1] <= before + period_s
            await trio.sleep_until(looks[-1])
    assert all(look % TICK_S == 0 for look in looks)


async def test_a_period_shorter_than_a_tick_is_kept(autojump_clock):
    await trio.sleep(0.3)
    assert next_look(0.05) == pytest.approx(0.35)
