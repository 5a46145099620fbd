"""Each checker of registers reports the violation that is planted for it, and nothing before."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from gossipkv.register.ballot import ZERO, Ballot
from gossipkv.register.changes import Applied
from gossipkv.register.configuration import AcceptorId, Acceptors, Value
from gossipkv.register.messages import AcceptorRecord, AcceptorVerdict, Reply
from tests.world.promises import Promises
from tests.world.register.checkers import Checkers
from tests.world.register.history import Asked, History
from tests.world.register.linearizable import Append, Done, Read, Refused, Swap
from tests.world.register.log import Logs
from tests.world.world import World

REGISTER = bytes(16)
THREE = [AcceptorId(bytes([number]) * 16, number) for number in (1, 2, 3)]
ACCEPTORS = Acceptors.of(THREE)
MACHINE = SimpleNamespace(name="m0")


def ballot(counter, generation=0):
    return Ballot(generation, generation, counter, 5)


class Scene:
    def __init__(self):
        world = World(1)
        self.logs = Logs()
        self.promises = Promises(world)
        self.history = History(ACCEPTORS)
        self.checkers = Checkers(self.promises, self.logs, {REGISTER: self.history})
        self.first = self.apply(Append(1), 1, b"")
        self.second = self.apply(Swap((1,), (2,)), 2, self.first)
        self.commit(ZERO, b"")
        self.commit(ballot(1), self.first)
        self.commit(ballot(2), self.second)
        self.ask(1, Append(1), (10, 20), Done((1,)), self.first)
        self.ask(2, Swap((1,), (2,)), (30, 40), Done((2,)), self.second)

    def apply(self, call, operation, payload):
        applied = self.logs.change_of(call, operation)(Value(ACCEPTORS, payload), 0)
        assert isinstance(applied, Applied)
        return applied.payload

    def commit(self, at, payload, by=THREE):
        record = AcceptorRecord(at, at, Value(ACCEPTORS, payload))
        for acceptor in by:
            self.checkers.kept(MACHINE, REGISTER, record)
            self.checkers.synced(MACHINE, acceptor, REGISTER, record)

    def ask(self, operation, call, time_us, outcome, payload, *, branch=(0, 0)):
        name = None if payload is None else self.logs[payload].name
        told = Asked(operation, call, *time_us, outcome, name, branch)
        self.history.asked[operation] = told

    def complaints(self):
        self.checkers.finish()
        return {violation.checker for violation in self.promises.violations}


@pytest.fixture
def scene():
    assert Scene().complaints() == set()
    return Scene()


def test_one_value_a_ballot(scene):
    scene.checkers.kept(MACHINE, REGISTER, AcceptorRecord(ballot(2), ballot(2), Value(ACCEPTORS, scene.first)))
    assert scene.complaints() == {"one_value_a_ballot"}


def test_promise_not_below_accepted(scene):
    scene.checkers.kept(MACHINE, REGISTER, AcceptorRecord(ballot(1), ballot(2), Value(ACCEPTORS, scene.second)))
    assert scene.complaints() == {"promise_not_below_accepted"}


def test_promises_never_fall(scene):
    """A disk may not have a lower ballot or generation than before."""
    scene.checkers.synced(MACHINE, THREE[0], REGISTER, AcceptorRecord(ballot(1)))
    assert scene.complaints() == {"promise_never_falls"}


def test_conflict_never_falls(scene):
    """The count of conflicting forces may not fall."""
    for conflict in (1, 0):
        scene.checkers.synced(MACHINE, THREE[0], REGISTER, AcceptorRecord(ballot(9), conflict=conflict))
    assert scene.complaints() == {"conflict_never_falls"}


def test_logs_are_linked(scene):
    other = scene.apply(Append(7), 7, b"")
    scene.checkers.kept(
        MACHINE, REGISTER, AcceptorRecord(ballot(3), ballot(3), Value(ACCEPTORS, other + scene.second[-15:]))
    )
    assert scene.complaints() == {"log_is_linked"}


@pytest.mark.parametrize(
    "synced", [None, AcceptorRecord(ballot(2)), AcceptorRecord(ballot(3), ballot(2), Value(ACCEPTORS, b""))]
)
def test_answered_is_synced(scene, synced):
    """An acceptor may answer only with a record that is on its disk."""
    told = AcceptorRecord(ballot(3), ballot(3), Value(ACCEPTORS, scene.second))
    reply = Reply(AcceptorVerdict.OK, REGISTER, THREE[0], 1, ballot(3), told)
    scene.checkers.answered(MACHINE, reply, told)
    assert scene.complaints() == set()
    scene.checkers.answered(MACHINE, reply, synced)
    assert scene.complaints() == {"answered_is_synced"}


def test_told_is_committed(scene):
    scene.commit(ballot(3), scene.second, by=THREE[:1])
    scene.checkers.told(REGISTER, ballot(2), Value(ACCEPTORS, scene.second))
    assert scene.complaints() == set()
    scene.checkers.told(REGISTER, ballot(3), Value(ACCEPTORS, scene.second))
    assert scene.complaints() == {"told_is_committed"}


def test_one_chain(scene):
    """A commit that does not build on the last one is reported."""
    other = scene.apply(Append(3), 3, scene.first)
    scene.history.asked[3] = Asked(3, Append(3), 50)
    scene.commit(ballot(3), other)
    assert scene.complaints() == {"one_chain"}


def test_refused_ones_are_on_no_chain(scene):
    scene.ask(3, Append(3), (50, 60), Refused(None), None, branch=None)
    assert scene.complaints() == set()
    scene.commit(ballot(3), scene.apply(Append(3), 3, scene.second))
    assert "one_chain" in scene.complaints()


def test_reads_have_an_order(scene):
    scene.ask(3, Read(), (50, 60), Done((1,)), scene.second)
    assert scene.complaints() == {"linearizable"}


def test_a_force_may_lose_what_was_committed(scene):
    """A force may lose what only the removed acceptors had, but not what was answered after it."""
    scene.history.forces[1, 1] = 45
    other = scene.apply(Append(3), 3, scene.first)
    scene.commit(ballot(1, generation=1), scene.first)
    scene.ask(3, Append(3), (50, 60), Done((1, 3)), other, branch=(1, 1))
    scene.commit(ballot(2, generation=1), other)
    assert scene.complaints() == set()
    scene.ask(4, Read(), (70, 80), Done((1,)), scene.first, branch=(1, 1))
    assert scene.complaints() == {"one_chain", "linearizable"}


def test_a_force_keeps_what_its_survivors_had(scene):
    """Values on the chain of the force keep their place in time."""
    scene.history.forces[1, 1] = 45
    scene.commit(ballot(1, generation=1), scene.first)
    scene.ask(4, Read(), (70, 80), Done(()), b"", branch=(1, 1))
    assert scene.complaints() == {"one_chain", "linearizable"}
