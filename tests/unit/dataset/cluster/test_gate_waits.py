"""Waits of a switch whose gate holds: for replicas, and for versions active elsewhere."""

from __future__ import annotations

import pytest

from gossipkv.dataset.cluster.members import MemberStanding
from gossipkv.settings.databases import MinimumSettings
from tests.unit.dataset.cluster.scene import TERMS, Node, active, answer, held, identity, statement

ONE, TWO = identity("1"), identity("2")
PATIENT = TERMS._replace(replication=2, switch_patience_ms=10_000)


def patient(active_here=ONE):
    """Return a node that may switch to version 2, of which each partition has one owner."""
    node = Node("b", "c", terms=PATIENT)
    node.settle()
    if active_here is not None:
        node.core.activate(active_here)
    node.has(0, 1, of=TWO)
    node.hear("b", statement("b", (2, 3), of=TWO))
    node.answered("b", answer(2, 3), of=TWO)
    return node


def test_a_switch_waits_for_copies_so_long():
    """The wait starts when the gate first holds; clients may name the version meanwhile."""
    node = patient()
    for _ in range(19):
        node.step(500)
        node.answered("b", answer(2, 3), of=TWO)
        assert not node.passes("2")
        assert node.core.passed("2")
    node.step(500)
    assert node.passes("2")


def test_a_switch_waits_no_longer_than_for_the_copies():
    """This node's own copies count too."""
    node = patient()
    node.hear("c", statement("c", (0, 1, 2, 3), of=TWO))
    assert not node.passes("2")
    node.answered("c", answer(0, 1, 2, 3), of=TWO)
    assert node.passes("2")


@pytest.mark.parametrize(
    ("change", "waits"),
    [
        (lambda node: None, True),
        (lambda node: node.state("c", MemberStanding.DEAD), True),  # The member may come back in a minute.
        (lambda node: node.core.hold("2"), False),
    ],
)
def test_whose_copies_a_switch_waits_for(change, waits):
    """Copies of all members that have not left are awaited; an operator's hold is obeyed at once."""
    node = patient()
    change(node)
    node.step()
    assert node.passes("2") is not waits


def test_a_first_version_waits_for_no_copies():
    """Clients would have no version meanwhile."""
    assert patient(None).passes("2")


def test_no_more_copies_are_waited_for_than_there_are_nodes():
    """A node alone with `replication` 2 does not wait."""
    node = Node(terms=PATIENT, expects_others=False)
    node.settle()
    node.core.activate(ONE)
    node.has(0, 1, 2, 3, of=TWO)
    assert node.passes("2")


def shrunk(records, minimum, *, before=100, database=None):
    """Return a node with version 1 active, of `before` records, and answers that give version 2 `records`."""
    node = Node("b", "c")
    node.settle()
    node.core.require(minimum)
    if before is not None:
        node.has(0, 1, 2, 3, records=dict.fromkeys(range(4), before // 4))
        node.core.activate(ONE)
    node.has(0, 1, of=TWO, records=dict.fromkeys((0, 1), records // 4))
    node.hear("b", statement("b", (2, 3), of=TWO), database=database)
    node.answered("b", answer(2, 3, records=records // 4), of=TWO)
    return node


HALF = MinimumSettings(min_ratio=500)
WITHHELD = [
    (0, MinimumSettings(), {}, "the version has no records, and `allow_empty` is false"),
    (0, MinimumSettings(), {"before": None}, "the version has no records, and `allow_empty` is false"),
    (0, MinimumSettings(allow_empty=True), {}, None),
    (4, MinimumSettings(), {}, None),
    (40, MinimumSettings(min_records=41), {}, "the version has 40 records, and `min_records` is 41"),
    (40, MinimumSettings(min_records=40), {}, None),
    (48, HALF, {}, "the version has 48 records, version 1 has 100, and `min_ratio` is 0.5"),
    (52, HALF, {}, None),
    (48, HALF, {"before": None}, None),
    (48, HALF, {"database": active(TWO)}, None),  # Another member has accepted it.
    (
        48,
        HALF,
        {"database": active(TWO, hold="2")},
        "the version has 48 records, version 1 has 100, and `min_ratio` is 0.5",
    ),
]


@pytest.mark.parametrize(("records", "minimum", "scene", "why"), WITHHELD)
def test_a_version_that_shrinks_is_not_switched_to(records, minimum, scene, why):
    """Clients may name the version meanwhile, and an operator's hold is obeyed at once."""
    node = shrunk(records, minimum, **scene)
    assert node.core.withheld("2") == why
    assert node.passes("2") is (why is None)
    assert node.core.passed("2")
    node.core.hold("2")
    node.step()
    assert node.passes("2")
    assert node.core.withheld("2") is None


def test_what_shrinks_is_compared_with_what_others_have_active():
    """A node that starts empty counts the active version elsewhere first, for at most a grace period."""
    node = shrunk(48, HALF, before=None)
    node.hear("c", statement("c", (0, 1, 2, 3)), database=active(ONE))
    assert not node.passes("2")
    node.answered("c", answer(0, 1, 2, 3, records=25))
    assert node.passes("1")
    assert node.core.withheld("2") == "the version has 48 records, version 1 has 100, and `min_ratio` is 0.5"
    silent = shrunk(48, HALF, before=None)
    silent.hear("c", statement("c", (0, 1, 2, 3)), database=active(ONE))
    silent.step(TERMS.grace_ms)
    silent.answered("b", answer(2, 3, records=12), of=TWO)
    assert silent.passes("2")


def test_the_records_of_what_was_active_are_counted_after_a_restart():
    """The active document has the count; without it, the owners tell it when asked for their seals."""
    for kept in (100, None):
        node = Node("b", "c")
        node.core.remember(ONE, [held("b", 0, 1, 2, 3)], [], kept)
        node.settle()
        node.core.require(HALF)
        node.hear("b", statement("b", (0, 1, 2, 3)), statement("b", (0, 1, 2, 3), of=TWO), database=active(ONE))
        assert node.core.records(ONE) == kept
        node.answered("b", answer(0, 1, 2, 3, records=25))
        node.answered("b", answer(0, 1, 2, 3, records=12), of=TWO)
        assert not node.passes("2")
        assert node.core.records(ONE) == 100


def joiner(database, ready=(0, 1, 2, 3)):
    """Return a node without an active version; version 1 is answered for, and b has `ready` of version 2."""
    node = Node("b", "c")
    node.settle()
    node.hear("c", statement("c", (0, 1, 2, 3)))
    node.hear("b", statement("b", ready, of=TWO), database=database)
    node.answered("c", answer(0, 1, 2, 3))
    return node


def test_who_comes_late_begins_with_what_is_active():
    """The gate of an older version holds first; clients may name that version."""
    node = joiner(active(TWO))
    assert not node.passes("1")
    assert node.core.passed("1")
    node.answered("b", answer(0, 1, 2, 3), of=TWO)
    assert node.passes("2")


@pytest.mark.parametrize(
    ("database", "ready"),
    [(active(TWO), (0, 1, 2)), (active(identity("0")), (0, 1, 2, 3)), (None, (0, 1, 2, 3))],
)
def test_who_comes_late_does_not_wait_for_what_cannot_pass(database, ready):
    """A partition has no owner, or no ALIVE member has the version active."""
    assert joiner(database, ready).passes("1")


@pytest.mark.parametrize("state", [MemberStanding.SUSPECT, MemberStanding.DEAD])
def test_who_comes_late_does_not_wait_for_what_the_dead_had(state):
    """Another node has the partitions of the dead."""
    node = joiner(active(TWO))
    node.hear("c", statement("c", (0, 1, 2, 3)), statement("c", (0, 1, 2, 3), of=TWO), database=active(ONE))
    node.state("b", state)
    node.step()
    assert node.passes("1")


def test_who_comes_late_waits_no_longer_than_a_grace():
    """Silent owners do not keep the node from serving; an operator's hold waits for nothing."""
    node = joiner(active(TWO))
    node.core.hold("1")
    node.step()
    assert node.passes("1")
    node.core.hold(None)
    for _ in range(TERMS.grace_ms // 500):
        assert not node.passes("1")
        node.step(500)
        node.answered("c", answer(0, 1, 2, 3))
    assert node.passes("1")


def test_what_is_active_here_is_left_as_ever():
    """The rule is for the first gate only: later versions pass in any order."""
    node = joiner(active(identity("3")), ())
    node.hear("b", statement("b", (0, 1, 2, 3), of=identity("3")), database=active(identity("3")))
    node.core.activate(identity("0"))
    node.step()
    assert node.passes("1")
