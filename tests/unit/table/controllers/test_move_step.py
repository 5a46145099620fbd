"""The next step of a host in a move, in each state, from the reports of other hosts."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from gossipkv.replication._replication import encode_state
from gossipkv.replication.replica import clock
from gossipkv.replication.replica.bootstrap import Bootstrap
from gossipkv.replication.replica.keys import ReplicaIdentity
from gossipkv.replication.replica.replica import AssignedReplica, PartitionRules, Replica
from gossipkv.table.controllers.move_step import (
    Advance,
    MoveView,
    RemoveFormer,
    ReplicaReport,
    SetEnds,
    Unassign,
    next_step,
    report_of,
)

CONFIG = 5
A, B, C, T = (
    1,
    2,
    3,
    4,
)  # Assignments in slots 0, 1 and 2, and a target for slot 2; node numbers are equal.
PROPOSED, LOADING, AVAILABLE = "PROPOSED", "LOADING", "AVAILABLE"


class Scene(NamedTuple):
    """A partition with the states of its assignments.

    If a slot has two and the last is AVAILABLE, the first is LEAVING.
    """

    states: dict[int, str]
    former: tuple[int, ...] = ()
    ends: tuple[tuple[int, int | None], ...] = ()
    slots: int = 3

    @property
    def hosts(self):
        slot = {A: 0, B: 1, C: 2, T: 2}
        is_left = self.states.get(T) == AVAILABLE
        return [
            AssignedReplica(one, node(one), slot[one], counts=not (is_left and one == C), available=state == AVAILABLE)
            for one, state in self.states.items()
        ]

    def copy(self, me, counters, *, joining=None):
        """Return a replica of the partition with these counters."""
        named = sorted({*self.states, *self.former})
        now = clock.named(clock.of(counters.items()), named)
        copy = Replica(7, ReplicaIdentity(b"table", 0, me), encode_state(0, CONFIG, now, now), joining=joining)
        copy.adopts(
            CONFIG, self.hosts, PartitionRules(self.slots, self.former, self.ends, loads=self.states[me] == LOADING)
        )
        return copy

    def step(self, me, counters, told=(), *, joining=None, **known):
        """Return its next step, given the clocks (or clocks and configs) in `told`."""
        reports = {node(me): ReplicaReport(me, CONFIG, clock.of(counters.items()), joining is None)}
        for one, (said, config) in dict(told).items():
            reports[node(one)] = ReplicaReport(one, config, clock.of(said.items()), is_whole=True)
        return next_step(self.copy(me, counters, joining=joining), MoveView(reports, **known))


def node(assignment):
    return bytes([assignment])


def all_say(counters, *who, config=CONFIG):
    return dict.fromkeys(who, (counters, config))


COMES = Scene({A: AVAILABLE, B: AVAILABLE, C: AVAILABLE, T: PROPOSED})
LOADS = COMES._replace(states={**COMES.states, T: LOADING})
LEAVES = COMES._replace(states={**COMES.states, T: AVAILABLE})


def test_proposed():
    """AVAILABLE hosts of a majority of slots must have adopted the config that names the target."""
    for told in ({}, all_say({}, A), all_say({}, A) | all_say({}, B, config=CONFIG - 1)):
        assert COMES.step(T, {}, told, joining=Bootstrap()) is None
    for told in (all_say({}, A, B), all_say({}, A, C, config=CONFIG + 1)):
        assert COMES.step(T, {}, told, joining=Bootstrap()) == Advance(T, 2)


def test_initializing():
    """The target must be complete and cover the adopted hosts of a majority of slots and its own."""
    has = {A: 3, B: 2, C: 4}
    assert LOADS.step(T, has, all_say(has, A, B, C), joining=Bootstrap(is_loaded=True)) is None
    assert LOADS.step(T, has, all_say(has, A, C)) == Advance(T, 3)
    assert LOADS.step(T, has, all_say(has, C)) is None
    assert LOADS.step(T, has, all_say(has, C) | all_say(has, A, B, config=CONFIG - 1)) is None
    assert LOADS.step(T, has, all_say(has, C) | all_say({**has, A: 4}, A, B)) is None
    for told in (all_say(has, A, B), all_say(has, A, B) | all_say(has, C, config=CONFIG - 1)):
        assert LOADS.step(T, has, told) is None
        assert LOADS.step(T, has, told, waited=True) == Advance(T, 3)  # The source does not answer.
    behind = all_say(has, A, B) | all_say({**has, C: 5}, C)
    assert LOADS.step(T, has, behind, waited=True) is None  # The source answers, and has more.


def test_a_target_that_comes_to_an_empty_slot():
    """The target has no source; if hosts are fewer than a majority of slots, all of them suffice."""
    has = {A: 3}
    two, one = Scene({A: AVAILABLE, B: AVAILABLE, T: LOADING}), Scene({A: AVAILABLE, T: LOADING})
    assert two.step(T, has, all_say(has, A)) is None
    assert two.step(T, has, all_say(has, A, B)) == Advance(T, 3)
    assert one.step(T, has) is None
    assert one.step(T, has, all_say(has, A)) == Advance(T, 3)


def test_a_majority_is_one_of_the_slots_that_there_are_to_be():
    """Two hosts are no majority of five slots, though only three slots have a host."""
    comes = COMES._replace(slots=5)
    assert comes.step(T, {}, all_say({}, A, B), joining=Bootstrap()) is None
    assert comes.step(T, {}, all_say({}, A, B, C), joining=Bootstrap()) == Advance(T, 2)


def test_who_answers_for_another_assignment_says_nothing():
    """The node was removed and has joined again."""
    told = {node(one): ReplicaReport(one, CONFIG, b"", is_whole=True) for one in (A, B)}
    copy = COMES.copy(T, {}, joining=Bootstrap())
    assert next_step(copy, MoveView(told)) == Advance(T, 2)
    assert next_step(copy, MoveView({**told, node(B): told[node(B)]._replace(assignment=9)})) is None


def test_what_is_reported_is_synced():
    """A report has the synced config, and no clock while the replica is incomplete."""
    host, target = COMES.copy(A, {A: 3}), COMES.copy(T, {A: 3}, joining=Bootstrap())
    host.adopts(CONFIG + 1, COMES.hosts, PartitionRules(3))
    assert report_of(host) == ReplicaReport(A, CONFIG, host.synced, is_whole=True)
    host.has_adopted(CONFIG + 1)
    assert report_of(host).config == CONFIG + 1
    assert report_of(target) == ReplicaReport(T, CONFIG, clock.named(b"", (A, B, C, T)), is_whole=False)


def test_who_leaves_is_no_reporter():
    """The AVAILABLE host answers for the slot of a leaving one."""
    left = LEAVES._replace(ends=((9, None),))
    assert left.step(A, {}, all_say({}, C)) is None
    assert left.step(A, {}, all_say({}, T)) == SetEnds(((9, 0),))
    last = left._replace(states={C: AVAILABLE, T: AVAILABLE})
    assert last.step(T, {}, all_say({}, C)) == SetEnds(((9, 0),))  # The step does not wait for that host.


def test_leaving():
    """A leaving host goes once every AVAILABLE host has adopted the map and covers its records."""
    has = {A: 3, B: 2, C: 4, T: 1}
    more = {**has, A: 9}
    assert LEAVES.step(C, has, all_say(more, A, B, T)) == Unassign(C)
    assert LEAVES.step(C, has, all_say(more, A, B)) is None
    assert LEAVES.step(C, has, all_say(more, A, B) | all_say({**more, C: 3}, T)) is None
    assert LEAVES.step(C, has, all_say(more, A, B) | all_say(more, T, config=CONFIG - 1)) is None
    assert LEAVES.step(C, has, all_say(more, A, T), gone={node(B)}) == Unassign(C)
    assert LEAVES.step(C, has, {}, gone={node(A), node(B), node(T)}) is None


def test_who_is_gone_for_good():
    """A host with own records is removed by force, by the first host that answers, never by itself."""
    assert COMES.step(A, {}, {}, gone={node(C)}) == Unassign(C, by_force=True)
    assert COMES.step(A, {}, {}, gone={node(T)}) == Unassign(T)
    assert LEAVES.step(A, {}, {}, gone={node(C)}) == Unassign(C, by_force=True)
    assert COMES.step(B, {}, all_say({}, A), gone={node(C)}) is None
    assert COMES.step(B, {}, {}, gone={node(C)}) == Unassign(C, by_force=True)
    assert COMES.step(A, {}, all_say({}, B, C), gone={node(A)}) is None


@pytest.mark.parametrize(("slots", "states", "told"), [(3, (A, B), (B,)), (2, (A,), ())])
def test_an_end_by_those_that_have_adopted(slots, states, told):
    """The end is the highest counter among a majority of slots, or among all slots with an AVAILABLE host."""
    left = Scene(dict.fromkeys(states, AVAILABLE), former=(C, 9), ends=((9, None), (C, None), (8, 3)), slots=slots)
    has = {A: 3, C: 4, 9: 1}
    most = {C: 6, 9: 1} if told else has
    if told:
        assert left.step(A, has) is None
        assert left.step(A, has, all_say(most, *told, config=CONFIG - 1)) is None
    assert left.step(A, has, all_say(most, *told)) == SetEnds(((9, 1), (C, most[C])))


def test_a_target_that_stalls_is_given_up():
    """The records that the target has confirmed are on a majority of slots, and no AVAILABLE host depends on it."""
    assert COMES.step(A, {}, {}, stalled={T}) == Unassign(T)
    assert COMES.step(A, {}, {}, stalled={B}) is None
    alone = Scene({A: AVAILABLE, B: AVAILABLE, T: LOADING})
    assert alone.step(A, {}, {}, stalled={T}) == Unassign(T)


def test_what_is_former_is_settled():
    """All assigned replicas, dead or alive, must be complete and report equal counters under this config."""
    rest = Scene({A: AVAILABLE, B: AVAILABLE, T: AVAILABLE}, former=(C, 9))
    has = {A: 3, C: 4, 9: 1}
    same = all_say({**has, A: 1}, B, T)
    assert rest.step(A, has, same) == RemoveFormer(((C, 4), (9, 1)))
    assert rest.step(A, has, {**same, T: ({**has, 9: 2}, CONFIG)}) == RemoveFormer(((C, 4),))
    assert rest.step(A, has, {**same, T: ({**has, 9: 2, C: 5}, CONFIG)}) is None
    assert rest.step(A, has, {**same, T: (has, CONFIG + 1)}) is None
    assert rest.step(A, has, all_say(has, B)) is None
    assert rest.step(T, has, all_say(has, A, B)) is None  # Another host takes the step.
    moving = Scene({A: AVAILABLE, B: AVAILABLE, T: LOADING}, former=(C,))
    joining = {node(T): ReplicaReport(T, CONFIG, b"", is_whole=False)}
    both = {node(one): ReplicaReport(one, CONFIG, b"", is_whole=True) for one in (A, B)}
    assert next_step(moving.copy(A, {}), MoveView({**both, **joining})) is None


def test_nothing_is_done_by_a_config_that_is_not_synced():
    """A node that is no host takes no step either."""
    copy = COMES.copy(T, {}, joining=Bootstrap())
    copy.synced_config = CONFIG - 1
    told = {node(one): ReplicaReport(one, CONFIG, b"", is_whole=True) for one in (A, B, C)}
    assert next_step(copy, MoveView(told)) is None
    stranger = COMES.copy(T, {}, joining=Bootstrap())
    stranger.hosts = [host for host in COMES.hosts if host.assignment != T]
    assert next_step(stranger, MoveView(told)) is None
