"""Partitions without an owner are built by other members."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gossipkv.dataset.cluster.members import MemberStanding
from gossipkv.dataset.cluster.reassignment import Reassignment, Ring, every
from gossipkv.placement.partition_set import PartitionSet
from gossipkv.placement.ring import order
from tests.unit.dataset.cluster.scene import TERMS, Node, active, identity, member, some, statement

AFTER_MS = TERMS.reassign_after_ms


@given(st.integers(1, 9), st.integers(0, 8), st.integers(1, 70))
def test_every_is_every(step, first, partitions):
    first = min(first, partitions - 1)
    assert list(every(step, first, partitions)) == list(range(first, partitions, step))


IDS = st.lists(st.sampled_from(["1", "2", "3", "10", "11"]), min_size=1, unique=True)


@given(IDS, st.tuples(st.integers(1, 3), st.integers(1, 2)), st.integers(1, 3), st.integers(1, 12), st.data())
def test_the_next_of_the_ring_take_it(ids, copies, turns, partitions, data):
    """Each turn takes as many new owners as are missing, in ring order, from members that do not hold it."""
    replication, least = copies
    sets = st.sets(st.integers(0, partitions - 1)).map(lambda each: PartitionSet.of(partitions, each))
    unowned = data.draw(sets)
    held = {shard_id: data.draw(sets) for shard_id in ids}
    reassignment = Reassignment(partitions, AFTER_MS)
    reassignment.step(unowned, now_ms=0)
    for own_id in ids:
        found = reassignment.mine(Ring(own_id, ids, held, replication, least), now_ms=turns * AFTER_MS)
        expected = [
            partition
            for partition in unowned
            if own_id
            in [each for each in order(partition, ids, replication) if partition not in held[each]][: least * turns]
        ]
        assert list(found) == expected


def test_time_counts_for_each_partition_by_itself():
    """Each partition has its own time, which restarts after it was built."""
    reassignment = Reassignment(4, AFTER_MS)
    ring = Ring("1", ["1"], {}, 1, 1)
    reassignment.step(some(0, 1), now_ms=0)
    reassignment.step(some(0, 1, 2), now_ms=100)
    reassignment.step(some(0, 2), now_ms=200)
    reassignment.step(some(0, 1, 2), now_ms=300)
    assert reassignment.due_ms(300) == AFTER_MS
    assert reassignment.mine(ring, now_ms=AFTER_MS) == some(0)
    assert reassignment.due_ms(AFTER_MS) == AFTER_MS + 100
    assert reassignment.mine(ring, now_ms=AFTER_MS + 100) == some(0, 2)
    assert reassignment.mine(ring, now_ms=AFTER_MS + 300) == some(0, 1, 2)


def test_generations_are_bounded():
    """Many generations are merged, and none is forgotten."""
    reassignment = Reassignment(40, AFTER_MS)
    for partition in range(40):
        reassignment.step(PartitionSet.of(40, range(partition + 1)), now_ms=partition)
    ring = Ring("1", ["1"], {}, 1, 1)
    assert len(reassignment.mine(ring, now_ms=AFTER_MS + 40)) == 40
    assert len(reassignment.mine(ring, now_ms=AFTER_MS)) == 1


def test_differing_views_are_mended():
    """A, B and C made rings of {A, B}, {A, B, C} and {A, C}: partition 1 of two has no owner."""
    node = Node("b", "c")
    of = identity(partitions=2)
    node.settle()
    node.copy(digest=of.digest, partitions=2, share=some(0, of=2))  # By {a, b}: the first of two.
    node.hear("b", statement("b", (), (), of=of))
    node.hear("c", statement("c", (0,), of=of))
    assert node.core.share("1") == some(0, of=2)
    node.step(AFTER_MS - 1)
    assert node.core.share("1") == some(0, of=2)
    node.step(1)
    assert node.core.share("1") == some(0, of=2)  # The partition falls to b first.
    node.step(AFTER_MS)
    assert node.core.share("1") == some(0, of=2)  # The partition falls to c next.
    node.step(AFTER_MS)
    assert node.core.share("1") == some(0, 1, of=2)


def test_what_is_being_built_is_not_taken():
    """A living member announces that it builds the partitions."""
    node = Node("b")
    node.settle()
    node.copy(digest=identity().digest, partitions=4, share=some(0))
    node.hear("b", statement("b", (0, 1), (2, 3)))
    node.step(10 * AFTER_MS)
    assert node.core.share("1") == some(0)
    node.state("b", MemberStanding.DEAD)
    node.step(10_000)
    node.step(10_000)
    node.step(AFTER_MS)
    assert node.core.share("1") == some(0, 1, 2, 3)


def test_an_active_version_that_lost_its_owners_is_built():
    """A version that no member waits for is not built."""
    node = Node("b")
    node.settle()
    old, new = identity("1"), identity("2")
    node.core.activate(new)
    for each in (old, new):
        node.copy(each.version, digest=each.digest, partitions=4, share=some(0))
    node.hear("b", statement("b", (0, 1, 2, 3), of=old), statement("b", (0, 1, 2, 3), of=new), database=active(new))
    node.state("b", MemberStanding.DEAD)
    node.step(10_000)
    node.step(10_000)
    node.step(AFTER_MS)
    assert node.core.share("2") == some(0, 1, 2, 3)
    assert node.core.share("1") == some(0)


def test_lacking_copies_are_made_after_a_time():
    """Partitions with one owner of two stay so, unless `repair_after` is set: then one more node builds each."""
    for repair_after_ms, repaired in ((0, some(0)), (600_000, some(0, 3))):
        terms = TERMS._replace(replication=2, repair_after_ms=repair_after_ms)
        node = Node("b", "c", terms=terms)
        node.settle()
        node.copy(digest=identity().digest, partitions=4, share=some(0), ready=some(0))
        node.hear("b", statement("b", (0, 1, 2)))
        node.hear("c", statement("c", (1, 3)))
        node.core.activate(identity())
        node.step(599_000)
        assert node.core.share("1") == some(0)
        node.step(2_000)
        assert node.core.share("1") == repaired, "the ring gives 3 to a, and 2 to c"


def test_nothing_is_taken_while_nobody_is_heard():
    """An isolated node sees all members dead and takes nothing; afterwards the time restarts."""
    node = Node("b")
    node.settle()
    node.copy(digest=identity().digest, partitions=4, share=some(0))
    node.hear("b", statement("b", (0, 1, 2, 3)))
    node.membership.isolate(isolated=True, now_ms=node.now_ms)
    node.state("b", MemberStanding.DEAD)
    node.step()
    node.step(2 * AFTER_MS)
    assert node.core.share("1") == some(0)
    node.membership.isolate(isolated=False, now_ms=node.now_ms)
    node.step()
    node.tell(member("b"))
    node.step(AFTER_MS)
    assert node.core.share("1") == some(0)
