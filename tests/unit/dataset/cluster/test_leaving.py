"""A leaving node: members stop counting on it, take over its partitions, and are waited for."""

from __future__ import annotations

import pytest

from gossipkv.dataset.cluster.members import DatasetMember, MemberStanding
from gossipkv.dataset.cluster.publication import COALESCED_MS
from gossipkv.placement.holders import HolderState
from tests.unit.dataset.cluster.scene import TERMS, Node, active, answer, identity, member, some, statement

ONE, TWO = identity("1"), identity("2")
REACTION_MS = COALESCED_MS + 2 * TERMS.probe_interval_ms


def leaves(node, name):
    node.tell(node.membership.get(name)._replace(is_leaving=True))
    node.step()


@pytest.mark.parametrize(
    ("state", "is_leaving", "standing"),
    [
        (MemberStanding.ALIVE, False, HolderState.ALIVE),
        (MemberStanding.ALIVE, True, HolderState.SUSPECT),
        (MemberStanding.SUSPECT, True, HolderState.SUSPECT),
        (MemberStanding.DEAD, True, HolderState.DEAD),
        (MemberStanding.LEFT, False, HolderState.DEAD),
    ],
)
def test_how_far_a_member_is_relied_on(state, is_leaving, standing):
    """A leaving member comes after all that stay, and before the dead."""
    told = DatasetMember(*member("b", state=state)[:5], is_leaving=is_leaving)
    assert told.standing is standing


def test_who_leaves_counts_in_no_gate():
    """A leaver counts neither elsewhere nor in its own gate."""
    node = Node("b")
    node.settle()
    node.has(0, 1)
    node.hear("b", statement("b", (2, 3)))
    node.answered("b", answer(2, 3))
    assert node.passes()
    leaves(node, "b")
    assert not node.passes()
    node.tell(member("b"))
    node.step(500)
    node.answered("b", answer(2, 3))
    assert node.passes()
    node.membership.leave(now_ms=node.now_ms)
    assert not node.passes()
    assert node.core.answer("b", ONE.wire_id, now_ms=node.now_ms).dropping


def staying(*others, of=ONE, **more):
    """Return a node of several with an active version, of which b has all that this node lacks."""
    node = Node("b", *others, terms=TERMS._replace(**more))
    node.settle()
    node.core.activate(of)
    node.copy(of.version, digest=of.digest, partitions=4, identity=of, ready=some(0), share=some(0))
    node.hear("b", statement("b", (0, 1, 2, 3), of=of), database=active(of))
    return node


def test_what_only_leavers_have_is_built_at_once():
    """The node that stays builds all of it, except its own partitions, and only after the announcement."""
    node = staying()
    assert node.core.share("1") == some(0)
    leaves(node, "b")
    assert node.core.share("1") == some(0, 1, 2, 3)


def test_what_another_has_or_builds_is_not():
    """Partitions that only a suspect has are taken over."""
    node = staying("c", "d")
    node.hear("c", statement("c", (1,), (3,)))
    node.hear("d", statement("d", (2,)))
    leaves(node, "b")
    assert node.core.share("1") == some(0)
    node.state("d", MemberStanding.SUSPECT)
    node.step()
    assert node.core.share("1") == some(0, 2)


@pytest.mark.parametrize("replication", [1, 2])
def test_so_many_take_what_leavers_have(replication):
    """Each partition falls to the next `replication` staying ids of the ring, suspects excluded."""
    taken = [0] * 4
    for own in "14":
        node = Node(terms=TERMS._replace(replication=replication))
        node.tell(member("a", own))
        for other in {"1", "2", "3", "4"} - {own}:
            node.tell(member("b" if other == "2" else f"m{other}", other))
        node.settle()
        node.core.activate(ONE)
        node.copy(digest=ONE.digest, partitions=4, identity=ONE, ready=some(), share=some())
        node.hear("b", statement("b", (0, 1, 2, 3)), database=active())
        node.tell(member("m3", "3", state=MemberStanding.SUSPECT))
        leaves(node, "b")
        for partition in node.core.share("1"):
            taken[partition] += 1
    assert taken == [replication] * 4


def leaving(*others, ready=(0, 1), version=ONE):
    """Return a leaving node with these partitions of a version; version 1 is active everywhere."""
    node = Node(*others)
    node.core.activate(ONE)
    node.has(*ready, of=version)
    for other in others:
        node.hear(other, database=active(ONE))
    node.membership.leave(now_ms=node.now_ms)
    return node


def is_missed(node, ms=0):
    node.step(ms)
    return node.core.is_missed(now_ms=node.now_ms)


def test_it_waits_while_somebody_builds_what_it_alone_has():
    """The wait lasts until all of it is built."""
    node = leaving("b", "c")
    assert is_missed(node)
    node.hear("b", statement("b", (0,), (1,)), database=active(ONE))
    assert is_missed(node, 100 * REACTION_MS)
    node.hear("b", statement("b", (0, 1)), database=active(ONE))
    assert not is_missed(node)


def test_it_does_not_wait_for_what_nobody_builds():
    """The wait ends when a builder would have announced itself."""
    node = leaving("b")
    assert is_missed(node, REACTION_MS - 1)
    assert not is_missed(node, 1)


@pytest.mark.parametrize(
    "told",
    [
        member("b", state=MemberStanding.DEAD),
        member("b", state=MemberStanding.SUSPECT),
        member("b", state=MemberStanding.LEFT),
        member("b")._replace(is_leaving=True),
    ],
)
def test_it_does_not_wait_for_who_does_not_stay(told):
    """A node alone does not wait either."""
    node = leaving("b")
    node.tell(told)
    assert not is_missed(node)
    assert not is_missed(leaving())


def test_an_owner_that_does_not_stay_is_none():
    """A suspect owner and a leaving owner do not count."""
    node = leaving("b", "c")
    node.hear("b", statement("b", (0, 1)), database=active(ONE))
    assert not is_missed(node)
    node.state("b", MemberStanding.SUSPECT)
    assert is_missed(node)
    leaves(node, "b")
    assert is_missed(node)


def test_what_is_newer_is_waited_for_as_long_as_it_may_become_active():
    """A gate may have passed by this node's answer, which would make the version active."""
    node = leaving("b", version=TWO)
    assert is_missed(node, REACTION_MS - 1)
    assert not is_missed(node, 1)
    node.hear("b", statement("b", (), (0, 1), of=TWO), database=active(TWO))
    assert is_missed(node)


def test_what_is_older_is_not_waited_for():
    """No staying member has it active."""
    node = leaving("b")
    node.hear("b", database=active(TWO))
    assert not is_missed(node)
