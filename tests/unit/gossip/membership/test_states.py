"""The code follows the table of states."""

from __future__ import annotations

import itertools

import pytest

from gossipkv.gossip.member import NEXT, MemberEvidence, MemberState, member_id
from gossipkv.gossip.membership.members import MemberTable
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
    """Return a node that knows x in this state, in epoch 1 and incarnation 0."""
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
    """A statement of a larger rank leads where the table says, as a record and as a verdict."""
    expected = NEXT.get((state, said), state)
    for by_record in (True, False):
        if (said is MemberEvidence.DEAD and by_record) or (said is MemberEvidence.DEAD_RECORD and not by_record):
            continue
        believer = brought_to(state)
        # Only a newer epoch leads out of LEFT, and a verdict of a newer epoch concerns an unknown member.
        epoch = 2 if state is LEFT else 1
        statement = member("x", AS[said], epoch=epoch, incarnation=1)
        (believer.record if by_record else believer.verdict)(statement)
        can_apply = by_record or (state is not None and state is not LEFT)
        assert believer.state("x") is (expected if can_apply else state)


@pytest.mark.parametrize(("state", "said"), list(itertools.product(MemberState, NEWS)), ids=str)
def test_old_news(state, said):
    """A statement of an older incarnation or epoch changes nothing."""
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
            believer = brought_to(state)  # LEFT needs no newer incarnation: it ends an epoch.
            break
        believer.verdict(statement)
        assert (believer.known("x").epoch, believer.known("x").incarnation) == (2, 3)
        assert believer.state("x") is state


def test_a_probe_without_answer_is_suspicion():
    """A failed probe makes a live member suspect and changes no other state."""
    for state in (None, *MemberState):
        believer = brought_to(state)
        believer.unanswered("x")
        assert believer.state("x") is NEXT.get((state, MemberEvidence.UNANSWERED), state)


def test_suspicion_runs_out():
    """A suspect that does not refute becomes dead; one that refutes stays alive."""
    believer = brought_to(SUSPECT)
    believer.wait(60_000)
    assert believer.state("x") is NEXT[SUSPECT, MemberEvidence.EXPIRED] is DEAD
    believer = brought_to(SUSPECT)
    believer.verdict(member("x", ALIVE, incarnation=1), accuser="x")
    believer.wait(60_000)
    assert believer.state("x") is ALIVE


@pytest.mark.parametrize("state", [DEAD, LEFT])
def test_the_gone_are_forgotten(state):
    """foca#19: a dead epoch is forgotten after two days and not before."""
    believer = brought_to(state)
    believer.wait(48 * 3_600_000 - 1)
    assert believer.state("x") is state
    believer.wait(2)
    assert believer.state("x") is NEXT[state, MemberEvidence.FORGOTTEN] is None
    assert believer.forgotten == ["x"]


def test_the_table_is_whole():
    """Every state can be reached and left, and only SUSPECT expires."""
    states = {None, *MemberState}
    assert {state for state, _ in NEXT} == states
    assert set(NEXT.values()) == states
    assert [state for state, said in NEXT if said is MemberEvidence.EXPIRED] == [SUSPECT]
    assert (None, MemberEvidence.DEAD) not in NEXT  # A member that was never seen alive cannot be dead.
    assert {NEXT[state, MemberEvidence.DEAD_RECORD] for state in (ALIVE, SUSPECT)} == {
        SUSPECT
    }  # A record, as hearsay, never kills.


def test_an_own_name_is_no_peer():
    believer = Believer(member("a"))
    assert believer.members.get(member_id("me")) == believer.members.own
    assert [one.name for one in believer.members.list()] == ["a", "me"]


def test_the_list_is_the_same_until_a_member_changes():
    members = MemberTable(member("b"), 8)
    listed = members.list()
    for change in (
        lambda: members.put(member("a"), 0),
        lambda: members.put(member("a", SUSPECT), 1),
        lambda: members.put_own(member("b", incarnation=1)),
        lambda: members.forget(member_id("a")),
    ):
        assert members.list() is listed
        change()
        assert members.list() != listed
        listed = members.list()
