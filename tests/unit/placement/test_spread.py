"""The wanted map: its invariants after any commands, and the fewest moves of all maps."""

from __future__ import annotations

import hashlib
from collections import Counter
from itertools import combinations
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossipkv.keyspace.partitioner import murmur3_32
from gossipkv.placement import spread as spreading
from gossipkv.placement.spread import SpreadNode, lacks, regroup, spread
from tests.oracle import placement as oracle
from tests.unit.placement.hosted import node
from tests.unit.placement.map_faults import fault_of_map

COMMANDS = ("add", "remove", "replace", "weight", "isolation", "reshard")


class Cluster:
    """The nodes, groups and map of a table, changed by idempotent commands."""

    def __init__(self, replication, partitions, count=5):
        self.replication = replication
        self.nodes = {node(number): SpreadNode(node(number), "", 1) for number in range(count)}
        self.groups = ()
        self.map = spread(self.all, replication, [()] * partitions)

    @property
    def all(self):
        return list(self.nodes.values())

    def wanted(self):
        return spread(self.all, self.replication, self.map, self.groups)

    def command(self, kind, number):
        """Carry out a legal command; `number` selects the node."""
        after, count = dict(self.nodes), len(self.groups)
        old, new = sorted(after)[number % len(after)], node(100 + number)
        if kind == "reshard":
            count = number % 4
        elif kind == "weight":
            after[old] = after[old]._replace(weight=1 + number % 7)
        elif kind == "isolation":
            after[old] = after[old]._replace(isolation_group="abc"[: number % 4])
        if kind in {"remove", "replace"}:
            after.pop(old)
        if kind in {"add", "replace"}:
            after[new] = SpreadNode(new, ["", "a", "ab"][number % 3], 1 + number % 2)
        try:
            groups = regroup(list(after.values()), count, self.replication, self.groups)
        except ValueError:
            return
        if len(after) >= self.replication:
            self.nodes, self.groups = after, groups


commands = st.lists(st.tuples(st.sampled_from(COMMANDS), st.integers(0, 99)), max_size=8)


def moves(now, wanted):
    """Return the slots that change: partition, slot and new node."""
    return [
        (at, slot, came)
        for at, (old, new) in enumerate(zip(now, wanted, strict=True))
        for slot, came in enumerate(new)
        if came is not None and came not in old
    ]


def moved(now, some):
    """Return the map after some of the moves."""
    slots = [[*old, *[None] * 9] for old in now]
    for at, slot, came in some:
        slots[at][slot] = came
    return [tuple(some) for some in slots]


@given(st.integers(1, 4), st.integers(0, 40), commands, st.randoms(use_true_random=False))
def test_any_commands_keep_every_invariant(replication, partitions, drawn, random):
    """The wanted map is valid and stable; after each move one move fewer is wanted, also on half-finished maps."""
    cluster = Cluster(replication, partitions)
    for kind, number in drawn:
        cluster.command(kind, number)
        wanted = cluster.wanted()
        assert fault_of_map(cluster.all, replication, wanted, cluster.groups) == ""
        assert spread(cluster.all, replication, wanted, cluster.groups) == wanted
        for old, new in zip(cluster.map, wanted, strict=True):
            assert all(new.index(stays) == old.index(stays) for stays in set(old) & set(new) - {None})
        left = moves(cluster.map, wanted)
        some = random.sample(left, random.randint(0, len(left)))
        cluster.map = moved(cluster.map, some)
        assert len(moves(cluster.map, cluster.wanted())) == len(left) - len(some)


tiny = st.tuples(st.sampled_from(["", "", "a", "b"]), st.integers(1, 3))


@given(st.lists(tiny, min_size=1, max_size=4), st.integers(1, 3), st.data())
def test_no_map_has_fewer_moves(drawn, replication, data):
    """The oracle tries all maps that are as far apart as possible and have each load at its ideal."""
    nodes = [SpreadNode(node(number), *one) for number, one in enumerate(drawn)]
    some = st.lists(st.sampled_from([*map(node, range(6)), None]), max_size=replication, unique=True)
    now = [tuple(data.draw(some)) for _ in range(data.draw(st.integers(1, 4)))]
    forms = oracle.forms_of_partition({one.id: one.isolation_group or one.id for one in nodes}, replication)
    ideal = oracle.ideal_loads(forms, {one.id: one.weight for one in nodes})
    wanted = spread(nodes, replication, now)
    assert all(frozenset(slots) - {None} in forms for slots in wanted)
    load = Counter(one for slots in wanted for one in slots)
    assert all(abs(load[one] - share * len(now)) < 1 for one, share in ideal.items())
    assert len(moves(now, wanted)) == oracle.fewest_moves(forms, ideal, now)


@pytest.mark.parametrize("seed", range(2))
def test_a_node_more_or_less_moves_its_share(seed):
    """With 4,096 slots or so and equal weights, moves are at most 1.25 times the ideal."""
    random = Random(seed)
    replication, partitions = random.choice([(1, 4096), (2, 2048), (3, 1365)])
    racks = random.choice([0, replication, 2 * replication])
    nodes = [SpreadNode(node(at), f"rack {at % racks}" if racks else "", 1) for at in range(12)]
    now = spread(nodes[:-1], replication, [()] * partitions)
    for before, after in ((nodes[:-1], nodes), (nodes, nodes[1:])):
        wanted = spread(after, replication, now)
        assert fault_of_map(after, replication, wanted) == ""
        (one,) = set(before) ^ set(after)
        (shape, _), *_ = spreading._shapes(max(before, after, key=len), replication, 0, ())
        ideal = shape.ideal[shape.nodes.index(one.id)] * partitions
        assert len(moves(now, wanted)) <= 1.25 * ideal
        now = wanted


def test_four_nodes_have_a_quarter_each():
    """Each node has 1,024 of 4,096 shards with one replica; a node of double weight has two fifths."""
    nodes = [SpreadNode(node(number), "", 1) for number in range(4)]
    first = spread(nodes, 1, [()] * 4096)
    assert Counter(first) == {(one.id,): 1024 for one in nodes}
    heavy = [nodes[0]._replace(weight=2), *nodes[1:]]
    wanted = spread(heavy, 1, first)
    assert Counter(wanted)[(node(0),)] in {1638, 1639}
    assert len(moves(first, wanted)) in {1638 - 1024, 1639 - 1024}


def test_a_node_meets_each_of_the_others():
    """The load of a lost node falls on all: each pair shares 0.5 to 1.5 times the mean."""
    nodes = [SpreadNode(node(number), "", 1 + number % 2) for number in range(10)]
    met = Counter(pair for slots in spread(nodes, 3, [()] * 4096) for pair in combinations(sorted(slots), 2))
    for weights in (2, 3, 4):
        of_pair = [
            met[pair] for pair in combinations([one.id for one in nodes], 2) if weight_of(nodes, pair) == weights
        ]
        assert 0.5 * sum(of_pair) < len(of_pair) * min(of_pair) <= len(of_pair) * max(of_pair) < 1.5 * sum(of_pair)


def weight_of(nodes, pair):
    return sum(one.weight for one in nodes if one.id in pair)


def test_water_finds_its_level():
    """A node holds a partition once, and a group no more than its nodes: the excess goes to the others."""
    nodes = [SpreadNode(node(0), "", 10**9), *(SpreadNode(node(at), "", 1) for at in (1, 2, 3))]
    assert Counter(one for slots in spread(nodes, 2, [()] * 300) for one in slots) == {
        node(0): 300,
        **dict.fromkeys(map(node, (1, 2, 3)), 100),
    }
    nodes = [SpreadNode(node(0), "a", 1), *(SpreadNode(node(at), "b", 1) for at in (1, 2, 3))]
    wanted = spread(nodes, 2, [()] * 300)
    assert all((node(0) in slots) for slots in wanted)


@pytest.mark.parametrize(
    ("sizes", "replication", "numbers"), [((2, 1, 1), 2, {0, 1}), ((3, 3), 3, {1, 2}), ((4, 1, 3), 5, {1, 2})]
)
def test_what_shares_an_isolation_group_is_parted(sizes, replication, numbers):
    """The counts of isolation groups differ by one, unless a group has no more nodes."""
    nodes = [
        SpreadNode(node(10 * group + at), "abc"[group], 1) for group, size in enumerate(sizes) for at in range(size)
    ]
    for slots in spread(nodes, replication, [tuple(one.id for one in nodes[:replication])] * 12):
        assert {sum(one.id in slots and one.isolation_group == group for one in nodes) for group in "abc"} - {
            0
        } <= numbers
        assert len({one.isolation_group for one in nodes if one.id in slots}) == min(len(sizes), replication)


def test_slots_are_kept_and_taken_over():
    """A newcomer takes a leaving node's slot before an empty one; the map's last slot is never empty."""
    nodes = [SpreadNode(node(number), "", 1) for number in (1, 2, 3)]
    assert spread(nodes, 3, [(None, node(9), node(1), None)])[0][2] == node(1)
    assert spread(nodes[:2], 3, [(None, node(9), node(1))]) == [(None, node(2), node(1))]
    assert spread(nodes[:1], 3, [(node(1), node(9))]) == [(node(1),)]
    assert spread([], 3, [(node(9),)]) == [()]
    assert spread(nodes, 2, [(), ()], [[node(1)], []]) == [(node(1),), ()]


@pytest.mark.parametrize("groups", [2, 5, 7])
@pytest.mark.parametrize("hashed", [murmur3_32, lambda key: int.from_bytes(hashlib.sha1(key).digest())])
def test_keys_of_each_group(groups, hashed):
    """Seed 004's bound: groups get within 25 % of 1,000 keys, and each key lies in one group."""
    nodes = [SpreadNode(node(number), "", 1) for number in range(2 * groups)]
    formed = regroup(nodes, groups, 2)
    wanted = spread(nodes, 2, [()] * 4096, formed)
    random = Random(4)
    keys = Counter(frozenset(wanted[hashed(random.randbytes(12)) % 4096]) for _ in range(1000))
    assert keys.keys() == set(map(frozenset, formed))
    assert all(abs(count - 1000 / groups) <= 0.25 * 1000 / groups for count in keys.values())


members = st.lists(st.sampled_from(["", "a", "b", "c", "d"]), min_size=1, max_size=12)


@given(members, st.integers(1, 4), st.integers(1, 3))
def test_groups_are_formed_across_isolation_groups(drawn, count, replication):
    """Groups are even in nodes and in isolation groups, and stable; too few nodes are refused with the numbers."""
    nodes = [SpreadNode(node(number), isolation, 1) for number, isolation in enumerate(drawn)]
    if len(nodes) < count * max(2, replication):
        with pytest.raises(ValueError, match=f"{len(nodes)} nodes are too few for {count} groups"):
            regroup(nodes, count, replication)
        return
    groups = regroup(nodes, count, replication)
    assert sorted(one for group in groups for one in group) == [one.id for one in nodes]
    isolation = {one.id: one.isolation_group or one.id for one in nodes}
    apart = [len({isolation[one] for one in group}) for group in groups]
    for even in (list(map(len, groups)), apart):
        assert max(even) - min(even) <= 1
    assert sum(apart) == sum(min(size, count) for size in Counter(isolation.values()).values())
    assert regroup(nodes[::-1], count, replication, groups) == groups == regroup(nodes[::-1], count, replication)


def test_who_comes_to_a_group():
    """A replacement inherits its group, a newcomer joins the smallest; others move only where too few are left."""
    ids = [node(number) for number in range(9)]
    nodes = [SpreadNode(one, "", 1) for one in ids]
    groups = regroup(nodes[:7], 3, 2)
    assert sorted(map(len, groups)) == [2, 2, 3]
    uneven = (ids[:4], ids[4:6], ids[6:8])
    inherits = regroup(nodes[1:], 3, 2, uneven)
    assert inherits == (tuple(ids[1:4] + ids[8:]), tuple(ids[4:6]), tuple(ids[6:8]))
    assert sorted(map(len, regroup(nodes, 3, 2, groups))) == [3, 3, 3]
    needed = regroup([one for one in nodes[:7] if one.id != groups[1][0]], 3, 2, groups)
    assert [len(set(new) - set(old)) for new, old in zip(needed, groups, strict=True)] == [0, 1, 0]
    with pytest.raises(ValueError, match="7 nodes are too few for 4 groups of at least 2"):
        regroup(nodes[:7], 4, 2, groups)
    assert regroup(nodes, 0, 3, groups) == ()


def test_too_few_isolation_groups_are_told():
    """The warning covers all nodes or one group; a node without isolation group counts as its own."""
    nodes = [
        SpreadNode(node(0), "a", 1),
        SpreadNode(node(1), "a", 1),
        SpreadNode(node(2), "", 1),
        SpreadNode(node(3), "", 1),
    ]
    assert lacks(nodes, 3) == ""
    assert lacks(nodes, 4).startswith("4 replicas have only 4 nodes in 3 isolation groups")
    assert lacks(nodes, 2, [[node(0), node(1)], [node(2), node(3)]]).startswith("2 replicas have only 2 nodes in 1 ")


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        ("", [(1, 3), (2, 4)]),
        ("", [(1, 3), (None, 2, 4)]),
        ("a node twice", [(1, 1), (2, 4)]),
        ("none of its own", [(1, 5), (2, 4)]),
        ("has 1 slots, not 2", [(1,), (2, 4)]),
        ("has 3 slots, not 2", [(1, 2, 3), (2, 4)]),
        ("as far apart", [(1, 2), (3, 4)]),
        ("its ideal is 1.0", [(1, 3), (1, 4)]),
    ],
)
def test_each_invariant_of_a_wanted_map(words, wanted):
    nodes = [
        SpreadNode(node(1), "a", 1),
        SpreadNode(node(2), "a", 1),
        SpreadNode(node(3), "b", 1),
        SpreadNode(node(4), "b", 1),
    ]
    said = fault_of_map(nodes, 2, [tuple(one and node(one) for one in slots) for slots in wanted])
    assert words in said
    assert bool(said) is bool(words)


def test_a_round_that_needs_a_partition_twice():
    """The round splits into two, of which the cheaper is turned: 3 and 1 get their places back."""
    nodes = [SpreadNode(node(number), "ab"[number > 2], 1) for number in range(6)]
    (shape, _), *_ = spreading._shapes(nodes, 3, 2, ())
    seating = spreading._Seating(shape, [[3, 1, 5], [1, 2, 5]])
    seating._held = seating._bits([[0, 1, 5], [3, 4, 2]])
    seating._look()
    seating._turn([0, 3, 1, 4])
    assert seating._bits([[0, 3, 5], [1, 4, 2]]) == seating._held


def test_a_defect_is_caught():
    for wrong in ([SpreadNode(node(1), "", 0)], [SpreadNode(node(1), "", 1), SpreadNode(node(1), "a", 1)]):
        with pytest.raises(AssertionError):
            spread(wrong, 1, [()])
