"""What the processes of a run say, put together: when nothing came at all."""

from __future__ import annotations

import pytest

from gossipkv.address import Address
from gossipkv.loadtest.gathering import SECOND_NS, Gathering
from gossipkv.loadtest.plan import Plan, Step, Target

BEGUN_NS = 5 * SECOND_NS


class Run:
    """News of two processes, at seconds since the run began."""

    def __init__(self, rate=None):
        plan = Plan(targets=(Target("gossipkv", Address("a", 1)),), database="db", keys="k", steps=(Step(rate, 60.0),))
        self.gathering = Gathering(plan, BEGUN_NS)
        self.counted = {0: {"requests": 0, "wrong": 0}, 1: {"requests": 0, "wrong": 0}}

    def hear(self, process, at_s, **more):
        """What is said to have been frozen, in seconds since the run began."""
        told = self.counted[process]
        for name, number in more.items():
            told[name] = told.get(name, 0) + number if isinstance(number, int) else number
        tallies = [[0, 0, {}, None, dict(told)]] if more else []
        news = {"at_ns": BEGUN_NS + round(at_s * SECOND_NS), "tallies": tallies, "versions": []}
        return self.in_seconds(self.gathering.hear_news(process, news))

    def frozen_at_the_end(self, at_s):
        """The same when nobody says anything more."""
        return self.in_seconds(self.gathering.frozen(BEGUN_NS + round(at_s * SECOND_NS)))

    @staticmethod
    def in_seconds(found):
        """As the test writes it."""
        return None if found is None else tuple((at - BEGUN_NS) / SECOND_NS for at in found)


def test_a_second_without_any_answer_is_told_when_it_ends():
    """By whichever process has the first answer; what another one has answered meanwhile is no frost."""
    run = Run()
    for quarter in range(1, 9):
        assert run.hear(0, quarter / 4, requests=5) is None
        assert run.hear(1, quarter / 4) is None
    for quarter in range(9, 14):
        assert run.hear(0, quarter / 4) is None
        assert run.hear(1, quarter / 4, lost=1) is None, "what is lost is no answer"
    assert run.frozen_at_the_end(3.25) == (2.0, 3.25)
    assert run.hear(1, 3.5, requests=1) == (2.0, 3.25)
    assert run.hear(0, 3.5, requests=1) is None
    assert run.hear(0, 4.0) is None
    assert run.hear(0, 4.25, errors={"OVERLOADED": 3}) is None
    assert run.hear(0, 4.75) is None
    assert run.hear(0, 5.0, requests=1) is None, "a refusal is an answer"
    assert run.frozen_at_the_end(5.5) is None


@pytest.mark.parametrize(("rate", "frozen"), [(5.0, None), (100.0, (0.0, 1.5))])
def test_a_slow_load_has_pauses(rate, frozen):
    """Where few requests were due nothing is frozen."""
    run = Run(rate)
    assert run.hear(0, 1.5) is None
    assert run.hear(0, 1.75, requests=1) == frozen
