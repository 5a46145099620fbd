"""The automaton: the whole table, and the code that asks it."""

from __future__ import annotations

import itertools

import pytest

from gossipkv.gossip.member import NEXT, MemberEvidence, MemberState, member_id
from tests.unit.gossip.membership.believing import Believer, member

ALIVE, SUSPECT, DEAD, LEFT = MemberState
NEWS = (
    MemberEvidence.ALIVE,
    MemberEvidence.SUSPECT,
    MemberEvidence.DEAD,
    MemberEvidence.LEFT,
    MemberEvidence.DEAD_RECORD,
)
AS = {
    MemberEvidence.ALIVE: ALIVE,
    MemberEvidence.SUSPECT: SUSPECT,
    MemberEvidence.DEAD: DEAD,
    MemberEvidence.LEFT: LEFT,
    MemberEvidence.DEAD_RECORD: DEAD,
}


def brought_to(state: MemberState | None) -> Believer:
    """One that knows x in this state, in epoch 1 and incarnation 0."""
    believer = Believer(*(member(f"n{i}") for i in range(5)))
    if state is None:
        return believer
    believer.record(member("x"))
    if state is SUSPECT:
        believer.unanswered("x")
    elif state is not ALIVE:
        believer.verdict(member("x", state))
    assert believer.state("x") is state
    return believer


@pytest.mark.parametrize(("state", "said"), list(itertools.product([None, *MemberState], NEWS)), ids=str)
def test_news(state, said):
    """A statement with a larger rank leads where the table says, by record as by verdict."""
    expected = NEXT.get((state, said), state)
    for by_record in (True, False):
        if (said is MemberEvidence.DEAD and by_record) or (said is MemberEvidence.DEAD_RECORD and not by_record):
            continue
        believer = brought_to(state)
        # From LEFT only a newer epoch leads on, and a verdict of a newer epoch is one about an unknown.
        epoch = 2 if state is LEFT else 1
        statement = member("x", AS[said], epoch=epoch, incarnation=1)
        (believer.record if by_record else believer.verdict)(statement)
        can_apply = by_record or (state is not None and state is not LEFT)
        assert believer.state("x") is (expected if can_apply else state)


@pytest.mark.parametrize(("state", "said"), list(itertools.product(MemberState, NEWS)), ids=str)
def test_old_news(state, said):
    """What was said in an older incarnation or epoch changes nothing, whatever it is."""
    believer = brought_to(state)
    newer = member("x", state, epoch=2, incarnation=3)
    believer.record(newer._replace(state=ALIVE))
    if state is not ALIVE:
        believer.verdict(newer)
    assert believer.state("x") is state
    for epoch, incarnation in ((2, 2), (1, 9)):
        statement = member("x", AS[said], epoch=epoch, incarnation=incarnation)
        believer.record(statement)
        if AS[said] is LEFT and epoch == 2:
            believer = brought_to(state)  # Leaving needs no newer incarnation: it is the last word of an epoch.
            break
        believer.verdict(statement)
        assert (believer.known("x").epoch, believer.known("x").incarnation) == (2, 3)
        assert believer.state("x") is state


def test_a_probe_without_answer_is_suspicion():
    """My own probe makes a live member suspect, and nothing else of anybody else."""
    for state in (None, *MemberState):
        believer = brought_to(state)
        believer.unanswered("x")
        assert believer.state("x") is NEXT.get((state, MemberEvidence.UNANSWERED), state)


def test_suspicion_runs_out():
    """Who is suspected and does not refute is dead; who refutes is not."""
    believer = brought_to(SUSPECT)
    believer.wait(60_000)
    assert believer.state("x") is NEXT[SUSPECT, MemberEvidence.EXPIRED] is DEAD
    believer = brought_to(SUSPECT)
    believer.verdict(member("x", ALIVE, incarnation=1), accuser="x")
    believer.wait(60_000)
    assert believer.state("x") is ALIVE


@pytest.mark.parametrize("state", [DEAD, LEFT])
def test_the_gone_are_forgotten(state):
    """foca#19: after two days a dead epoch is forgotten, and not before."""
    believer = brought_to(state)
    believer.wait(48 * 3_600_000 - 1)
    assert believer.state("x") is state
    believer.wait(2)
    assert believer.state("x") is NEXT[state, MemberEvidence.FORGOTTEN] is None
    assert believer.forgotten == ["x"]


def test_the_table_is_whole():
    """Every state that is not in the table is left by nothing else; every state can be reached and left."""
    states = {None, *MemberState}
    assert {state for state, _ in NEXT} == states
    assert set(NEXT.values()) == states
    assert [state for state, said in NEXT if said is MemberEvidence.EXPIRED] == [SUSPECT]
    assert (None, MemberEvidence.DEAD) not in NEXT  # Nobody is dead who was never seen alive.
    assert {NEXT[state, MemberEvidence.DEAD_RECORD] for state in (ALIVE, SUSPECT)} == {
        SUSPECT
    }  # Nor killed on hearsay.


def test_an_own_name_is_no_peer():
    """The table has this node once."""
    believer = Believer(member("a"))
    assert believer.members.get(member_id("me")) == believer.members.own
    assert [one.name for one in believer.members.list()] == ["a", "me"]
