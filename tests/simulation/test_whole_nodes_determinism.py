"""Whole nodes under Trio's simulated clock: the same seed gives the same run, in any process."""

from __future__ import annotations

import pytest
import trio

from tests.simulation.lively_nodes import SEED, once
from tests.world.nodes import scheduling
from tests.world.nodes.scheduling import SchedulerChanged, Stuck, find_scheduler


def test_a_seed_gives_one_run() -> None:
    """The trace is equal although the process allocated objects in between, and every configured fault struck."""
    first = once()
    garbage = [object() for _ in range(10_000)]
    second = once()
    del garbage
    assert (first.trace, first.virtual_s) == (second.trace, second.virtual_s)
    assert list(first.lines) == list(second.lines)
    assert {"loss", "heavy_delay", "sent_again"} <= set(first.struck)


def test_another_seed_gives_another_run() -> None:
    assert once(SEED).trace != once(SEED + 1).trace


def order_of_tasks(seed: int) -> list[int]:
    """Return the order in which tasks run that are ready at the same time, some of them by a timeout."""
    order: list[int] = []

    async def task(number: int, ballast: int) -> None:
        keep = [object() for _ in range(ballast)]
        with trio.move_on_after(1):
            await trio.sleep_forever()
        order.append(number)
        await trio.sleep(1)
        order.append(number)
        del keep

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            for number in range(20):
                nursery.start_soon(task, number, len(order) * 7 + number * number % 13)

    scheduling.run(main, seed, limit_s=10)
    return order


def test_the_seed_orders_what_is_ready_at_the_same_time() -> None:
    """Trio shuffles tasks by the seed, so the simulation sees unusual orders."""
    orders = [order_of_tasks(seed) for seed in (1, 1, 2)]
    assert orders[0] == orders[1]
    assert orders[0] != orders[2]
    assert orders[0][:20] != sorted(orders[0][:20])


def test_trio_is_left_as_it_was() -> None:
    scheduler = find_scheduler()
    before = scheduler._ALLOW_DETERMINISTIC_SCHEDULING, scheduler._r.getstate()
    order_of_tasks(1)
    assert before == (scheduler._ALLOW_DETERMINISTIC_SCHEDULING, scheduler._r.getstate())


@pytest.mark.parametrize("name", ["trio._core._moved", "trio._core._mock_clock"])
def test_another_trio_is_refused(name: str) -> None:
    """The error names the missing attribute and the module to repair."""
    with pytest.raises(SchedulerChanged, match=r"_ALLOW_DETERMINISTIC_SCHEDULING.*scheduling\.py"):
        find_scheduler(name)


def test_tasks_that_wait_for_each_other_end_the_run() -> None:
    with pytest.raises(Stuck, match="100"):
        scheduling.run(trio.sleep_forever, 1, limit_s=100)
