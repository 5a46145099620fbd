"""The conditions under which an old version is dropped."""

from __future__ import annotations

import pytest

from gossipkv.dataset.cluster.members import MemberStanding
from gossipkv.dataset.cluster.retiring import Needs, needed_by
from gossipkv.placement.statement import DatabaseStatement, Named
from tests.unit.dataset.cluster.scene import HOUR_MS, TERMS, Node, active, identity, statement

OLD, NEW = identity("1"), identity("2")


def retiring(*others, **more):
    """Return a node on which version 1 is old and 2 is active, as on the other members."""
    node = Node(*others, **more)
    node.core.opened()
    node.settle()
    for other in others:
        node.hear(other, database=active(NEW))
    node.core.activate(NEW)
    node.has(0, 1, 2, 3, of=NEW)
    node.has(0, 1, 2, 3, of=OLD, asked_ms=node.now_ms)
    return node


def may_retire(node, ms=0):
    node.step(ms)
    return node.core.may_retire("1")


def quiet(node):
    node.step(TERMS.retire_after_ms)
    return may_retire(node, TERMS.grace_ms)


def test_a_quiet_version_is_withdrawn_and_then_goes():
    """After `retire_after` the version is withdrawn, and answered for a grace period longer."""
    node = retiring("b", "c")
    assert not may_retire(node, TERMS.retire_after_ms - 1)
    assert node.published.keys() == {"1", "2"}
    assert not may_retire(node, 1)
    assert node.published.keys() == {"2"}
    assert node.core.answer("b", OLD.wire_id, now_ms=node.now_ms).dropping
    assert not may_retire(node, TERMS.grace_ms - 1)
    assert may_retire(node, 1)


def test_who_asks_keeps_it():
    """A request in the grace period, too, publishes the version again and restarts the time."""
    node = retiring("b")
    node.step(TERMS.retire_after_ms)
    node.has(0, 1, 2, 3, of=OLD, asked_ms=node.now_ms)
    assert node.published.keys() == {"1", "2"}
    assert not may_retire(node, TERMS.retire_after_ms - 1)


def test_a_laggard_keeps_it():
    """A laggard has it active, held or next, or has not said which version is active."""
    for said in (
        active(OLD),
        active(NEW, hold="1"),
        active(NEW, next=Named("1", OLD.wire_id)),
        DatabaseStatement(is_complete=True),
        None,
    ):
        node = retiring("b", "c")
        node.hear("c", database=said)
        assert not quiet(node)
        assert node.core.needed_by("1", now_ms=node.now_ms) == ["c"]
        node.hear("c", database=active(NEW))
        node.step()
        assert may_retire(node, TERMS.grace_ms)


def test_the_dead_are_waited_for_for_an_hour():
    """The last statement of the dead counts for an hour; members that have left do not count."""
    for state, waited in ((MemberStanding.SUSPECT, True), (MemberStanding.DEAD, True), (MemberStanding.LEFT, False)):
        node = retiring("b", "c")
        node.hear("c", database=active(OLD))
        node.state("c", state)
        assert quiet(node) is not waited
        node.step(HOUR_MS)
        assert may_retire(node, TERMS.grace_ms) is (state is not MemberStanding.SUSPECT)


@pytest.mark.parametrize(
    "said",
    [
        ([], active(identity("0"), newest="2")),
        ([], active(identity("0"), next=Named("2", NEW.wire_id))),
        ([statement("c", (0,), of=NEW)], active(identity("0"))),
    ],
)
def test_the_dead_may_have_switched_unheard(said):
    """Every version from the active to the newest published one stays; the living would announce a switch."""
    for state, waited in ((MemberStanding.ALIVE, False), (MemberStanding.SUSPECT, True), (MemberStanding.DEAD, True)):
        node = retiring("b", "c")
        statements, database = said
        node.hear("c", *statements, database=database)
        node.state("c", state)
        assert quiet(node) is not waited
        node.step(HOUR_MS)
        assert may_retire(node, TERMS.grace_ms) is (state is not MemberStanding.SUSPECT)


@pytest.mark.parametrize("active_there", ["0", "2"])
def test_what_the_dead_cannot_have_switched_to_goes(active_there):
    """The version is newer than all that they published, or older than their active one."""
    node = retiring("b", "c")
    node.hear("c", database=active(identity(active_there), newest=active_there))
    node.state("c", MemberStanding.DEAD)
    assert quiet(node)


def test_what_the_dead_have_asked_for_is_kept_until_they_say_more():
    """A gate may have passed by the answer before its node died unheard."""
    node = retiring("b", "c")
    node.hear("c", database=active(identity("0")))
    assert node.core.answer("c", OLD.wire_id, now_ms=node.now_ms) is not None
    node.state("c", MemberStanding.DEAD)
    assert not quiet(node)
    assert node.core.needed_by("1", now_ms=node.now_ms) == ["c"]
    node.state("c", MemberStanding.ALIVE, epoch=2)
    node.hear("c", database=active(NEW), epoch=2)
    assert quiet(node)


def test_who_says_nothing_of_the_database_is_waited_for_for_an_hour():
    """Silence ends after an hour, which restarts with each start; a member that has spoken is waited for."""
    for said, waited in ((None, False), (DatabaseStatement(is_complete=True), True)):
        node = retiring("b", "c")
        node.step(TERMS.retire_after_ms)
        node.state("c", MemberStanding.ALIVE, epoch=2)
        node.hear("c", database=said, epoch=2)
        node.step(HOUR_MS - 1)
        assert node.core.needed_by("1", now_ms=node.now_ms) == ["c"]
        assert node.core.wakes_at_ms == node.now_ms + 1
        node.step(1)
        assert node.core.needed_by("1", now_ms=node.now_ms) == (["c"] if waited else [])
        assert may_retire(node, TERMS.grace_ms) is not waited


def test_a_new_life_has_to_say_again():
    """A restarted member may have gone back to its old version."""
    node = retiring("b", "c")
    node.state("c", MemberStanding.ALIVE, epoch=2)
    assert not quiet(node)
    node.hear("c", database=active(NEW), epoch=2)
    assert may_retire(node, TERMS.grace_ms)


def test_nothing_goes_while_nobody_is_heard():
    """After `retire_max` the node goes on alone."""
    node = retiring("b", "c")
    node.membership.isolate(isolated=True, now_ms=node.now_ms)
    for other in "bc":
        node.state(other, MemberStanding.DEAD)
    assert not quiet(node)
    node.step(HOUR_MS)
    assert may_retire(node, TERMS.grace_ms)


def test_a_gate_that_asks_keeps_it():
    """A question from a member that may switch to it counts as a request; from a newer one it does not."""
    node = retiring("b", "c")
    node.step(TERMS.retire_after_ms - 1)
    node.core.answer("b", OLD.wire_id, now_ms=node.now_ms)  # b has version 2 active.
    node.step(1)
    assert "1" not in node.published
    node.hear("b", database=DatabaseStatement())
    node.hear("b", database=active(identity("0")))
    assert node.core.answer("b", OLD.wire_id, now_ms=node.now_ms).dropping
    node.step()
    assert "1" in node.published
    assert not node.core.answer("b", OLD.wire_id, now_ms=node.now_ms).dropping


def test_what_becomes_active_again_is_not_let_go():
    """An operator's hold makes it active again."""
    node = retiring("b")
    node.step(TERMS.retire_after_ms)
    node.has(0, 1, 2, 3, of=OLD)
    assert "1" in node.published
    assert not may_retire(node, TERMS.grace_ms)


def test_clinging_names_members():
    """The names are sorted."""
    needs = [Needs("c", "2"), Needs("b", "1"), Needs("d", None), Needs("e", "3", "4", "1")]
    assert needed_by("1", needs) == ["b", "d", "e"]


def test_others_statements_do_not_keep_it():
    """A member that merely has a copy does not need it."""
    node = retiring("b")
    node.hear("b", statement("b", (0, 1), of=OLD), database=active(NEW))
    assert quiet(node)
