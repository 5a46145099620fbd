"""The suite that judges stores finds each fault planted in the oracle or the toy store."""

from __future__ import annotations

import random

import pytest

from tests.conformance.store import Witness, check_store
from tests.oracle import store as oracle
from tests.unit.storage.engine import toy_store
from tests.unit.storage.engine.crashing import JUDGES, Crashes, live
from tests.unit.storage.engine.places import OraclePlace, ToyPlace


class ReadsWhatIsNotSynced(oracle.Store):
    def get(self, space, key):
        return self.history.states[-1].get(space, {}).get(key)


class AcknowledgesEarly(oracle.Store):
    """Acknowledges the last batch without its sync."""

    def commit(self):
        self.history.sync(max(self.history.synced, len(self.history.batches) - 1))


class KeepsHalf(oracle.Store):
    """Forgets the second half of a long batch."""

    def append(self, batch):
        *most, marker = batch.operations
        batch.operations = [*(most if len(most) < 4 else most[: len(most) // 2]), marker]
        return super().append(batch)


class DropsAlone(oracle.Store):
    """Lets records of a dropped space be read."""

    def scan(self, space, *bounds, **options):
        """Scan the last state that has the space."""
        for state in self.history.states[self.history.synced :: -1]:
            if space in state:
                older = oracle.Store(oracle.History(states=[state]))
                return oracle.Store.scan(older, space, *bounds, **options)
        return [], None


class GivesSpacesAgain(oracle.Store):
    """Forgets the given numbers of spaces at a start."""

    def __init__(self, history):
        history.next_space = max((space for state in history.states[-1:] for space in state), default=0) + 1
        super().__init__(history)


class GivesPositionsAgain(oracle.Store):
    """Counts on from the last batch that survived."""

    def append(self, batch):
        self.history.last_position = self.history.batches[-1].position if self.history.batches else 0
        return super().append(batch)


class SkipsInTheLog(oracle.Store):
    """Leaves deletes out of its log."""

    def read_log(self, spaces, position):
        found, behind = super().read_log(spaces, position)
        return [(at, [one for one in operations if one[0] != oracle.TOMBSTONE]) for at, operations in found], behind


class ForgetsDeletions(oracle.Store):
    """Keeps deleted records of earlier batches."""

    def append(self, batch):
        batch.operations = [one for one in batch.operations if one[0] != oracle.TOMBSTONE]
        return super().append(batch)


class ScansBackwardsWrong(oracle.Store):
    """Takes the limit before it reverses."""

    def scan(self, space, start=None, end=None, *, reverse=False, limit=None):
        found, cursor = super().scan(space, start, end, limit=limit)
        return found[::-1] if reverse else found, cursor


class TakesAll(oracle.Store):
    """Skips operations on missing spaces instead of refusing the batch."""

    def append(self, batch):
        there = self.history.states[-1]
        try:
            return super().append(batch)
        except oracle.Refused:
            batch.operations = [one for one in batch.operations if one[0] == oracle.VALUE and one[1] in there]
            return super().append(batch)


PLANTED = (
    ReadsWhatIsNotSynced, AcknowledgesEarly, KeepsHalf, DropsAlone, GivesSpacesAgain, GivesPositionsAgain,
    SkipsInTheLog, ForgetsDeletions, ScansBackwardsWrong, TakesAll,
)  # fmt: skip


@pytest.mark.parametrize("planted", PLANTED)
def test_a_planted_fault_is_seen(planted):
    class Place(OraclePlace):
        def open(self):
            return planted(self.history)

    with pytest.raises((AssertionError, pytest.fail.Exception)):
        check_store(Place)


@pytest.mark.parametrize("fault", ["loses", "reorders", "splits"])
def test_a_bad_recovery_is_seen(fault):
    """A recovery loses a synced batch, keeps a later batch without an earlier one, or a part of a batch."""

    class Place(OraclePlace):
        def kill(self, seed):
            history, chance = self.history, random.Random(seed)
            waiting = len(history.batches) - history.synced
            kept = list(history.batches)
            if fault == "loses":
                del kept[-1 - chance.randint(0, waiting) :]
            elif fault == "reorders" and len(kept) > 2:
                kept[-2:] = kept[:-3:-1]
            elif len(kept) > 2:
                kept[-1] = kept[-1]._replace(operations=kept[-1].operations[-1:])
            history.batches, history.states, history.synced = [], [{}], 0
            for position, operations in kept:
                history.append(position, operations)
            history.sync()

        lose_power = kill

    with pytest.raises((AssertionError, oracle.Refused, pytest.fail.Exception)):
        check_store(Place)


def crashed(kind, judge):
    crashes = Crashes(judge, 9)
    witness = Witness(ToyPlace(kind=kind), open_now=False)
    crashes.watch(witness)
    live(witness, seed=1, batches=50)
    return crashes


@pytest.mark.parametrize("planted", toy_store.PLANTED)
def test_a_toy_with_a_planted_fault(planted):
    with pytest.raises((AssertionError, SyntaxError)):  # The prefix of a batch may be no valid literal.
        [crashed(planted, judge) for judge in JUDGES]
