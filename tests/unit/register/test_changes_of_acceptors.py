"""Acceptors change safely under hard interleavings and with newcomers that die, forget or lag."""

from __future__ import annotations

import pytest

from gossipkv.register.ballot import Ballot
from gossipkv.register.configuration import Acceptors
from gossipkv.register.messages import AcceptorRecord, RequestKind
from gossipkv.register.proposal import ChangeEnd
from tests.unit.register.scripted import Scripted, is_a


def accepted_by(world, *nodes):
    """Let pending accepts reach these nodes alone, and lose the answers."""
    world.carry(*nodes, which=is_a(RequestKind.PREPARE))
    for message in [message for message in world.bag if is_a(RequestKind.ACCEPT)(message)]:
        if message.acceptor in {node.id for node in nodes}:
            world.carry_one(message)
    world.lose_all()


def with_a_high_ballot(party, counter=1000):
    party.core.learn(AcceptorRecord(Ballot(0, 0, counter, 1)))
    return party


def test_phase_1_goes_on_beyond_whom_it_knew():
    """Two promises of a remembered set do not make a quorum of the current set, whose value stays."""
    world = Scripted()
    a, b, c, d, e = world.nodes
    party = world.party()
    world.reconfigure(party, c, d, e)
    world.settle()
    first = world.append(party)
    world.carry(d, e)
    assert world.history.ends[first] is ChangeEnd.DONE
    world.lose_all()
    second = world.append(with_a_high_ballot(world.party(a, b, c)))
    world.carry(a, b, which=is_a(RequestKind.PREPARE))
    world.settle(d, e)
    assert world.payload(second).startswith(world.payload(first))


def test_phase_1_asks_both_halves():
    """A majority of the new set alone does not know what the old set committed."""
    world = Scripted()
    a, b, _, d, e = world.nodes
    world.reconfigure(world.party(), *world.nodes[2:])
    world.carry(a, b, which=is_a(RequestKind.PREPARE))
    accepted_by(world, d, e)
    assert world.record(d).value.acceptors.joint
    first = world.append(world.party())
    world.carry(a, b)
    assert world.history.ends[first] is ChangeEnd.DONE
    world.lose_all()
    second = world.append(with_a_high_ballot(world.party(*world.nodes[2:])))
    world.carry(d, e, which=is_a(RequestKind.PREPARE))
    world.settle(a, b, d, e)
    assert world.payload(second).startswith(world.payload(first))


def test_a_joint_configuration_is_left_by_who_has_committed_it():
    """A proposer commits a joint configuration that one old acceptor has first; otherwise two chains go on."""
    world = Scripted(nodes=6)
    a, b, c, d, e, f = world.nodes
    world.reconfigure(world.party(), d, e, f)
    world.carry(which=is_a(RequestKind.PREPARE))
    accepted_by(world, a)
    world.append(with_a_high_ballot(world.party(), 1000))
    world.carry(a, b, d, e, which=is_a(RequestKind.PREPARE))
    accepted_by(world, a, d, e)
    one = world.append(with_a_high_ballot(world.party(d, e, f), 2000))
    world.carry(d, e)
    world.lose_all()
    other = world.append(with_a_high_ballot(world.party(a, b, c), 3000))
    world.carry(b, c)
    assert world.history.ends == {other: ChangeEnd.DONE}, one


def test_a_read_ends_a_joint_configuration():
    """The proposer that entered the joint configuration dies; a mere reader finishes the change."""
    world = Scripted()
    a, b, c, d, e = world.nodes
    world.reconfigure(world.party(), c, d, e)
    world.carry(which=is_a(RequestKind.PREPARE))
    accepted_by(world, *world.nodes)
    world.parties.clear()
    assert world.record(a).value.acceptors.joint, b
    read = world.read(world.party())
    world.settle()
    assert world.history.ends[read] is ChangeEnd.DONE
    assert world.record(c).value.acceptors == Acceptors.of([c.id, d.id, e.id])


def test_no_joint_configuration_begins_in_another():
    """A proposer that finds a joint configuration commits it before another change of acceptors."""
    world = Scripted(nodes=6)
    a, b, c, d, e, f = world.nodes
    world.reconfigure(world.party(), d, e, f)
    world.carry(which=is_a(RequestKind.PREPARE))
    accepted_by(world, a, b, d, e)
    joint = world.record(a).value.acceptors
    assert joint.joint
    world.reconfigure(with_a_high_ballot(world.party(), 1000), b, c)
    world.carry(which=is_a(RequestKind.PREPARE))
    accepted_by(world, a)
    assert world.record(a).accepted.counter >= 1000
    assert world.record(a).value.acceptors == joint, f


def test_a_joint_configuration_needs_both_sets_when_it_is_entered():
    """Accepts by a majority of the old set alone commit nothing."""
    world = Scripted()
    a, b, c, d, e = world.nodes
    party = world.party()
    world.append(party)
    world.carry()
    world.append(party)  # The proposer stays from now on.
    world.carry()
    world.reconfigure(party, c, d, e)
    world.carry(which=is_a(RequestKind.PREPARE))
    world.carry(a, b)
    assert len({message.number for message in world.bag}) == 1, "another round"
    world.carry()
    assert world.record(d).value.acceptors == Acceptors.of([c.id, d.id, e.id])


def test_a_joint_configuration_needs_both_sets_when_it_is_left():
    """The new set's accepts alone do not end the change; the old set must accept too."""
    world = Scripted(nodes=6)
    a, b, c, d, e, f = world.nodes
    party = world.party()
    ticket = world.reconfigure(party, d, e, f)
    world.carry(which=is_a(RequestKind.PREPARE))
    for message in [message for message in world.bag if is_a(RequestKind.ACCEPT)(message)]:
        world.bag.remove(message)
        world.carry_one(message)
    for message in [message for message in world.bag if message.is_reply]:
        world.bag.remove(message)
        world.carry_one(message)
    assert world.record(a).value.acceptors.joint
    world.carry(which=is_a(RequestKind.PREPARE))
    world.carry(d, e, f)
    assert world.record(d).value.acceptors == Acceptors.of([d.id, e.id, f.id])
    assert ticket not in world.history.ends
    world.carry(a, b)
    assert world.history.ends[ticket] is ChangeEnd.DONE
    assert c.is_up


@pytest.mark.parametrize("victim", range(5))
@pytest.mark.parametrize("moment", range(0, 40, 12))
@pytest.mark.parametrize("is_synced", [False, True])
def test_a_crash_at_each_send_and_sync(victim, moment, is_synced):
    """After a crash of any node at any moment, with or without its appends, one chain goes on."""
    world = Scripted()
    _, _, c, d, e = world.nodes
    party = world.party()
    first = world.append(party)
    change = world.reconfigure(party, c, d, e)
    for _ in range(moment):
        if not world.bag:
            world.wait(1)
            continue
        message = world.bag.pop(0)
        world.carry_one(message, sync=world.nodes[victim].id != message.acceptor)
        node = world.nodes[victim]
        if is_synced and node.unsynced and moment % 2:
            node.sync(len(node.unsynced))
    world.nodes[victim].crash()
    second = world.append(party)
    last = world.append(world.party())
    world.settle(ms=4000)
    assert [world.history.ends[ticket] for ticket in (first, change, second, last)] == [ChangeEnd.DONE] * 4
    assert world.record(d).value.acceptors == Acceptors.of([c.id, d.id, e.id])


@pytest.mark.parametrize("moment", range(30))
def test_the_proposer_dies_in_the_midst(moment):
    """Another proposer finishes or drops the change; the joint configuration does not stay."""
    world = Scripted()
    a, b, c, d, e = world.nodes
    world.reconfigure(world.party(), c, d, e)
    for _ in range(moment):
        if world.bag:
            world.carry_one(world.bag.pop(0))
    world.lose_all()
    world.parties.clear()
    other = world.party()
    ticket = world.append(other)
    world.settle(ms=3000)
    assert world.history.ends[ticket] is ChangeEnd.DONE
    assert world.record(c).value.acceptors in {
        Acceptors.of(n.id for n in (a, b, c)),
        Acceptors.of(n.id for n in (c, d, e)),
    }


def test_two_want_other_acceptors():
    """Both get their change, one after the other."""
    world = Scripted()
    a, b, c, d, e = world.nodes
    tickets = [world.reconfigure(world.party(), a, b, d), world.reconfigure(world.party(), c, d, e)]
    world.settle()
    assert [world.history.ends[ticket] for ticket in tickets] == [ChangeEnd.DONE] * 2
    assert world.record(d).value.acceptors.joint == 0


def test_who_was_removed_leads_on():
    """A proposer that knows only former acceptors finds the current ones, even after crashes."""
    world = Scripted(nodes=6)
    a, b, c, d, e, f = world.nodes
    world.reconfigure(world.party(), d, e, f)
    world.settle()
    for node in (a, b, c):
        node.crash()
    ticket = world.append(world.party(a, b, c))
    world.settle(ms=2000)
    assert world.history.ends[ticket] is ChangeEnd.DONE
