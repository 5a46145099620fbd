"""Coalesced runs of one action for many callers."""

import pytest
import trio
import trio.testing

from gossipkv.dataset.coalesced import Coalesced


class Action:
    """An action that runs until it is released."""

    def __init__(self):
        self.runs = 0
        self.failure = None
        self.go = trio.Event()

    async def __call__(self):
        self.runs += 1
        await self.go.wait()
        if self.failure is not None:
            failure, self.failure = self.failure, None
            raise failure


async def test_those_who_asked_before_a_run_began_share_it():
    """A thousand calls during a run cause one more run, since the first may have missed their news."""
    action = Action()
    coalesced = Coalesced(action)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(coalesced.run)
        await trio.testing.wait_all_tasks_blocked()
        assert coalesced.running
        for _ in range(1000):
            nursery.start_soon(coalesced.run)
        await trio.testing.wait_all_tasks_blocked()
        assert action.runs == 1
        action.go.set()
    assert action.runs == 2
    await coalesced.run()
    assert action.runs == 3
    assert not coalesced.running


async def test_a_run_that_fails_or_is_cancelled_is_nobody_else_s():
    """The next waiting caller runs the action itself."""
    action = Action()
    action.failure = ValueError("mine")
    coalesced = Coalesced(action)
    outcomes = []

    async def ask(number):
        try:
            await coalesced.run()
        except ValueError:
            outcomes.append((number, "failed"))
        else:
            outcomes.append((number, "done"))

    async with trio.open_nursery() as nursery:
        with trio.move_on_after(0):
            await coalesced.run()
        for number in range(3):
            nursery.start_soon(ask, number)
            await trio.testing.wait_all_tasks_blocked()
        action.go.set()
    assert sorted(outcome for _, outcome in outcomes) == ["done", "done", "failed"]
    action.failure = ValueError("again")
    with pytest.raises(ValueError, match="again"):
        await coalesced.run()
