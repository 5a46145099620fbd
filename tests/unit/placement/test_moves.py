"""Moves from the present map to the wanted one: any order of events ends there, and no step loses a replica."""

from __future__ import annotations

from collections import Counter
from itertools import count

from hypothesis import given
from hypothesis import strategies as st

from gossipkv.placement.moves import MoveStep, next_moves, standing
from gossipkv.placement.partition import MAX_TO_MOVE, Assignment, AssignmentState, Partition, fault_of
from tests.unit.placement.hosted import INIT, A, L, P, hosted, node
from tests.unit.placement.test_spread import COMMANDS, Cluster, moves


class World:
    """A cluster whose nodes carry out the moves; each event asserts the invariants."""

    def __init__(self, random, replication, partitions):
        self.random = random
        self.most = random.randint(1, 3)
        self.cluster = Cluster(replication, partitions)
        self.ids = count(1)
        self.now = [
            Partition.of(at, (Assignment(next(self.ids), one, slot, A) for slot, one in enumerate(slots)))
            for at, slots in enumerate(self.cluster.map)
        ]
        self.plan()

    def plan(self):
        self.cluster.map = [standing(partition) for partition in self.now]
        self.wanted = self.cluster.wanted()

    def put(self, at, assignments, lost=0):
        """Change a partition and assert that it loses at most `lost` AVAILABLE hosts."""
        hosts = [sum(one.state == A for one in some) for some in (self.now[at].assignments, assignments)]
        assert hosts[1] >= hosts[0] - lost
        self.now[at] = Partition.of(at, assignments)
        assert fault_of(self.now[at], self.cluster.replication) == ""

    def mover(self, able=lambda _: True, least=0):
        """Take some of the possible steps, at least `least`; return the number of moves begun."""
        steps = next_moves(self.now, self.wanted, self.most, able=able)
        taken = self.random.sample(steps, self.random.randint(min(least, len(steps)), len(steps)))
        for step in taken:
            assignments = self.now[step.partition].assignments
            if step.unassign is None:
                assert able(step.target)
                self.put(step.partition, [*assignments, Assignment(next(self.ids), step.target, step.slot, P)])
            else:
                self.put(step.partition, [one for one in assignments if one.id != step.unassign])
        at_node = Counter(
            one.node
            for partition in self.now
            for moving in partition.assignments
            if moving.state < A
            for one in partition.assignments
            if one.slot == moving.slot
        )
        assert all(under_way <= self.most for under_way in at_node.values())
        return sum(step.unassign is None for step in taken)

    def under_way(self):
        """Return every assignment that is coming in or out, with its partition."""
        return [(at, one) for at, partition in enumerate(self.now) for one in partition.assignments if one.state != A]

    def node_step(self):
        if not (pending := self.under_way()):
            return
        at, known = self.random.choice(pending)
        after = [one for one in self.now[at].assignments if one is not known]
        if known.state == INIT:
            after = [one._replace(state=L) if one.slot == known.slot else one for one in after]
        if known.state != L:
            after.append(known._replace(state=AssignmentState(known.state + 1)))
        self.put(at, after)

    def lose(self):
        """Remove a host by force if another slot has one."""
        at = self.random.randrange(len(self.now))
        hosts = [one for one in self.now[at].assignments if one.state == A]
        if len(hosts) > 1:
            lost = self.random.choice(hosts)
            self.put(at, [one for one in self.now[at].assignments if one is not lost], lost=1)


@given(st.integers(1, 3), st.integers(1, 12), st.randoms(use_true_random=False))
def test_any_order_of_events_ends_with_what_is_wanted(replication, partitions, random):
    """Commands, losses and stale plans come in between; the map is reached in at most the planned number of moves."""
    world = World(random, replication, partitions)
    for _ in range(random.randint(0, 60)):
        match random.randint(0, 9):
            case 0:
                world.cluster.command(random.choice(COMMANDS), random.randrange(100))
            case 1:
                world.lose()
            case 2:
                world.plan()
            case 3 | 4 | 5:
                dead = random.choice(sorted(world.cluster.nodes))
                world.mover(lambda target, dead=dead: target != dead)
            case _:
                world.node_step()
    world.plan()
    left = len(moves(world.cluster.map, world.wanted))
    for _ in range(3_000):
        if random.random() < 0.2:
            world.plan()
        left -= world.mover(least=1)
        world.node_step()
        if not world.under_way() and not next_moves(world.now, world.wanted, world.most):
            break
    world.plan()
    assert left >= 0
    assert world.wanted == world.cluster.map
    assert next_moves(world.now, world.wanted, 9) == []


def wanted(*numbers):
    """Return slots by the numbers of their nodes; 0 is an empty slot."""
    return tuple(node(number) if number else None for number in numbers)


def test_who_stands_in_a_slot():
    """An incoming node stands in the slot, not the leaving one."""
    assert standing(hosted(7, (1, 0, A), (2, 0, P), (3, 1, L), (4, 1, A), (5, 3, INIT))) == wanted(2, 4, 0, 5)
    assert standing(hosted(7, (2, 0, A), (1, 0, INIT))) == wanted(1)
    assert standing(hosted(7)) == ()


def test_a_slot_that_is_empty_comes_first():
    """Filling an empty slot comes before every move."""
    now = [hosted(0, (1, 0, A), (2, 1, A)), hosted(1, (1, 0, A))]
    steps = next_moves(now, [wanted(3, 2), wanted(4, 5)], 2)
    assert steps == [MoveStep(1, 1, node(5), None), MoveStep(0, 0, node(3), None)]


def test_most_moves_at_a_node():
    """Moves count at target and source, those under way too; moves of other nodes go on."""
    now = [hosted(0, (1, 0, A), (9, 0, INIT)), hosted(1, (2, 0, A)), hosted(2, (1, 0, A)), hosted(3, (3, 0, A))]
    plan = [wanted(9), wanted(9), wanted(4), wanted(4)]
    assert next_moves(now, plan, 1) == [MoveStep(3, 0, node(4), None)]
    assert [step.partition for step in next_moves(now, plan, 2)] == [1, 2, 3]


def test_a_target_that_is_not_able_is_not_begun():
    """Another slot of the same partition may still move."""
    now = [hosted(0, (1, 0, A), (2, 1, A))]
    plan = [wanted(3, 4)]
    assert next_moves(now, plan, 2, able=lambda one: one != node(3)) == [MoveStep(0, 1, node(4), None)]


def test_one_slot_moves_at_a_time():
    for moving in (P, INIT):
        assert next_moves([hosted(0, (1, 0, A), (3, 0, moving), (2, 1, A))], [wanted(3, 4)], 9) == []
    assert next_moves([hosted(0, (1, 0, L), (3, 0, A), (2, 1, A))], [wanted(3, 4)], 9) == []


def test_a_move_that_is_not_wanted_is_taken_back():
    """The move is taken back by its assignment's id; a LEAVING node finishes and is no target until then."""
    for moving in (P, INIT):
        now = [hosted(0, (1, 0, A), (3, 0, moving), (2, 1, A))]
        for plan in (wanted(1, 2), wanted(4, 2), wanted(0, 2, 3), ()):
            assert next_moves(now, [plan], 1) == [MoveStep(0, 0, node(3), 3)]
    assert next_moves([hosted(0, (1, 0, L), (3, 0, A))], [wanted(3, 1)], 9) == []
    assert next_moves([hosted(0, (1, 0, A), (2, 1, A))], [wanted(2, 1)], 9) == []


def test_what_has_to_settle_first_is_not_begun():
    """A partition's record has room for few former assignments, so the move would be refused."""
    now = hosted(7, (1, 0, A))
    for count_, moving in ((MAX_TO_MOVE - 1, 1), (MAX_TO_MOVE, 0)):
        former = tuple(range(100, 100 + count_))
        assert len(next_moves([now._replace(former=former)], [(node(2),)], 1)) == moving
