"""Slow tests of the search for an order; the fast ones are in `test_linearizable.py`."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from tests.unit.world.register import test_linearizable as line
from tests.unit.world.register.histories import draw_correct
from tests.world.register.linearizable import Done, Kind, Operation, Read, check

LINEARIZABLE, VIOLATION, INCONCLUSIVE = Kind


def test_long_histories_are_decided():
    """Sixty operations, a tenth of them unknown, are decided, with and without a stale read."""
    chance = random.Random(1)
    verdicts = Counter()
    for _ in range(20):
        right = draw_correct(chance, 60, overlap=chance.choice((5, 20, 40)), least=50, is_telling=True)
        assert check(right).kind is LINEARIZABLE
        read = [one.outcome for one in right if one.call == Read() and isinstance(one.outcome, Done)]
        told = [outcome for outcome in read if outcome.state]
        stale = Operation(Read(), 5000, 5001, told[chance.randrange(len(told) // 2)])
        assert stale.outcome not in told[-2:]
        verdicts[check([*right, stale]).kind] += 1
    assert verdicts[LINEARIZABLE] == 0
    assert verdicts[INCONCLUSIVE] <= 1


@pytest.mark.parametrize("seed", range(1, 8))
def test_verdicts_are_those_of_every_order(seed):
    line.test_verdicts_are_those_of_every_order(seed)
