"""The time of a version's source in the survey of a database."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gossipkv.dataset.cluster.members import MemberStanding
from tests.unit.dataset.cluster.scene import Node, identity, statement


def said(name, source_ms, ready=(0,), of=None):
    """Return a member's statement of a version with this time of its source."""
    return replace(statement(name, ready, of=of), source_ms=source_ms)


def test_of_what_live_owners_tell_the_smallest_counts():
    """This node and suspects count; a time of zero and members without ready partitions do not."""
    node = Node("b", "c", "d")
    assert node.core.source_ms(identity()) is None
    node.has(0, 1, source_ms=7000)
    assert node.core.source_ms(identity()) == 7000
    for name, source_ms, ready, expected in [
        ("b", 8000, (2,), 7000), ("b", 6000, (2,), 6000), ("c", 0, (3,), 6000), ("c", 5000, (), 6000),
        ("d", 5500, (3,), 5500),
    ]:  # fmt: skip
        node.hear(name, said(name, source_ms, ready))
        assert node.core.source_ms(identity()) == expected
    node.state("d", MemberStanding.SUSPECT)
    node.step()
    assert node.core.source_ms(identity()) == 5500


@pytest.mark.parametrize("state", [MemberStanding.DEAD, MemberStanding.LEFT])
def test_who_is_gone_counts_no_more(state):
    node = Node("b")
    node.has(0, source_ms=7000)
    node.hear("b", said("b", 6000))
    node.state("b", state)
    node.step()
    assert node.core.source_ms(identity()) == 7000


def test_another_content_of_the_same_name_has_its_own_time():
    """Two sources have different files under one version."""
    node, other = Node("b"), identity(digest="cd" * 32)
    node.has(0, source_ms=7000)
    node.hear("b", said("b", 6000, of=other))
    assert (node.core.source_ms(identity()), node.core.source_ms(other)) == (7000, 6000)


def test_nodes_that_have_heard_each_other_tell_the_same():
    """The result is the same whatever each node holds."""
    times = {"a": 9000, "b": 7000}
    told = []
    for mine, other in (("a", "b"), ("b", "a")):
        node = Node("b")
        node.has(0, 1, 2, 3, source_ms=times[mine])
        node.hear("b", said("b", times[other], (0, 1, 2, 3)))
        told.append(node.core.source_ms(identity()))
    assert told == [7000, 7000]
