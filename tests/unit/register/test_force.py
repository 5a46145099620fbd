"""Forces restore a register without a majority, refuse healthy registers, and exclude left-out acceptors."""

from __future__ import annotations

from itertools import permutations

import pytest

from gossipkv.register.configuration import Acceptors
from gossipkv.register.messages import RequestKind
from gossipkv.register.proposal import ChangeEnd
from tests.unit.register.scripted import Scripted, id_of, is_a


def world_with(appends):
    """Return a world of three acceptors with this many appended ids, and its proposer."""
    world = Scripted()
    party = world.party()
    for _ in range(appends):
        world.append(party)
        world.carry()
    return world, party


def end_of(world):
    """Return the end of the last request."""
    return world.history.ends.get(world.tickets)


def said(world):
    """Return the message of the last request's outcome."""
    return world.outcomes[world.tickets].message


def test_a_majority_is_lost():
    """The survivor goes on with its value; later values name the acceptors left out."""
    world, party = world_with(3)
    a, b, c, *_ = world.nodes
    b.is_up = c.is_up = False
    world.append(party, patience_ms=100)
    world.settle()
    assert end_of(world) is not ChangeEnd.DONE
    world.force(a)
    world.settle()
    assert end_of(world) is ChangeEnd.DONE
    ticket = world.append(party)
    world.settle()
    value = world.outcomes[ticket].value
    assert value.acceptors == Acceptors.of([a.id])
    assert value.payload.startswith(b"".join(map(id_of, (1, 2, 3))))
    assert [force.left_out for force in value.forces] == [tuple(sorted((b.id, c.id)))]
    world.history.end(world.watch)


def test_the_old_majority_returns():
    """Acceptors that hear of the force drop their older value; only writes that they alone had are lost."""
    world, party = world_with(2)
    a, b, c, *_ = world.nodes
    lost = world.append(party)
    world.carry(b, c)
    assert world.history.ends[lost] is ChangeEnd.DONE  # A never heard of it.
    world.lose_all()
    b.is_up = c.is_up = False
    world.force(a)
    world.settle(a)
    assert end_of(world) is ChangeEnd.DONE
    b.is_up = c.is_up = True
    told = []
    for known in ((a, b, c), (b, c, a)):
        late = world.party(*known)
        world.teach(late, a)
        told.append(world.append(late))
        world.settle()
    assert [world.history.ends[ticket] for ticket in told] == [ChangeEnd.DONE] * 2
    assert world.payload(told[-1]) == b"".join(map(id_of, (1, 2, *told)))


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_the_old_majority_never_goes_on_with_who_has_heard(order):
    """In any order of three replies, one of which shows the force, no change happens without its value."""
    world, _ = world_with(2)
    nodes = a, b, c = world.nodes[:3]
    b.is_up = c.is_up = False
    world.force(a)
    world.settle(a)
    b.is_up = c.is_up = True
    late = world.party(a, b, c)
    ticket = world.append(late)
    for at in order:
        world.carry(nodes[at], which=is_a(RequestKind.PREPARE))
    world.settle()
    assert order[-1] == 0 or world.outcomes[ticket].ballot.generation == 1


def test_what_is_cached_ends_with_its_generation():
    """A proposer drops its cached promise when it hears of a force."""
    world, party = world_with(3)
    a, b, c, *_ = world.nodes
    world.force(a)
    world.refuse_all(b, c)
    world.settle(a)
    assert end_of(world) is ChangeEnd.DONE
    world.teach(party, a)
    world.append(party)
    world.settle()
    assert end_of(world) is ChangeEnd.DONE
    assert world.record(b).accepted.generation == 0
    assert world.payload(world.tickets) == b"".join(map(id_of, (1, 2, 3, 5)))


def test_a_round_builds_on_a_value_of_its_own_generation():
    """A survivor that only promised and the lost majority make no quorum."""
    world = Scripted(founders=7, nodes=7)
    world.append(world.party())
    world.settle(ms=1000)
    *lost, e, f, g = world.nodes
    world.force(e, f, g)
    world.refuse_all(*lost)
    world.carry(which=lambda message: message.acceptor != g.id or not is_a(RequestKind.ACCEPT)(message))
    world.lose_all()
    assert end_of(world) is ChangeEnd.DONE
    assert (world.record(g).promise.generation, world.record(g).accepted.generation) == (1, 0)
    party, other = world.party(), world.party()
    for one in (party, other):
        world.teach(one, e)
    first, second = world.append(party), world.append(other)
    world.carry(g, *lost, which=lambda message: message.party is party)
    world.carry(e, f, which=lambda message: message.party is other)
    world.settle(ms=3000)
    world.history.end(world.watch)
    assert [world.history.ends[ticket] for ticket in (first, second)] == [ChangeEnd.DONE] * 2


def test_a_force_that_was_begun_stops_the_old_majority():
    """Neither generation goes on until the force is repeated."""
    world, party = world_with(1)
    a, b, c, *_ = world.nodes
    b.is_up = False
    c.is_up = False
    world.force(a)
    world.carry(a)
    world.refuse_all(b, c)
    world.carry(a, which=is_a(RequestKind.PREPARE))  # Its accept is lost.
    assert world.record(a).promise.generation == 1
    world.lose_all()
    b.is_up = c.is_up = True
    world.teach(party, a)
    ticket = world.append(party)
    world.settle(ms=3000)
    assert world.history.ends.get(ticket) is None
    world.forces[-1].core.wake(world.now_ms + 20_000)
    world.forces[-1].perform()
    assert end_of(world) is None or world.history.ends[world.tickets - 1] is ChangeEnd.UNKNOWN
    b.is_up = c.is_up = False
    world.force(a)
    world.settle(ms=3000)
    assert end_of(world) is ChangeEnd.DONE
    assert world.outcomes[world.tickets].ballot.generation == 2
    assert world.history.ends[ticket] is ChangeEnd.DONE


@pytest.mark.parametrize("survivors", [1, 2, 3])
def test_a_healthy_register_is_not_forced(survivors):
    world, party = world_with(2)
    world.force(*world.nodes[:survivors])
    world.settle()
    assert end_of(world) is ChangeEnd.REFUSED
    assert "a force is not allowed" in said(world)
    ticket = world.append(party)
    world.settle()
    assert world.outcomes[ticket].ballot.generation == 0


@pytest.mark.parametrize("lost", ["old", "new"])
def test_both_sets_of_a_joint_configuration_have_to_answer(lost):
    """A joint configuration with one lost set is forced, even if the other set has its majority."""
    world, party = world_with(1)
    a, b, c, d, e = world.nodes
    world.reconfigure(party, a, d, e)
    world.carry(which=is_a(RequestKind.PREPARE))
    for message in list(world.bag):  # All accept the joint configuration, and the answers are lost.
        world.carry_one(message)
    world.lose_all()
    joint = world.record(a).value.acceptors
    assert joint.joint
    gone, there = ((b, c), d) if lost == "old" else ((d, e), b)
    for node in gone:
        node.is_up = False
    world.force(a, there, known=joint)
    world.settle(ms=4000)
    assert end_of(world) is ChangeEnd.DONE
    assert world.outcomes[world.tickets].value.acceptors == Acceptors.of([a.id, there.id])


def test_every_survivor_has_to_promise():
    """One silent survivor makes the force refuse, and its accepted value is not lost."""
    world, party = world_with(2)
    a, b, c, d, e = world.nodes
    world.reconfigure(party, a, b, c, d, e)
    world.settle()
    ticket = world.append(party)
    world.carry(a, b, c)
    world.lose_all()
    assert world.history.ends[ticket] is ChangeEnd.DONE
    b.is_up = c.is_up = False
    world.force(a, d, known=party.core.acceptors)
    world.carry(a, d, e, which=is_a(RequestKind.READ))
    world.wait(5000)
    world.carry(d, which=is_a(RequestKind.PREPARE))
    world.lose_all()
    world.wait(20_000)
    assert end_of(world) is ChangeEnd.REFUSED
    world.force(a, d, known=party.core.acceptors)
    world.settle(a, d, e)
    assert end_of(world) is ChangeEnd.REFUSED  # E makes three of five.
    e.is_up = False
    world.force(a, d, known=party.core.acceptors)
    world.settle(a, d, ms=4000)
    assert end_of(world) is ChangeEnd.DONE
    assert id_of(ticket) in world.payload(world.tickets)


def test_a_majority_of_survivors_is_not_enough():
    """A value that the third survivor accepts with others would be lost."""
    world = Scripted(founders=6, nodes=6)
    ticket = world.append(world.party())
    a, b, c, *others = world.nodes
    world.carry()
    assert world.history.ends[ticket] is ChangeEnd.DONE
    for node in others:
        node.is_up = False
    world.force(a, b, c)
    world.carry(which=is_a(RequestKind.READ))
    c.is_up = False
    world.settle(a, b, ms=25_000)
    assert end_of(world) is ChangeEnd.REFUSED
    assert world.record(a).accepted.generation == 0


def test_no_stranger_survives():
    """Survivors must be acceptors with a record."""
    world, party = world_with(1)
    a, b, c, d, _ = world.nodes
    b.is_up = c.is_up = False
    world.force(a, d)
    world.settle(ms=4000)
    assert end_of(world) is ChangeEnd.REFUSED
    world.reconfigure(party, a)
    world.settle(ms=100)
    a.is_up = False
    world.force(b)
    world.settle(ms=4000)
    assert end_of(world) is ChangeEnd.REFUSED


def test_two_forces_on_the_sides_of_a_cut():
    """A proposer that hears of both forces uses neither until a third force of a higher generation."""
    world = Scripted(founders=4)
    party = world.party()
    a, b, c, d, _ = world.nodes
    shared = world.append(party)
    world.carry()
    sides = [world.party(), world.party()]
    tickets = []
    for side, survivors in zip(sides, ((a, b), (c, d)), strict=True):
        world.force(*survivors)
        world.settle(*survivors, ms=3000)
        tickets.append(world.append(side))
        world.settle(*survivors, ms=1000)
    assert [world.history.ends[ticket] for ticket in tickets] == [ChangeEnd.DONE] * 2
    healed = [world.append(side) for side in (*sides, party)]
    world.settle(ms=3000)
    assert {world.history.ends[ticket] for ticket in healed} <= {ChangeEnd.REFUSED, ChangeEnd.UNKNOWN, ChangeEnd.DONE}
    for node in (a, b, c, d):  # Each acceptor knows of the conflict, after a crash as well.
        assert world.record(node).conflict == 1
        node.crash()
        assert world.record(node).conflict == 1
    fresh = world.party(a, b, c, d)
    refused = world.append(fresh)
    world.settle(ms=1000)
    assert world.history.ends[refused] is ChangeEnd.REFUSED
    world.force(a, b)
    world.settle(ms=4000)
    assert end_of(world) is ChangeEnd.DONE
    again = world.append(fresh)
    world.settle(ms=3000)
    assert world.history.ends[again] is ChangeEnd.DONE
    assert world.payload(again).startswith(id_of(shared) + id_of(tickets[0]))


def test_two_forces_at_once_on_the_same_survivors():
    """Both fail durably, and a third goes on."""
    world, party = world_with(1)
    a, b, c, *_ = world.nodes
    b.is_up = c.is_up = False
    first, second = world.force(a), world.force(a)
    world.settle(a, ms=25_000)
    assert ChangeEnd.DONE not in {world.history.ends.get(2), world.history.ends.get(3)}
    assert first.core.is_over
    assert second.core.is_over
    assert world.record(a).conflict == 1
    world.force(a)
    world.settle(a, ms=4000)
    assert end_of(world) is ChangeEnd.DONE
    ticket = world.append(party)
    world.settle(a)
    assert world.outcomes[ticket].ballot[0] == 2


def test_a_register_that_moves_on_under_a_force_is_not_forced():
    """A decision between the read and the promises shows that the register lives."""
    world, party = world_with(1)
    a, *_ = world.nodes
    world.force(a)
    world.carry(a)
    world.wait(5000)  # B and C seem lost.
    ticket = world.append(party)
    world.carry(which=lambda message: message.party is party)
    assert world.history.ends[ticket] is ChangeEnd.DONE
    world.settle(a, ms=1000)
    assert world.history.ends[2] is ChangeEnd.REFUSED
