"""Proposers pass single rounds in which the test orders the messages."""

from __future__ import annotations

import pytest

from gossipkv.register.ballot import MAX_LEAP, ZERO, Ballot
from gossipkv.register.configuration import Acceptors
from gossipkv.register.messages import AcceptorRecord, RequestKind, encode_record
from gossipkv.register.proposal import ChangeEnd
from gossipkv.register.proposer import MAX_LOOKS, MAX_PAUSE_MS, NEVER_MS, PHASE_MS
from tests.unit.register.inhabitants import REGISTER
from tests.unit.register.scripted import Scripted, id_of, is_a


def ended(world, ticket):
    return world.history.ends.get(ticket)


def test_a_change_and_a_read():
    world = Scripted()
    party = world.party()
    tickets = [world.append(party) for _ in range(3)]
    world.carry()
    read = world.read(party)
    world.carry()
    assert [ended(world, ticket) for ticket in (*tickets, read)] == [ChangeEnd.DONE] * 4
    assert world.payload(read) == b"".join(map(id_of, tickets))


def test_what_is_refused_in_phase_1_is_not_proposed_in_phase_2():
    """A change that timed out during prepare is not done, and never will be."""
    world = Scripted()
    party = world.party()
    a, b, c, *_ = world.nodes
    ticket = world.append(party, patience_ms=50)
    world.carry(a)
    world.wait(60)
    assert ended(world, ticket) is ChangeEnd.REFUSED
    world.carry(b, c)
    assert all(world.record(node).value.payload == b"" for node in (a, b, c))


def test_it_sleeps_while_a_round_of_nobody_ends():
    """A round without waiting changes causes no early wake-up."""
    world = Scripted()
    party = world.party()
    world.append(party, patience_ms=50)
    world.wait(60)
    assert party.core.wakes_at_ms == PHASE_MS


@pytest.mark.parametrize("kind", [RequestKind.PREPARE, RequestKind.ACCEPT])
def test_a_round_ends_where_a_higher_generation_is_heard_of(kind):
    """Promises of a majority in an old generation are useless once a newer one is known."""
    world = Scripted()
    party = world.party()
    a, b, c, *_ = world.nodes
    ticket = world.append(party)
    if kind is RequestKind.ACCEPT:
        world.carry(which=is_a(RequestKind.PREPARE))
    forced = Ballot(1, 7, 1, 7)
    c.disk[REGISTER] = encode_record(AcceptorRecord(forced, ZERO, world.record(c).value))
    c.start()
    world.carry(c)
    world.carry(a, b)
    assert ended(world, ticket) is None  # And `Watch` saw no message in generation 0.
    assert kind is RequestKind.ACCEPT or world.record(a).value.payload == b""


def two_forces():
    """Return a world with a force on each side of a cut, and a proposer of the first side."""
    world = Scripted(founders=4)
    a, b, c, d, _ = world.nodes
    for survivors in ((a, b), (c, d)):
        world.force(*survivors)
        world.settle(*survivors)
    party = world.party(a, b)
    return world, party


def test_a_round_ends_where_another_force_of_its_generation_is_heard_of():
    """Neither of two forces goes on, not even with a round under way."""
    world, party = two_forces()
    a, b, c, *_ = world.nodes
    world.teach(party, a)
    ticket = world.append(party)
    world.carry(a)
    world.teach(party, c)
    world.carry(b, which=lambda message: not is_a(RequestKind.READ)(message))
    assert ended(world, ticket) is None
    assert world.record(b).value.payload == b""


def test_an_implausible_ballot_forgets_no_generation():
    """A reply of a lower generation does not make the proposer forget a higher one."""
    world = Scripted()
    party = world.party()
    a, b, c, *_ = world.nodes
    ticket = world.append(party)
    c.disk[REGISTER] = encode_record(AcceptorRecord(Ballot(1, 7, 1, 7), ZERO, world.record(c).value))
    c.start()
    party.core.learn(AcceptorRecord(Ballot(0, 0, 1 << 50, 7)))
    world.lose_all()
    world.wait(PHASE_MS)
    world.wait(200)  # It asks with a counter that is too high.
    world.carry(c)
    world.carry(a, b)
    for _ in range(5):
        world.wait(200)
        world.carry(a, b)
    assert ended(world, ticket) is None


def test_a_newcomer_that_was_asked_before_is_asked_anew():
    """A late promise to the first request does not prove that the newcomer has the value's body."""
    world = Scripted(founders=3)
    a, b, c, d, _ = world.nodes
    world.settle()
    party = world.party()
    world.reconfigure(party, a, b, d)
    world.settle()
    ticket = world.reconfigure(party, a, b, c)
    world.settle()
    assert ended(world, ticket) is ChangeEnd.DONE
    d.holds = False
    late = world.party(a, b, c, d)  # D has a record, and is no acceptor any more.
    late.core.learn(AcceptorRecord(Ballot(0, 0, 1000, 1)))  # Its ballots are higher than all before.
    ticket = world.reconfigure(late, a, b, d)
    world.carry(a, b, which=is_a(RequestKind.PREPARE))
    first = next(message for message in world.bag if message.acceptor == d.id)
    world.bag.remove(first)
    world.carry_one(first)
    world.carry_one(world.bag.pop())  # The late promise.
    world.carry(a, b, c)
    assert d.id not in world.record(a).value.acceptors.everyone, "it does not hold the value"
    assert ended(world, ticket) is None


def test_a_wrong_guess_bars_nobody_from_entering():
    """A newcomer that was asked as an acceptor, and knew nothing, is asked again as a newcomer."""
    world = Scripted(founders=3)
    a, b, c, d, _ = world.nodes
    party = world.party(a, b, c, d)
    ticket = world.reconfigure(party, a, b, c, d)
    world.carry(d)
    world.settle(ms=500)
    assert ended(world, ticket) is ChangeEnd.DONE


def test_a_wrong_guess_is_corrected():
    """Ballot 0 names the acceptors like any other ballot."""
    world = Scripted(founders=1)
    a, b, c, *_ = world.nodes
    party = world.party(a, b, c)
    read = world.read(party)
    world.settle(a)
    assert ended(world, read) is ChangeEnd.DONE
    assert party.core.acceptors == Acceptors.of([a.id])


def test_replies_of_another_ballot_do_not_count():
    """The round number alone does not match a reply."""
    world = Scripted()
    party = world.party()
    a, b, *_ = world.nodes
    ticket = world.append(party)
    for message in [message for message in world.bag if message.acceptor in {a.id, b.id}]:
        world.bag.remove(message)
        world.bag.append(message._replace(content=message.content._replace(ballot=Ballot(0, 0, 1, 5))))
    world.carry(a, b)
    assert ended(world, ticket) is None
    assert world.record(a).accepted == world.record(b).accepted == ZERO


def test_torn_is_ended_by_a_force_of_a_higher_generation():
    """A proposer in conflict accepts the third force."""
    world, party = two_forces()
    a, b, c, *_ = world.nodes
    for node in (a, c):
        world.teach(party, node)
    conflict = world.append(party)
    world.settle()
    assert ended(world, conflict) is ChangeEnd.REFUSED
    assert party.core.wakes_at_ms == NEVER_MS
    world.force(a, b)
    world.settle()
    ticket = world.append(party)
    world.settle()
    assert ended(world, ticket) is ChangeEnd.DONE


def test_both_sides_hear_of_two_forces():
    """Each acceptor learns of the other side's force, and refuses its own from then on."""
    world, party = two_forces()
    a, _, c, *_ = world.nodes
    for node in (a, c):
        world.teach(party, node)
    world.append(party)
    world.carry()
    assert [world.record(node).conflict for node in world.nodes[:4]] == [1, 1, 1, 1]


def test_made_up_counters_cost_some_rounds():
    """An acceptor with an invented promise takes part again soon."""
    world = Scripted()
    party = world.party()
    a, *_ = world.nodes
    for times in range(1, 4):
        world.promise(a, Ballot(0, 0, times * MAX_LEAP, 5))
    tickets = []
    for _ in range(5):
        tickets.append(world.append(party))
        world.settle(ms=300)
    assert [ended(world, ticket) for ticket in tickets] == [ChangeEnd.DONE] * 5
    assert world.record(a).value == world.record(world.nodes[1]).value
    ticket = world.append(party)
    world.carry()  # A single round suffices again.
    assert ended(world, ticket) is ChangeEnd.DONE


def accepted_by_one(world, want):
    """Let the first node alone accept a change."""
    ticket = want(world.party())
    world.carry(which=is_a(RequestKind.PREPARE))
    world.carry_one(next(message for message in world.bag if message.acceptor == world.nodes[0].id))
    world.lose_all()
    return ticket


def test_an_unknown_change_against_its_finisher():
    """A finder finishes the change once; the original proposer asks again and gets DONE."""
    world = Scripted()
    a, b, c, *_ = world.nodes
    unknown = accepted_by_one(world, world.append)
    finisher = world.party()
    other = world.append(finisher)
    world.carry(a, b)
    assert world.payload(other) == id_of(unknown) + id_of(other)
    world.settle(b, c)
    assert ended(world, unknown) is ChangeEnd.DONE
    assert world.payload(unknown) == id_of(unknown) + id_of(other)


def test_an_unknown_change_that_nobody_finds():
    """Other changes go on without the unknown one, which is done later or never."""
    world = Scripted()
    _, b, c, *_ = world.nodes
    unknown = accepted_by_one(world, world.append)
    other = world.append(world.party())
    world.carry(b, c)
    assert world.payload(other) == id_of(other)
    world.settle()
    assert world.payload(unknown) == id_of(other) + id_of(unknown)


def test_a_change_whose_answer_is_lost_is_unknown():
    """A change that was accepted somewhere before the time-out is never reported as not done."""
    world = Scripted()
    unknown = accepted_by_one(world, lambda party: world.append(party, patience_ms=100))
    world.wait(200)
    assert ended(world, unknown) is ChangeEnd.UNKNOWN
    read = world.read(world.party())
    world.settle(ms=1500)
    assert id_of(unknown) in world.payload(read)


def test_a_refusal_of_what_was_sent_before_says_nothing():
    """A function without memory refuses in the second round a change that was finished in the first."""
    world = Scripted()
    a, b, *_ = world.nodes
    unknown = accepted_by_one(world, world.append_to_none)
    finished = world.append(world.party())
    world.carry(a, b)
    world.settle()
    assert world.payload(finished) == id_of(unknown) + id_of(finished)
    assert ended(world, unknown) is ChangeEnd.UNKNOWN


def test_a_refusal_of_what_was_not_sent_before_is_one():
    """A refusal counts after any number of failed rounds before the change was sent."""
    world = Scripted()
    a, b, c, *_ = world.nodes
    refused = world.append_to_none(world.party())
    for _ in range(3):
        world.lose_all()
        world.wait(PHASE_MS)
        world.wait(200)
    world.lose_all()
    world.append(world.party())
    world.carry(a, b, c)
    world.settle()
    assert ended(world, refused) is ChangeEnd.REFUSED


def test_what_was_sent_before_two_forces_met_is_unknown():
    """The change ends at once, and some acceptors may have accepted it."""
    world = Scripted(founders=4)
    a, b, c, d, _ = world.nodes
    world.force(a, b)
    world.settle(a, b)
    party = world.party(a, b)
    world.teach(party, a)
    ticket = world.append(party)
    world.carry(a, b, which=is_a(RequestKind.PREPARE))
    world.carry_one(next(message for message in world.bag if message.acceptor == a.id))
    world.lose_all()
    world.force(c, d)
    world.settle(c, d)
    world.teach(party, c)
    world.settle()
    assert ended(world, ticket) is ChangeEnd.UNKNOWN


def test_a_ballot_is_not_used_again_after_one_that_was_implausible():
    """A lowered counter may be reached again, and then it is another ballot."""
    world = Scripted()
    a, b, c, *_ = world.nodes
    for node in (a, b):
        world.promise(node, Ballot(0, 0, MAX_LEAP, 5))
    party = world.party()
    world.teach(party, a)
    first = accepted_by_one(world, lambda _: world.append(party))  # C finds its ballot implausible.
    world.promise(c, Ballot(0, 0, MAX_LEAP - 1, 6))
    world.teach(party, c)
    second = world.append(party)
    world.settle(b, c, ms=2 * PHASE_MS)
    assert ended(world, second) is ChangeEnd.DONE
    read = world.read(world.party())
    world.settle()
    assert world.payload(read) == id_of(first) + id_of(second)


@pytest.mark.parametrize("what", ["read", "append_to_even"])
def test_what_phase_1_finds_is_not_told(what):
    """A value that one acceptor has is shown only after a majority has it, since it may get lost."""
    world = Scripted()
    a, b, c, *_ = world.nodes
    accepted_by_one(world, world.append)
    late = world.party()
    ticket = getattr(world, what)(late)
    world.carry(which=is_a(RequestKind.READ))  # A quorum read comes first.
    world.carry(a, b, which=is_a(RequestKind.PREPARE))
    assert ended(world, ticket) is None
    world.lose_all()
    other = world.append(world.party())
    world.settle(b, c, ms=500)
    assert world.payload(other) == id_of(other)


def test_a_read_waits_for_who_writes_just_now():
    """Acceptors with two ballots are asked once more, and the writer needs no second prepare."""
    world = Scripted()
    writer, reader = world.party(), world.party()
    a, b, c, *_ = world.nodes
    for _ in range(2):
        world.append(writer)
        world.carry()
    world.append(writer)
    world.carry(a)
    read = world.read(reader)
    world.carry(which=is_a(RequestKind.READ))
    assert ended(world, read) is None
    world.carry(b, c)
    world.wait(100)
    world.carry(which=is_a(RequestKind.READ))
    assert ended(world, read) is ChangeEnd.DONE
    last = world.append(writer)
    world.carry(which=is_a(RequestKind.ACCEPT))
    assert ended(world, last) is ChangeEnd.DONE


def test_a_read_of_what_nobody_finishes_is_told_once_it_is_committed():
    """The read needs a whole round, since its first phase alone shows a value that may get lost."""
    world = Scripted()
    writer, reader = world.party(), world.party()
    a, *_ = world.nodes
    world.append(writer)
    world.carry()
    world.append(writer, patience_ms=10)
    world.carry(which=is_a(RequestKind.PREPARE))
    world.carry(a)
    world.lose_all()
    world.wait(20)
    read = world.read(reader)
    for _ in range(MAX_LOOKS):
        world.carry(which=is_a(RequestKind.READ))
        world.wait(MAX_PAUSE_MS)
    world.carry(which=is_a(RequestKind.PREPARE))
    assert ended(world, read) is None
    world.carry()
    assert ended(world, read) is ChangeEnd.DONE


def test_a_quorum_read_is_done_with_a_majority():
    """A majority of equal answers ends the read in one round that changes nothing."""
    world = Scripted()
    a, b, *_ = world.nodes
    world.append(world.party())
    world.carry()
    before = world.record(a)
    read = world.read(world.party())
    world.carry(a)
    assert ended(world, read) is None
    world.carry(b)
    assert ended(world, read) is ChangeEnd.DONE
    assert world.record(a) == before


def test_a_proposer_that_stays_needs_one_round():
    """From its third change on it skips the prepare, until another proposer interferes."""
    world = Scripted()
    party, other = world.party(), world.party()
    kinds = []
    for who in (party, party, party, other, party):
        world.append(who)
        kinds.append({message.content.kind for message in world.bag})
        world.settle(ms=100)
    prepare, accept = {RequestKind.PREPARE}, {RequestKind.ACCEPT}
    assert kinds == [prepare, prepare, accept, prepare, accept]  # The last is refused.
    assert world.payload(5) == b"".join(map(id_of, range(1, 6)))
