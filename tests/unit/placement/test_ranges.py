"""The planner of range tables: the invariants of every plan, convergence, and the reason of each move and split."""

from __future__ import annotations

import sys
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossipkv.placement.lately import LATELY_S
from gossipkv.placement.measures import RangeMeasure
from gossipkv.placement.moves import standing
from gossipkv.placement.partition import MAX_FORMER, AssignmentState
from gossipkv.placement.ranges import BUSY, DIVIDED_S, LARGE_S, slot_to_take, successor, wanted
from tests.unit.placement.hosted import A, P, hosted, node
from tests.unit.placement.map_faults import fault_of_map
from tests.unit.placement.ranged import LIMITS, MIB, Ranged


def alike(table, slots):
    """Count the pairs of a partition's slots that lie in one isolation group."""
    groups = {one.id: one.isolation_group or one.id for one in table.nodes.values()}
    counts = Counter(groups.get(one) for one in slots if one is not None)
    return sum(count * (count - 1) // 2 for count in counts.values())


def drawn(random):
    """Draw a table in any state: sizes, weights, groups, dead and removed nodes, empty slots."""
    nodes, replication = random.randint(1, 8), random.randint(1, 3)
    numbers = range(1, nodes + 1)
    slots = []
    for _ in range(random.randint(1, 40)):
        held = random.sample(numbers, min(nodes, replication))
        for at in range(1, len(held)):
            held[at] = 0 if random.random() < 0.1 else held[at]
        slots.append(held)
    kinds = random.choice((1, 2, 3, 9))
    table = Ranged(
        slots,
        nodes=nodes + random.randint(0, 2),
        replication=replication,
        weights={one: random.choice((1, 1, 1, 2)) for one in numbers},
        groups={one: f"r{one % kinds}" for one in numbers} if kinds < 9 else {},
    )
    most = random.choice((0, 1, 600)) * MIB
    count = len(slots)
    sizes = [random.choice((0, None, random.randint(0, most), most // 2)) for _ in range(count)]
    table.measure(*sizes, rates=[random.choice((0, 0, 5, 9_000)) for _ in range(count)])
    table.dead = {one for one in table.nodes if random.random() < 0.2}
    table.shunned = {one for one in table.nodes if random.random() < 0.1}
    for one in [one for one in table.nodes if random.random() < 0.1 and len(table.nodes) > 1]:
        del table.nodes[one]
    table.is_on = random.random() < 0.8
    return table


@given(st.randoms(use_true_random=False))
def test_what_every_plan_keeps(random):
    """Plans keep R live replicas as far apart as before; nothing moves again or returns within ten minutes."""
    table = drawn(random)
    last = {}
    for _ in range(6):
        made = table.plan()
        before = [standing(one) for one in table.map.values()]
        after = wanted(before, made.moves)
        able = [node(one) for one in table.nodes if one not in table.dead | table.shunned]
        for move in made.moves:
            source = before[move.partition][move.slot] if move.slot < len(before[move.partition]) else None
            assert (source, move.target in able) == (move.source, True)
            is_asked = move.source is None or int(move.source) not in table.nodes
            assert is_asked or (table.is_on and int(move.source) not in table.dead)
            id_ = [*table.map.values()][move.partition].id, move.slot
            assert is_asked or table.now >= last.get(id_, -LATELY_S) + LATELY_S
            assert is_asked or (move.target, move.source) not in last or (
                table.now >= last[move.target, move.source] + LATELY_S
            )  # fmt: skip
            last |= {id_: table.now, (move.source, move.target): table.now}
        for was, slots in zip(before, after, strict=True):
            held = [one for one in slots if one is not None]
            assert len(held) == len(set(held))
            there = [one for one in held if int(one) in table.nodes]
            free = [one for one in able if one not in held]
            assert len(there) >= min(table.replication, len(table.nodes)) or not free
            if None not in was and len(was) == len(slots) and all(int(one) in table.nodes for one in was):
                assert alike(table, slots) <= alike(table, was)
        table.do(made)
        table.now += random.choice((1.0, 60.0, 300.0, 601.0))
        table.look()
        table.dead ^= {one for one in table.nodes if random.random() < 0.1}


@given(st.randoms(use_true_random=False))
def test_rest_is_reached(random):
    drawn(random).rest()


@given(st.integers(3, 8), st.integers(1, 3), st.booleans(), st.randoms(use_true_random=False))
def test_loads_at_rest(nodes, replication, is_new, random):
    """Each load ends at most 1.3 times the even one where partitions are small beside a node's load."""
    replication = min(replication, nodes - 1)
    there = nodes - is_new if nodes - is_new > replication else nodes
    slots = [random.sample(range(1, there + 1), replication) for _ in range(nodes * 20)]
    weights = {one: random.choice((1, 1, 2)) for one in range(1, nodes + 1)} if nodes > 2 * replication + 1 else {}
    table = Ranged(slots, nodes=nodes, replication=replication, weights=weights)
    table.measure(*(random.randint(64 * MIB, 400 * MIB) for _ in slots))
    table.rest()
    assert max(table.loads().values()) <= 1.3, table.loads()


@pytest.mark.parametrize("is_on", [True, False])
def test_what_people_ask_for_is_done_in_any_case(is_on):
    """Empty slots and slots of removed nodes go to the emptiest node, even without known sizes."""
    table = Ranged([(1, 2, 3), (1, 2, 0), (4, 2, 3), (1, 2, 5)], nodes=7)
    table.is_on, table.dead = is_on, {4}
    del table.nodes[4]
    assert table.moves() == [(1, 2, None, 6), (2, 0, 4, 7)]
    assert [one.why for one in table.plan().moves] == ["2 of 3 replicas", "{source} was removed"]


def test_who_lies_farthest_fills():
    """Distance of isolation groups comes before even load."""
    table = Ranged([(1, 0), (1, 4), (2, 4)], nodes=4, replication=2, groups={1: "a", 2: "a", 3: "a", 4: "b"})
    assert table.moves() == [(0, 1, None, 4)]


def test_fewer_nodes_than_replicas():
    """Each node has a slot already, so a removed node keeps its slot."""
    table = Ranged([(1, 2, 3), (1, 0, 0)], nodes=3)
    del table.nodes[3]
    assert table.moves() == [(1, 1, None, 2)]


def test_a_move_to_who_was_removed():
    """The move is taken back, and the source keeps the slot."""
    table = Ranged([(1, 2)], nodes=4, replication=2)
    table.put(0, hosted(1, (1, 0, A), (2, 1, A), (3, 1, P)))
    assert table.moves() == []
    del table.nodes[3]
    assert table.moves() == [(0, 1, 3, 2)]


def test_a_node_in_the_place_of_another():
    """The replacement gets the slots of the old node, and nothing else moves."""
    table = Ranged([(1 + at % 3, 1 + (at + 1) % 3) for at in range(24)], nodes=3, replication=2).measure(*[MIB] * 24)
    table.nodes[4] = table.nodes.pop(3)._replace(id=node(4))
    assert Counter((source, target) for *_, source, target in table.moves()) == {(3, 4): 16}


def test_the_dead_are_left_alone():
    """No move has a dead source or target: an operator removes dead nodes."""
    table = Ranged([(1, 2)] * 8, nodes=4, replication=2).measure(*[MIB] * 8)
    table.dead = {1, 3}
    assert {(source, target) for _, _, source, target in table.moves()} == {(2, 4)}
    table.put(0, table.partition((0, 2)))
    table.measure(*[MIB] * 8)
    assert table.moves()[0] == (0, 0, None, 4)


def test_who_is_passed_over_gets_nothing():
    """A shunned node receives nothing but may still give."""
    table = Ranged([(1, 2)] * 8, nodes=4, replication=2).measure(*[MIB] * 8)
    table.shunned = {1, 3}
    assert {(source, target) for _, _, source, target in table.moves()} == {(1, 4), (2, 4)}


def test_empty_partitions_are_spread_by_number():
    table = Ranged([(1,)] * 12, nodes=3, replication=1).measure(*[0] * 12)
    table.do(made := table.plan())
    assert Counter(int(standing(one)[0]) for one in table.map.values()) == {1: 4, 2: 4, 3: 4}
    assert made.moves[0].why == "{source} has 3.00 x its share of partitions"


def test_bytes_and_requests():
    """The larger of the two loads counts and is named in the reason; few requests are no load."""
    table = Ranged([(1,), (1,), (2,), (2,)], nodes=2, replication=1)
    table.measure(*[MIB] * 4, rates=[0.3 * BUSY, 0.3 * BUSY, 0, 0])
    assert table.moves() == []
    table.measure(MIB, 0, MIB, 0, rates=[100 * BUSY, 60 * BUSY, 30 * BUSY, 0])
    (move,) = table.plan().moves
    assert (move.partition, move.why) == (1, "{source} has 1.64 x its share of requests")
    table = Ranged([(1,), (1,), (1,), (2,)], nodes=2, replication=1).measure(MIB, MIB, MIB, MIB)
    assert [one.why for one in table.plan().moves] == ["{source} has 1.50 x its share of bytes"]


def test_no_move_without_a_clear_gain():
    """A move must gain more than sizes vary; swapping places is no gain."""
    for numbers in ((1, 1, 2), (1, 1, 1, 2, 2)):
        table = Ranged([(one,) for one in numbers], nodes=2, replication=1).measure(*[MIB] * len(numbers))
        assert table.moves() == []
    table = Ranged([(1 + at % 2,) for at in range(100)], nodes=2, replication=1)
    table.measure(*(MIB + MIB // 12 * (at % 2) for at in range(100)))
    assert table.moves() == []


def test_weights():
    table = Ranged([(1,)] * 30, nodes=2, replication=1, weights={2: 2}).measure(*[MIB] * 30)
    table.rest()
    assert Counter(int(standing(one)[0]) for one in table.map.values())[2] in {19, 20, 21}


def test_nothing_is_moved_while_too_little_is_known():
    table = Ranged([(1,)] * 10, nodes=2, replication=1).measure(*[MIB] * 7)
    assert table.moves() == []
    table.measure(*[MIB] * 8)
    assert len(table.moves()) == 5


def test_what_was_moved_rests():
    """A moved partition rests for ten minutes, and the rest time is reported; its children do not rest."""
    table = Ranged([(1,)] * 4, nodes=2, replication=1).measure(*[MIB] * 4)
    table.now = 1.0
    table.do(table.plan())
    moved = {id_ for id_, _ in table.lately.moved}
    assert [(id_, left_s) for id_, _, left_s in table.lately.resting(61.0)] == [(id_, 540) for id_ in sorted(moved)]
    table.nodes[3] = table.nodes[1]._replace(id=node(3))
    table.measure(*(9 * MIB * (one.id in moved) for one in table.map.values()))

    def given():
        ids = [one.id for one in table.map.values()]
        return {ids[at] for at, *_ in table.moves()}

    assert not given() & moved
    key = next(key for key, one in table.map.items() if one.id in moved)
    table.divide(key)
    table.look()
    assert given() == {table.map[key].id, table.map[key + b"5"].id}
    table.now += LATELY_S
    table.look()
    assert given() & moved
    assert table.lately.resting(table.now) == []


def test_nothing_goes_back_the_way_that_something_came():
    """For ten minutes no move goes the opposite way, even of another partition after sizes have changed."""
    table = Ranged([(1,)] * 4 + [(2,)] * 2, nodes=2, replication=1).measure(*[MIB] * 6)
    table.do(table.plan())
    table.measure(MIB, MIB, MIB, MIB, 9 * MIB, 9 * MIB)
    assert [*table.lately.passed] == [(node(1), node(2))]
    assert table.moves() == []
    table.now += LATELY_S
    table.look()
    assert [(source, target) for _, _, source, target in table.moves()] == [(2, 1)]
    table.now -= LATELY_S
    table.lately.rests()  # An operator has changed the nodes.
    assert len(table.moves()) == 1


def test_what_lies_less_far_apart_than_it_could():
    """The partition moves although loads are even, because another isolation group has come."""
    groups = {1: "a", 2: "a", 3: "b"}
    table = Ranged([(1, 2)], nodes=2, replication=2, groups=groups).measure(MIB)
    assert table.moves() == []
    table = Ranged([(1, 2), (3, 1)], nodes=3, replication=2, groups=groups).measure(MIB, MIB)
    (move,) = table.plan().moves
    assert (move.partition, int(move.target), move.why) == (0, 3, "replicas share an isolation group")


def large(*, former=0, size=513 * MIB, **of):
    """Return a table of one partition over the limit."""
    table = Ranged([(1, 2, 3)], **of)
    table.now = -DIVIDED_S
    table.put(0, table.partition((1, 2, 3), range(1000, 1000 + former)))
    table.now = 0.0
    return table.measure(size)


def test_a_division_that_nobody_began():
    """The split is planned after a minute, but not for ever: a single key cannot be split."""
    table = large()
    assert table.plan().splits == []
    table.now = LARGE_S
    ((at, why),) = table.plan().splits
    assert (at, why) == (0, "513.0 MiB, over split_bytes")
    table.lately.asks(next(iter(table.map.values())).id, table.now)
    table.now += LATELY_S - 1
    assert len(table.plan().splits) == 1
    table.now += 1
    assert table.plan().splits == []
    table.is_on = False
    assert table.plan().splits == []


def test_what_is_not_divided_now():
    """A moving or small partition, or one with too many former assignments, is not split."""
    table = large(former=MAX_FORMER - 3)
    table.now = LARGE_S
    assert len(table.plan().splits) == 1
    table.is_on = False
    assert table.plan().splits == []
    table = large(former=MAX_FORMER - 2)
    table.now = LARGE_S
    assert table.plan().splits == []
    table = large()
    table.now = LARGE_S
    table.put(0, hosted(2, (1, 0, A), (2, 1, A), (3, 2, A), (4, 2, AssignmentState.INITIALIZING)))
    assert table.plan().splits == []
    table = large()
    table.measure(MIB)
    table.measure(513 * MIB)
    table.now = LARGE_S - 1
    assert table.plan().splits == []


def test_rows_over_the_limit():
    table = Ranged([(1, 2, 3)]).measure(MIB)
    table.measures[1] = RangeMeasure(MIB, LIMITS.rows + 1)
    table.look()
    table.now = LARGE_S
    assert [one.why for one in table.plan().splits] == ["2,000,001 rows, over split_rows"]


def test_a_busy_partition_is_divided():
    """A partition with more than a node's share is split if another node has room; a small or new one is not."""
    rates = [40 * BUSY, BUSY, BUSY, BUSY]
    table = Ranged([(1,), (2,), (3,), (4,)], replication=1).measure(*[2 * MIB] * 4, rates=rates)
    assert [one.why for one in table.plan().splits] == ["4,000 requests a second, more than a node's even share"]
    table.measure(*[1000] * 4, rates=rates)
    assert table.plan().splits == []  # The partition has ten rows.
    table.measure(*[2 * MIB] * 4, rates=[BUSY / 2, 0, 0, 0])
    assert table.plan().splits == []
    table.measure(*[2 * MIB] * 4, rates=rates)
    table.do(table.plan())
    table.measure(*[2 * MIB] * 5, rates=[40 * BUSY, 0, BUSY, BUSY, BUSY])
    assert table.plan().splits == []
    table.now += DIVIDED_S
    assert [one.partition for one in table.plan().splits] == [0]
    table = Ranged([(1, 2, 3)]).measure(2 * MIB, rates=[40 * BUSY])
    assert table.plan().splits == []  # No other node has room.


def test_what_is_to_be_divided_is_not_moved():
    """A move would delay the split."""
    table = Ranged([(1,)] * 3, nodes=2, replication=1).measure(600 * MIB, 300 * MIB, 300 * MIB)
    assert sorted(at for at, *_ in table.moves()) == [1, 2]


def picking(hosts, groups, *, held=(), **more):
    """Return a range on these nodes of 1, 2, ... with isolation groups, beside `held` other ranges on each."""
    others = [(number,) for number, count in enumerate(held, 1) for _ in range(count)]
    named = dict(enumerate((group.strip(".") for group in groups), 1))
    down, weights = more.get("down", ()), dict(enumerate(more.get("weights", ()), 1))
    world = Ranged([hosts, *others], nodes=len(groups), groups=named, weights=weights)
    world.dead = {*down}
    return world.situation()


@pytest.mark.parametrize(("hosts", "groups", "more", "slot"), [
    ((1, 2), "....", {}, 2),  # Fewer replicas than slots: the empty slot.
    ((1, 0, 3), "....", {}, 1),
    ((1, 2, 3), "abca", {}, 0),  # The replica that shares the newcomer's isolation group.
    ((1, 2, 3), "aabc", {}, 0),  # The first of two replicas that share a group.
    ((1, 2, 3), "aabc", {"held": (1, 2, 9)}, 1),  # Or the fuller of them; the fullest node is farther apart from all.
    ((1, 2, 3), "....", {"held": (5, 9, 5)}, 1),
    ((1, 2, 3), "....", {"held": (5, 9, 5), "weights": (1, 3, 1, 1)}, 0),  # Load counts by weight.
    ((1, 2, 3), "....", {"held": (5, 9, 5), "down": (2,)}, 0),  # A node that is down is waited for.
    ((1, 2, 3), "aabc", {"down": (2,)}, 0),
    ((1, 9, 3), "....", {"held": (5, 5, 5)}, 1),  # A removed node goes before living nodes.
])  # fmt: skip
def test_the_slot_that_is_taken(hosts, groups, more, slot):
    """In order: an empty slot, the slot that keeps hosts farthest apart, the fullest living node's, the first."""
    known = picking(hosts, groups, **more)
    known.alive.add(node(9))
    assert slot_to_take(known, known.partitions[0].id, node(4)) == slot


@pytest.mark.parametrize(("groups", "more", "found"), [
    ("....", {}, 4), ("...", {}, None), ("....", {"down": (4,)}, None), (".....", {"held": (0, 0, 0, 5, 4)}, 5),
    ("abcab", {}, 4), ("abcba", {}, 5), ("abccb", {"held": (0, 0, 0, 1, 9)}, 4),
    (".....", {"held": (0, 0, 0, 5, 4), "weights": (1, 1, 1, 2, 1)}, 4),
])  # fmt: skip
def test_who_takes_a_slot(groups, more, found):
    """The successor lives, holds no replica of the range, and has the least load by weight as far apart as can be."""
    known = picking((1, 2, 3), groups, **more)
    assert successor(known, known.partitions[0].id, 0) == (None if found is None else node(found))


@given(st.lists(st.sampled_from("abc"), min_size=4, max_size=7))
def test_nothing_comes_nearer(groups):
    """A replacement keeps replicas as far apart as possible."""
    known, hosts = picking((1, 2, 3), groups), [1, 2, 3]
    (range_,) = known.partitions

    def is_apart(slots):
        return "apart" not in fault_of_map(known.nodes, 3, [tuple(map(node, slots))])

    for slot in range(3):
        stay = [one for at, one in enumerate(hosts) if at != slot]
        found = int(successor(known, range_.id, slot))
        assert is_apart([*stay, found]) or not any(is_apart([*stay, at]) for at in range(4, len(groups) + 1))
    slot = slot_to_take(known, range_.id, node(4))
    after = [[*hosts[:at], 4, *hosts[at + 1 :]] for at in range(3)]
    assert is_apart(after[slot]) or not any(map(is_apart, after))


@pytest.mark.parametrize("nodes", [4, 5, 7])
def test_what_has_grown_by_divisions_is_soon_even(nodes):
    """Within three minutes of quiet, counts are even: a child does not rest because its parent moved."""
    table = Ranged([(1, 2, 3)], nodes=nodes).measure(300 * MIB)
    while len(table.map) < 150:
        for key in [*table.map]:
            table.divide(key)
        table.measure(*[300 * MIB] * len(table.map))
        for _ in range(3):
            made = table.plan()
            table.do(made._replace(moves=made.moves[:8]))
            table.now += 10.0
            table.look()
    for _ in range(18):
        made = table.plan()
        table.do(made._replace(moves=made.moves[:8]))
        table.now += 10.0
        table.look()
    assert all(0.9 <= load <= 1.1 for load in table.loads().values()), table.loads()


def test_a_move_costs_the_same_among_more_partitions():
    """The partitions that a target has by now are not passed over again for each further move."""
    calls = {}
    for count in (60, 600):
        table, called = Ranged([(1, 2, 3)] * count, nodes=4), 0

        def note(_frame, event, _argument):
            nonlocal called
            called += event == "call"

        before = sys.getprofile()
        sys.setprofile(note)
        made = table.measure(*[MIB] * count).plan()
        sys.setprofile(before)
        calls[count] = called / len(made.moves)
    assert calls[600] < 1.2 * calls[60]
