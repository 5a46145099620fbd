"""The upgrade gate: the owners that count for a version, and the members that a node asks."""

from __future__ import annotations

import pytest

from gossipkv.dataset.cluster.effects import BuildAnew, Decide
from gossipkv.dataset.cluster.gate import Dispute
from gossipkv.dataset.cluster.members import MemberStanding
from gossipkv.placement.seals import Sealed
from tests.unit.dataset.cluster.scene import (
    HOUR_MS,
    TERMS,
    Node,
    active,
    answer,
    held,
    identity,
    member,
    some,
    statement,
)

ONE, TWO = identity("1"), identity("2")


def gated(*others, **more):
    """Return a node that has partitions 0 and 1 of four; the first other member has 2 and 3."""
    node = Node(*others, **more)
    node.settle()
    node.has(0, 1)
    node.hear(others[0], statement(others[0], (2, 3)))
    return node


def passed(*others, **more):
    node = gated(*others, **more)
    node.answered(others[0], answer(2, 3))
    assert node.passes()
    return node


def test_what_is_published_is_not_enough():
    """Each owner is asked, and only its answer counts."""
    node = gated("b")
    assert node.asked == [("b", ONE)]
    assert not node.passes()
    assert not node.core.passed("1")
    node.answered("b", answer(2, 3))
    assert node.passes()
    assert node.core.passed("1")
    assert node.effects[-1] == Decide()


def test_nobody_is_asked_before_all_is_there():
    """Nobody is asked until the published partitions would suffice."""
    node = Node("b", "c")
    node.settle()
    node.has(0, 1)
    node.hear("b", statement("b", (2,), (3,)))
    assert node.asked == []
    node.hear("c", statement("c", (3,)))
    assert sorted(node.asked) == [("b", ONE), ("c", ONE)]


def test_an_answer_counts_for_what_it_says():
    """The owner serves less than it has published."""
    node = gated("b")
    node.answered("b", answer(2))
    assert not node.passes()


def test_the_share_here_need_not_be_ready():
    """A node without its share switches if other members have all partitions."""
    node = Node("b")
    node.settle()
    node.hear("b", statement("b", (0, 1, 2, 3)))
    node.answered("b", answer(0, 1, 2, 3))
    assert node.passes()


@pytest.mark.parametrize("state", [MemberStanding.SUSPECT, MemberStanding.DEAD, MemberStanding.LEFT])
def test_only_the_alive_count(state):
    """A suspect owner no longer counts, whatever it has answered."""
    node = passed("b")
    node.state("b", state)
    node.step()
    assert not node.passes()
    assert node.core.passed("1")  # Clients keep the version that they had.


def test_an_answer_grows_old():
    """An answer older than a probe interval does not count, so the owner is asked again before that."""
    node = passed("b")
    node.asked.clear()
    node.step(TERMS.probe_interval_ms // 2)
    assert node.asked == [("b", ONE)]
    assert node.passes()
    node.step(TERMS.probe_interval_ms // 2)
    assert node.passes()
    node.step(1)
    assert not node.passes()
    node.answered("b", None)  # The question failed.
    assert not node.passes()


def test_a_question_that_comes_to_nothing_is_not_asked_again_at_once():
    """A question without a connection fails at once, so it is repeated a little later."""
    node = gated("b")
    for _ in range(3):
        node.answered("b", None)
    assert node.asked == [("b", ONE)]
    assert node.core.wakes_at_ms == node.now_ms + TERMS.probe_interval_ms // 2
    node.step(TERMS.probe_interval_ms // 2)
    assert node.asked == 2 * [("b", ONE)]
    node.answered("b", answer(2, 3), epoch=7)  # The answer is of another epoch than the statement.
    assert node.asked == 2 * [("b", ONE)]
    assert not node.passes()


def test_age_counts_from_the_question():
    """A late answer describes the time of the question."""
    node = gated("b")
    node.step(TERMS.probe_interval_ms - 1)
    node.answered("b", answer(2, 3))
    assert node.passes()
    node.step(2)
    assert not node.passes()


def test_an_owner_that_has_gone_on_makes_it_look_again():
    """A fresh answer is asked for again, at once and only once."""
    node = gated("b")
    node.answered("b", answer(2))
    node.asked.clear()
    node.core.look_again()
    node.step()
    node.core.look_again()
    node.step()
    assert node.asked == [("b", ONE)]
    node.answered("b", answer(2, 3))
    assert node.passes()


def test_what_nobody_has_any_more_is_not_to_be_had():
    """A version that no member holds any more is unknown, instead of unanswered."""
    node = passed("b")
    node.core.activate(TWO)
    node.core.drop_copy("1")
    node.step()
    assert node.core.passed("1")  # The other member still has some of it.
    node.hear("b")
    node.step()
    assert not node.core.passed("1")
    assert node.core.holders("1") is None
    assert node.core.holders("2") is not None


def test_what_was_not_asked_is_passed_over():
    """The answer comes after its connection was lost."""
    node = gated("b")
    node.core.lost("b")
    node.answered("b", answer(2, 3))
    assert not node.passes()


def test_a_lost_connection_voids_the_answer():
    """The owner is asked again on a new connection."""
    node = passed("b")
    node.core.lost("b")
    node.asked.clear()
    node.step()
    assert not node.passes()
    assert node.asked == [("b", ONE)]
    node.answered("b", answer(2, 3))
    assert node.passes()


def test_a_newer_epoch_voids_the_answer():
    """Statements of the former epoch do not count either."""
    node = passed("b")
    node.state("b", MemberStanding.ALIVE, epoch=2)
    node.step()
    assert not node.passes()
    node.hear("b", statement("b", (2, 3)), epoch=2)
    assert not node.passes()
    node.answered("b", answer(2, 3), epoch=1)  # The former life of the member answered.
    assert not node.passes()
    node.step(TERMS.probe_interval_ms)
    node.answered("b", answer(2, 3), epoch=2)
    assert node.passes()


def test_an_answer_from_before_a_withdrawal_is_void():
    """A partition that was withdrawn and published again is asked for again."""
    node = passed("b")
    node.hear("b", statement("b", (2,)))
    node.hear("b", statement("b", (2, 3)))
    assert not node.passes()
    node.answered("b", answer(2, 3))
    assert node.passes()


def test_a_question_about_another_identity_has_no_answer():
    """The version of that name here has other files or another grouping."""
    node = Node("b")
    node.has(0, 1)
    assert node.core.answer("b", ONE.wire_id, now_ms=node.now_ms) == answer(0, 1)
    assert node.core.answer("b", identity(regrouped=True).wire_id, now_ms=node.now_ms) is None
    assert node.core.answer("b", TWO.wire_id, now_ms=node.now_ms) is None


def test_who_is_about_to_drop_does_not_count():
    """The answer says so."""
    node = gated("b")
    node.answered("b", answer(2, 3, dropping=True))
    assert not node.passes()


def test_a_silent_node_does_not_count():
    """A silent node has no known epoch and may be another one tomorrow."""
    node = gated("b")
    node.answered("b", answer(2, 3), epoch=0)
    assert not node.passes()


def test_so_many_owners_are_needed():
    """`min_replication` owners of each partition, this node included."""
    node = gated("b", "c", terms=TERMS._replace(replication=2, min_replication=2))
    node.hear("c", statement("c", (0, 1, 2, 3)))
    node.answered("c", answer(0, 1, 2, 3))
    assert not node.passes()
    node.answered("b", answer(2, 3))
    assert node.passes()


def test_another_identity_is_not_counted():
    """Other files or another function under the same name are another version."""
    for other in (identity(digest="cd" * 32), identity(function="spark"), identity(regrouped=True)):
        node = Node("b", "c")
        node.settle()
        node.has(0, 1)
        node.hear("b", statement("b", (2, 3), of=other))
        assert node.asked == []
        assert node.core.identity("1") == ONE
        ((version, owners),) = node.core.conflicts
        assert (version, owners) == ("1", {ONE: ["a"], other: ["b"]})


def test_another_number_of_partitions_is_named_and_not_mixed():
    """The node listed the source when half of the files were there."""
    node = Node("b")
    node.settle()
    node.has(0, 1)
    other = identity(partitions=2)
    node.hear("b", statement("b", (0, 1), of=other))
    assert [set(owners) for _, owners in node.core.conflicts] == [{ONE, other}]


def test_seals_must_agree():
    """If two files of a partition differ, neither counts, and both owners are named."""
    node = gated("b", "c")
    node.hear("c", statement("c", (2, 3)))
    node.answered("c", answer(3, seals={"1/none": {2: 7, 3: 8}}))
    node.answered("b", answer(2, 3))
    assert not node.passes()
    assert node.core.disputes == {"1": [Dispute("b", "c", some(3))]}
    node.step(TERMS.probe_interval_ms // 2)
    node.answered("c", answer(2, 3))
    assert node.passes()
    assert node.core.disputes == {}


def test_what_clients_have_stays_what_it_is():
    """After the switch a new owner is asked for its seals only, and is named if they differ."""
    node = passed("b", "c", "d")
    node.asked.clear()
    for late in ("c", "d"):
        node.hear(late, statement(late, (0, 2, 3)))
    assert sorted(node.asked) == [("c", ONE), ("d", ONE)]
    assert node.core.owners(ONE) == (held("b", 2, 3),)
    for late in ("c", "d"):  # Most owners differ by now.
        node.answered(late, answer(0, 2, 3, seals={"1/none": {0: 7, 2: 8, 3: 7}}))
    assert node.passes()
    assert node.core.owners(ONE) == (held("b", 2, 3), held("c", 0, 3), held("d", 0, 3))
    assert node.core.disputes == {"1": [Dispute("b", "c", some(2)), Dispute("b", "d", some(2))]}
    node.core.activate(ONE)
    node.asked.clear()
    node.step(HOUR_MS)
    assert node.asked == [], "whose files are known is not asked again"
    node.hear("c", statement("c", (0, 3)))
    assert node.core.disputes == {"1": [Dispute("b", "d", some(2))]}
    node.hear("c", statement("c", (0, 2, 3)))  # The owner has built it again.
    node.answered("c", answer(0, 2, 3))
    assert node.core.owners(ONE)[1] == held("c", 0, 2, 3)


@pytest.mark.parametrize("other", ["b", "A"], ids=["the greater uuid is there", "the greater uuid is here"])
def test_a_copy_of_its_own_that_differs_is_built_anew_once_and_neither_answered_nor_shown(other):
    """This also holds if the own copy comes last, and for either order of uuids."""
    node = passed(other)
    node.core.activate(ONE)
    node.has(0, 1, 2, 3, seals={"1/none": {0: 7, 1: 7, 2: 7, 3: 9}})
    assert node.core.disputes == {"1": [Dispute(other, "a", some(3))]}
    node.step(1_000)
    assert node.published["1"].ready == some(0, 1, 2)
    assert node.core.answer("b", ONE.wire_id, now_ms=node.now_ms).ready == some(0, 1, 2)
    assert node.core.contradicting(ONE, {"1/none": {3: 9}}) == some(3)
    assert built_anew(node) == [BuildAnew("1", some(3))]
    node.has(0, 1, 2, 3, seals={"1/none": {0: 7, 1: 7, 2: 7, 3: 10}})  # The rebuilt copy still differs.
    assert built_anew(node) == [BuildAnew("1", some(3))]
    node.has(0, 1, 2, 3)
    assert node.core.disputes == {}
    node.step(1_000)
    assert node.published["1"].ready == some(0, 1, 2, 3)


def test_what_is_built_anew_goes_once_others_have_had_time_to_hear():
    """The copy is withdrawn first, because other members may still ask for it until they have heard."""
    node = Node("A")
    node.settle()
    node.has(0, 1, 2)
    assert node.published["1"].ready == some(0, 1, 2)
    node.hear("A", statement("A", (2, 3)))
    node.answered("A", answer(2, 3, seals={"1/none": {2: 8, 3: 7}}))
    node.step()  # The decision that the core asks for causes another step.
    assert node.published["1"].ready == some(0, 1)
    node.step(TERMS.grace_ms - 1)
    assert not [effect for effect in node.effects if isinstance(effect, BuildAnew)]
    assert BuildAnew("1", some(2)) in node.step(1)


def test_who_has_not_switched_takes_what_others_have_switched_on():
    """Copies and owners that differ from the active content do not count."""
    fixed = {"1/none": dict.fromkeys(range(4), 7)}
    node = gated("b", "c")
    node.has(0, 1, seals={"1/none": {0: 7, 1: 8}})
    node.hear("b", statement("b", (0, 1, 2, 3)), database=active())
    node.hear("c", statement("c", (0, 1, 2, 3)))
    node.answered("c", answer(0, 1, 2, 3, seals={"1/none": {0: 7, 1: 8, 2: 7, 3: 7}}))
    assert not node.passes(), "b lives, has it active, and has not said yet what its clients get"
    node.answered("b", answer(0, 1, 2, 3)._replace(fixed=fixed))
    assert node.passes()
    assert node.core.owners(ONE) == (held("b", 0, 1, 2, 3), held("c", 0, 2, 3))
    assert node.core.contradicting(ONE, {"1/none": {1: 8}}) == some(1)
    assert built_anew(node) == [BuildAnew("1", some(1))]


def test_of_two_contents_that_stand_it_goes_with_the_first_and_names_both():
    """Two members switched at the same time, each to its own content."""
    node = gated("b", "c")
    others = {"1/none": {0: 7, 1: 7, 2: 7, 3: 8}}
    node.hear("b", statement("b", (2, 3)), database=active())
    node.hear("c", statement("c", (2, 3)), database=active())
    node.answered("b", answer(2, 3)._replace(fixed=answer(0, 1, 2, 3).seals))
    assert not node.passes(), "c has not said yet what its clients get"
    node.answered("c", answer(2, 3, seals={"1/none": {2: 7, 3: 8}})._replace(fixed=others))
    assert node.passes()
    assert node.core.disputes == {"1": [Dispute("b", "c", some(3))]}
    assert node.core.owners(ONE) == (held("b", 2, 3), held("c", 2))


def test_of_two_contents_that_stand_neither_is_completed_from_the_other():
    """Each partition has an owner, but the two active owners disagree on the partition that only the second has."""
    node = gated("b", "c")
    others = {"1/none": {0: 7, 1: 7, 2: 7, 3: 8}}
    node.hear("b", statement("b", (2,)), database=active())
    node.hear("c", statement("c", (3,)), database=active())
    node.answered("b", answer(2)._replace(fixed=answer(0, 1, 2, 3).seals))
    node.answered("c", answer(3, seals={"1/none": {3: 8}})._replace(fixed=others))
    assert not node.passes()
    assert node.core.owners(ONE) == (held("b", 2),)


def test_a_restart_keeps_what_clients_had():
    """The owners that were right are asked at once, although all have published something else since."""
    node = Node("b", "c")
    node.core.remember(ONE, [held("b", 0, 1, 2, 3)], [Sealed(ONE, {"1/none": dict.fromkeys(range(4), 7)})])
    node.step()
    assert node.core.owners(ONE) == (held("b", 0, 1, 2, 3),)
    node.hear("c", statement("c", (0, 1, 2, 3)))
    node.answered("c", answer(0, 1, 2, 3, seals={"1/none": dict.fromkeys(range(4), 8)}))
    assert node.core.owners(ONE) == (held("b", 0, 1, 2, 3),)
    node.hear("b", statement("b", (0, 1)), epoch=2)
    node.tell(member("b", epoch=2))
    node.hear("b", statement("b", (0, 1)), epoch=2)
    assert node.asked[-1] == ("b", ONE)
    assert node.core.owners(ONE) == (held("b", 0, 1, 2, 3),), "it has not come to say all"
    node.answered("b", answer(0, 1, seals={"1/none": {0: 7, 1: 6}}), epoch=2)
    assert node.core.owners(ONE) == (held("b", 0),)


def test_seals_of_other_kinds_are_not_compared():
    node = gated("b", "c")
    node.hear("c", statement("c", (2, 3)))
    node.answered("b", answer(2, 3))
    node.answered("c", answer(2, 3, seals={"1/lz4": {2: 1, 3: 2}}))
    assert node.passes()


def built_anew(node):
    """Return the rebuilds requested after the withdrawal has been heard."""
    node.step()
    node.step(TERMS.grace_ms)
    return [effect for effect in node.effects if isinstance(effect, BuildAnew)]


@pytest.mark.parametrize(("other", "gives_way"), [("b", False), ("A", True)])
def test_the_greater_uuid_builds_anew_once(other, gives_way):
    """Both nodes pick the same one to rebuild, and only once."""
    node = Node(other)
    node.settle()
    node.has(0, 1, 2)
    node.hear(other, statement(other, (2, 3)))
    node.answered(other, answer(2, 3, seals={"1/none": {2: 8, 3: 7}}))
    assert not node.passes()
    anew = built_anew(node)
    assert anew == [BuildAnew("1", some(2))] * gives_way
    node.has(0, 1, 2, seals={"1/none": {0: 7, 1: 7, 2: 9}})  # The rebuilt copy still differs.
    assert built_anew(node) == anew
    node.has(0, 1, 2, seals={"1/none": {0: 7, 1: 7, 2: 8}})
    node.step()
    node.answered(other, answer(2, 3, seals={"1/none": {2: 8, 3: 7}}))
    assert node.passes()


def test_what_is_going_does_not_count():
    """A partition that is about to be rebuilt is withdrawn at once."""
    node = passed("b")
    node.has(0, 1, going=some(1))
    assert not node.passes()
    assert node.published["1"].ready == some(0)
    assert node.core.is_withdrawn("1", some(1))
    assert not node.core.is_withdrawn("1", some(0))


def test_nothing_older_is_switched_to():
    """An older version may answer clients that name it, but is no candidate."""
    node = passed("b")
    node.core.activate(ONE)
    node.hear("b", statement("b", (2, 3)), statement("b", (0, 1, 2, 3), of=identity("0")))
    node.answered("b", answer(0, 1, 2, 3), identity("0"))
    assert node.core.passed("0")
    assert not node.passes("0")
    assert not node.passes("1")


def test_a_hold_is_the_way_back():
    """Only the held version may be switched to."""
    node = passed("b")
    node.core.activate(ONE)
    node.core.hold("0")
    node.hear("b", *(statement("b", (0, 1, 2, 3), of=identity(name)) for name in "02"))
    for name in "02":
        node.answered("b", answer(0, 1, 2, 3), identity(name))
    assert node.passes("0")
    assert not node.passes("2")
    assert node.core.passed("2")
    assert node.database.next.version == "0"
    assert node.database.hold == "0"


def test_the_next_is_one_whose_gate_may_pass():
    """A newer version in the making does not hold a node back from a complete one."""
    node = Node("b")
    node.settle()
    node.hear("b", statement("b", (0, 1, 2, 3)), statement("b", (0,), (1, 2, 3), of=TWO))
    assert node.database.next.version == "1"
    node.answered("b", answer(0, 1, 2, 3))
    assert node.passes("1")
    node.core.activate(ONE)
    node.step(1_000)
    assert node.database.active.version == "1"
    assert node.database.next.version == "2"


def test_what_passed_keeps_its_identity():
    """Clients never get two contents under one name."""
    node = passed("b")
    other = identity(digest="cd" * 32)
    node.hear("b", statement("b", (0, 1, 2, 3), of=other), database=active(other))
    node.step()
    assert node.core.identity("1") == ONE


def test_a_node_that_has_nothing_takes_what_is_covered():
    """The node takes the content that has owners for all partitions."""
    node = Node("b", "c")
    node.settle()
    whole, part = identity(digest="ff" * 32), identity(digest="00" * 32)
    node.hear("b", statement("b", (0, 1), of=part))
    node.hear("c", statement("c", (0, 1, 2, 3), of=whole))
    assert node.core.identity("1") == whole


def test_a_node_alone_needs_nobody():
    """The node's own partitions are the gate."""
    node = Node(expects_others=False)
    node.step()
    node.has(0, 1, 2)
    assert not node.passes()
    node.has(0, 1, 2, 3)
    assert node.passes()


def test_a_node_that_leaves_goes_on_till_its_end():
    node = passed("b")
    node.state("a", MemberStanding.LEFT)
    node.step()
    assert node.passes()


def test_a_node_of_another_uuid_is_another():
    node = passed("b")
    node.tell(member("b")._replace(uuid=bytes(16)))
    node.step()
    assert not node.passes()
