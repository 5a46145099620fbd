"""Trio made deterministic: the same seed, the same order of tasks, in any process.

Trio shuffles the tasks that are ready at the same time, so that no program relies on their order.  It draws from a
private `Random`, and sorts the tasks before it shuffles only under a private flag that its own tests with Hypothesis
use.

Only this module knows the names of these parts: worlds use `run`, and every other test is seeded by `tests/seeded.py`.
A run is refused if a name is missing; the tests that run a seed several times
(`tests/simulation/test_whole_nodes_determinism.py`, `tests/ci/tidy/test_seeded.py`) show that the parts still work.
"""

from __future__ import annotations

import gc
import random
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, TypeVar

import trio
from trio.testing import MockClock

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

_FLAG = "_ALLOW_DETERMINISTIC_SCHEDULING"
_RANDOM = "_r"

_Result = TypeVar("_Result")


class SchedulerChanged(Exception):
    """Trio lacks the parts that make it deterministic."""


class Stuck(Exception):
    """The run did not end within its time limit."""


def run(main: Callable[[], Awaitable[_Result]], seed: int, *, limit_s: float) -> _Result:
    """Run `main` to its end, in at most `limit_s` of virtual time.

    Raises:
        SchedulerChanged: this Trio cannot be seeded.
        Stuck: the time limit was reached.
    """
    with seeded(seed), uncollected():
        return trio.run(_within, main, limit_s, clock=MockClock(autojump_threshold=0))


@contextmanager
def seeded(seed: int | str) -> Iterator[None]:
    """Let the seed decide the order of tasks that are ready at the same time.

    Raises:
        SchedulerChanged: this Trio cannot be seeded.
    """
    scheduler = find_scheduler()
    before, state = getattr(scheduler, _FLAG), getattr(scheduler, _RANDOM).getstate()
    setattr(scheduler, _FLAG, True)
    getattr(scheduler, _RANDOM).seed(seed)
    try:
        yield
    finally:
        setattr(scheduler, _FLAG, before)
        getattr(scheduler, _RANDOM).setstate(state)


@contextmanager
def uncollected() -> Iterator[None]:
    """Suspend garbage collection: its moment depends on the process's past, and finalizers may wake tasks."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


async def _within(main: Callable[[], Awaitable[_Result]], limit_s: float) -> _Result:
    """Run with a limit: the clock always has a next moment, so tasks that wait for each other would never end."""
    with trio.move_on_after(limit_s):
        return await main()
    raise Stuck(f"not done after {limit_s} virtual seconds")


def find_scheduler(name: str = "trio._core._run") -> ModuleType:
    """Return the module of Trio's scheduler, after a check that it has the needed parts.

    Raises:
        SchedulerChanged: a part is missing or has another type.
    """
    try:
        scheduler = import_module(name)
    except ImportError:
        scheduler = ModuleType(name)
    flag, chance = getattr(scheduler, _FLAG, None), getattr(scheduler, _RANDOM, None)
    if not isinstance(flag, bool) or not isinstance(chance, random.Random):
        raise SchedulerChanged(
            f"trio {trio.__version__} has no {_FLAG} and {_RANDOM} in {name}: look how its scheduler orders tasks now, "
            "and change tests/world/nodes/scheduling.py"
        )
    return scheduler
