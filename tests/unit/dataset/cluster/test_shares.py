"""The share of a node, computed once for each version, and the cost of a member's change."""

from __future__ import annotations

import cProfile
import pstats

from gossipkv.dataset.cluster.members import MemberStanding
from gossipkv.placement.partition_set import PartitionSet
from tests.unit.dataset.cluster.scene import SETTLE_MS, TERMS, Node, identity, member, some, statement


def test_no_share_before_the_list_is_still():
    node = Node("b", terms=TERMS._replace(replication=1))
    node.copy(digest=identity().digest, partitions=4)
    node.step()
    assert node.core.share("1") is None
    node.step(SETTLE_MS)
    assert node.core.share("1") == some(0, 2)
    assert node.core.share("2") is None


def test_it_is_computed_once():
    """Later members do not change a share; a later version uses the list of its time."""
    node = Node("b")
    node.settle()
    node.copy("1", digest=identity().digest, partitions=4)
    assert node.core.share("1") == some(0, 2)
    node.tell(member("c"))
    node.step()
    node.step(SETTLE_MS)
    node.copy("2", digest=identity().digest, partitions=6)
    node.step()
    assert node.core.share("1") == some(0, 2)
    assert node.core.share("2") == some(0, 3, of=6)
    node.state("b", MemberStanding.DEAD)
    node.step()
    node.step(SETTLE_MS)
    assert node.core.share("1") == some(0, 2)
    assert node.core.share("2") == some(0, 3, of=6)


def test_what_the_manifest_has_counts():
    """A restart computes no share again."""
    node = Node("b")
    node.copy(digest=identity().digest, partitions=4, share=some(1, 3))
    node.step()
    assert node.core.share("1") == some(1, 3)


def test_what_the_manifest_had_outlives_its_files():
    """A refuted or damaged copy is rebuilt with its share from before the restart."""
    node = Node("b")
    node.copy(digest=identity().digest, partitions=4, share=some(1, 3))
    node.step()
    assert node.core.share("1") == some(1, 3)
    node.copy(digest=identity().digest, partitions=4)
    node.settle()
    assert node.core.share("1") == some(1, 3)


def test_another_number_of_files_is_another_share():
    """The source was listed while files arrived."""
    node = Node("b")
    node.settle()
    node.copy(digest="cd" * 32, partitions=2)
    assert node.core.share("1") == some(0, of=2)
    node.copy(digest=identity().digest, partitions=4)
    assert node.core.share("1") == some(0, 2)


def test_a_node_whose_id_is_not_in_the_ring_yet_waits_for_it():
    """Its share would be empty for good."""
    node = Node("b")
    node.settle()
    node.tell(member("a", "9"))
    node.step()
    node.copy(digest=identity().digest, partitions=4)
    assert node.core.share("1") is None
    node.step(SETTLE_MS)
    assert node.core.share("1")


MANY = 65_536


def calls_of(node, name):
    """Count the calls of Python functions for one suspicion."""
    node.state(name, MemberStanding.SUSPECT)
    profile = cProfile.Profile()
    profile.runcall(node.step)
    return pstats.Stats(profile).total_calls


def test_a_suspicion_costs_nothing_for_each_partition():
    """65,536 partitions of three versions cost as many calls as 64, since all work is on whole bitmaps."""
    counts = []
    for partitions in (64, MANY):
        node = Node("b", "c", "d")
        node.settle()
        for version in "123":
            of = identity(version, partitions=partitions)
            whole = PartitionSet.whole(partitions)
            node.copy(version, identity=of, partitions=partitions, share=whole, ready=whole)
        for name in "bcd":
            node.hear(name, *(statement(name, range(0, partitions, 2), of=identity(each, partitions=partitions))
                              for each in "123"))  # fmt: skip
        node.core.activate(identity("1", partitions=partitions))
        node.step()
        counts.append(calls_of(node, "b"))
    assert counts[1] <= counts[0] + 10
