"""The pauses of a task with news, without news, and after a long look."""

from __future__ import annotations

import pytest
import trio

from gossipkv.environment.ticks import LONGEST, QUIET_S
from gossipkv.table.controllers.pause import QUIET_ROUNDS, REST_FACTOR, Pause


@pytest.mark.parametrize(("took_s", "news_at_s", "expected_s"), [
    (0, None, [0.1 * LONGEST, 0.2 * LONGEST, 0.4 * LONGEST, 0.8 * LONGEST, LONGEST, LONGEST]),
    (0, 0.05, [0.1, 0.1, 0.1]),
    (0, 0.15, [0.1 * LONGEST, 0.15, 0.1 * LONGEST]),  # The first pause ends before the news arrives.
    (0.05, None, [0.05 * REST_FACTOR, 0.05 * REST_FACTOR, 0.05 * REST_FACTOR, 0.8 * LONGEST, LONGEST]),
    (0.05, 0.15, [0.05 * REST_FACTOR, 0.05 * REST_FACTOR]),
    (5, 0.15, [1, 1]),  # A look that waited for other nodes does not prolong the pause.
])  # fmt: skip
async def test_a_pause(took_s, news_at_s, expected_s, autojump_clock):
    pause = Pause(longest_s=1)
    rests_s = []

    async def bring_news():
        await trio.sleep(news_at_s)
        pause.end()

    for _ in expected_s:
        began = trio.current_time()
        await trio.sleep(took_s)
        async with trio.open_nursery() as nursery:
            if news_at_s is not None:
                nursery.start_soon(bring_news)
            await pause.rest(began)
            rests_s.append(trio.current_time() - began - took_s)
            nursery.cancel_scope.cancel()
    assert rests_s == pytest.approx(expected_s)


async def test_pauses_grow_while_there_is_nothing_to_do_until_there_is_news(autojump_clock):
    pause, rests_s = Pause(longest_s=1), []

    async def rest(is_quiet):
        began = trio.current_time()
        await pause.rest(began, is_quiet=is_quiet)
        rests_s.append((trio.current_time() - began) / LONGEST)

    for _ in range(QUIET_ROUNDS + 3):
        await rest(is_quiet=True)
    assert rests_s[QUIET_ROUNDS - 1 :] == pytest.approx([1, 2, 4, QUIET_S])
    await rest(is_quiet=False)
    assert rests_s.pop() == pytest.approx(1)
    pause.end()
    await rest(is_quiet=True)
    await rest(is_quiet=True)
    assert rests_s.pop() == pytest.approx(0.2)
