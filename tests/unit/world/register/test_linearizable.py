"""The search for an order gives the verdict of trying every order, and explains each rejection."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from tests.oracle import brute_force
from tests.unit.world.register.histories import draw_correct, tamper
from tests.world.register.linearizable import Append, Done, Kind, Operation, Read, Refused, Swap, check

LINEARIZABLE, VIOLATION, INCONCLUSIVE = Kind


def plainly(one):
    call, outcome = one.call, one.outcome
    match call:
        case Read():
            named = ("read", None)
        case Append(item):
            named = ("append", item)
        case Swap(expected, wanted):
            named = ("swap", (expected, wanted))
    match outcome:
        case Done(state):
            told = ("done", state)
        case Refused(state):
            told = ("refused", state)
        case None:
            told = None
    return (*named, one.invoked_us, one.completed_us, told)


def agree(history):
    """Check a history both ways; return the verdict."""
    verdict = check(history).kind
    expected = brute_force.is_linearizable([plainly(one) for one in history])
    assert verdict is (LINEARIZABLE if expected else VIOLATION), "\n".join(map(str, history))
    return verdict


@pytest.mark.parametrize("seed", range(1))
def test_verdicts_are_those_of_every_order(seed):
    """Both searches agree on thousands of correct and tampered histories of up to six operations."""
    chance = random.Random(seed)
    verdicts = Counter()
    for _ in range(1000):
        right = draw_correct(chance, 6, overlap=chance.choice((0, 5, 20, 60)))
        assert agree(right) is LINEARIZABLE
        wrong = tamper(chance, right)
        verdicts[agree(wrong)] += 1
        verdicts[agree(tamper(chance, wrong))] += 1
    assert verdicts[VIOLATION] > 600
    assert verdicts[LINEARIZABLE] > 400


def test_the_bound_is_kept():
    """A search that exceeds its steps is inconclusive."""
    chance = random.Random(2)
    right = draw_correct(chance, 120, least=100)
    verdict = check(right, most_steps=10)
    assert (verdict.kind, verdict.steps) == (INCONCLUSIVE, 10)


def test_many_unknown_ones_are_not_tried_in_every_order():
    """Forty appends have unknown outcomes, and one of them was read."""
    history = [Operation(Append(number), 0) for number in range(40)]
    history += [Operation(Read(), 10, 11, Done((7,))), Operation(Read(), 20, 21, Done((7, 33)))]
    verdict = check(history)
    assert verdict.kind is LINEARIZABLE
    assert verdict.steps < 100
    assert check([*history, Operation(Read(), 30, 31, Done((7, 7)))]).kind is VIOLATION


def test_a_contradiction_is_short():
    """The contradiction names only the two operations that exclude each other."""
    history = [Operation(Append(number), 10 * number, 10 * number + 5, Done(None)) for number in range(20)]
    written = Operation(Swap(tuple(range(20)), (50,)), 300, 301, Done((50,)))
    stale = Operation(Read(), 400, 410, Done(tuple(range(20))))
    verdict = check([*history, written, stale])
    assert verdict.kind is VIOLATION
    assert verdict.contradiction == (written, stale)
    assert str(stale) in str(verdict)


def test_every_contradiction_cannot_be_and_cannot_be_shorter():
    """Without any one of its statements a contradiction, with all else unknown, has an order."""
    chance = random.Random(3)
    shown = 0
    while shown < 100:
        wrong = tamper(chance, draw_correct(chance, 12))
        found = check(wrong)
        if found.kind is not VIOLATION:
            continue
        shown += 1
        for spared in (None, *found.contradiction):
            told = [one for one in found.contradiction if one is not spared]
            rest = [one._replace(outcome=None) for one in wrong if one not in told and one.outcome != Refused(None)]
            assert check([*told, *rest]).kind is (VIOLATION if spared is None else LINEARIZABLE)


def test_a_history_that_runs_backwards_is_refused():
    with pytest.raises(ValueError, match="completed before it was invoked"):
        check([Operation(Read(), 5, 4, Done(()))])


@pytest.mark.parametrize(
    "history",
    [
        # The reads go back and forth.
        [
            Operation(Append(1), 0, 10, Done((1,))),
            Operation(Read(), 1, 2, Done((1,))),
            Operation(Read(), 3, 4, Done(())),
        ],
        # The first append was acknowledged and lost.
        [Operation(Append(1), 0, 10, Done((1,))), Operation(Append(2), 20, 30, Done((2,)))],
        # Two swaps of one state succeed.
        [Operation(Swap((), (1,)), 0, 10, Done((1,))), Operation(Swap((), (2,)), 0, 10, Done((2,)))],
        # The swap is refused for a state that does not exist yet.
        [Operation(Swap((), (1,)), 0, 10, Refused((2,))), Operation(Append(2), 20)],
        # The value was read although the append was never tried.
        [Operation(Append(1), 0, 10, Refused(None)), Operation(Read(), 5, 6, Done((1,)))],
        # An append of unknown outcome took effect twice.
        [Operation(Append(1), 0), Operation(Read(), 5, 6, Done((1, 1)))],
        # The value was read before it was requested.
        [Operation(Read(), 5, 6, Done((1,))), Operation(Append(1), 7)],
        # A read is refused.
        [Operation(Read(), 5, 6, Refused(()))],
    ],
)
def test_planted_violations_are_rejected(history):
    assert agree(history) is VIOLATION


def test_what_says_nothing_is_left_out():
    """Operations of unknown outcome always have an order."""
    assert check([Operation(Read(), 0), Operation(Append(1), 0), Operation(Read(), 1, 2, Done(None))]).steps == 0
