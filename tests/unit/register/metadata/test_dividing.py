"""`divide` makes children that tile the range, and no division loses an origin of records."""

from __future__ import annotations

from bisect import bisect_right
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossipkv.placement.partition import MAX_FORMER, Assignment, ForcedEnd, Partition
from gossipkv.register.metadata.operations import UNSUPPORTED
from gossipkv.register.metadata.partitions import INVALID, MAX_CHILDREN, NOT_FOUND, shard_key
from tests.unit.placement.hosted import WHOLE, A, hosted, node
from tests.unit.register.metadata.test_partitions import RANGES, SHARDS, Map


class DividedMap:
    """The expected state at sampled keys: partition id, assignment per slot, former assignments and ends."""

    def __init__(self, points, id_, assigned):
        """Take the sampled keys as `points`, and node and assignment per slot as `assigned`."""
        self.firsts = {b"": id_}
        self.at = {point: {"id": id_, "slots": dict(assigned), "former": set(), "ends": {}} for point in points}
        self.moving = {}  # Slot, node and assignment of a target, by partition.

    def within(self, first):
        """Return the points of the partition with this first key."""
        after = min((key for key in self.firsts if key > first), default=None)
        return [point for point in self.at if point >= first and (after is None or point < after)]

    def divide(self, first, children):
        """Divide into `children` (first key, id, assignments by slot); return True if this is allowed."""
        points, firsts = self.within(first), [child[0] for child in children]
        after = min((key for key in self.firsts if key > first), default=b"\xff" * 300)
        stands = self.at[points[0]]
        if (
            self.firsts[first] in self.moving
            or len(stands["former"]) + len(stands["slots"]) > MAX_FORMER
            or not 2 <= len(children) <= MAX_CHILDREN
            or firsts != sorted(set(firsts))
            or firsts[0] != first
            or firsts[-1] >= after
        ):
            return False
        for key, id_, _ in children:
            self.firsts[key] = id_
        for point in points:
            _, id_, ids = max(child for child in children if child[0] <= point)
            before = self.at[point]
            slots = {
                slot: (before["slots"][slot][0], one) for slot, one in zip(sorted(before["slots"]), ids, strict=True)
            }
            gone = {one for _, one in before["slots"].values()}
            self.at[point] = {"id": id_, "slots": slots, "former": before["former"] | gone, "ends": {**before["ends"]}}
        return True

    def begin(self, first, slot, target):
        """Begin the move of a slot to `target`: node and assignment."""
        self.moving[self.firsts[first]] = slot, target

    def finish(self, first):
        """End a move: the source becomes former."""
        slot, target = self.moving.pop(self.firsts[first])
        for point in self.within(first):
            state = self.at[point]
            state["former"] = state["former"] | {state["slots"][slot][1]}
            state["slots"][slot] = target

    def force(self, first, slot):
        """Unassign a slot by force: its assignment and each former one get an end."""
        for point in self.within(first):
            state = self.at[point]
            state["former"] = state["former"] | {state["slots"].pop(slot)[1]}
            state["ends"] = {one: state["ends"].get(one) for one in (*state["ends"], *state["former"])}

    def settle(self, first, counters):
        for point in self.within(first):
            state = self.at[point]
            for one in state["former"] & counters.keys():
                if one in state["ends"]:
                    state["ends"][one] = max(state["ends"][one] or 0, counters[one])
            state["former"] = state["former"] - counters.keys()


TWO = ((b"", 8, (4, 5, 6)), (b"m", 9, (14, 15, 16)))


def test_a_range_is_divided():
    """Children tile the range on its nodes; a repetition is DONE, and the old id never returns."""
    other = hosted(17, (11, 0, A))
    table = Map(RANGES, {b"": WHOLE, b"x": other})
    children = ((b"", 8, (4, 5, 6)), (b"g", 9, (27, 18, 9)), (b"m", 10, (12, 13, 14)))
    for _ in range(2):
        assert table.ask("divide", b"", 7, children) == "DONE"
        assert table.partitions == {
            first: Partition(id_, tuple(Assignment(one, node(at + 1), at, A) for at, one in enumerate(ids)), (1, 2, 3))
            for first, id_, ids in children
        } | {b"x": other}
    for first in (b"", b"g"):
        assert table.ask("assign", first, 7, 20, node(20), 2) == NOT_FOUND
    assert table.ask("divide", b"", 7, ((b"", 80, (4, 5, 6)), TWO[1])) == NOT_FOUND


def test_a_child_is_divided_at_once():
    """The child's children inherit its former assignments; the sibling is unchanged and settles alone."""
    table = Map(RANGES, {b"": WHOLE})
    assert table.ask("divide", b"", 7, TWO) == "DONE"
    assert table.ask("divide", b"m", 9, ((b"m", 10, (24, 25, 26)), (b"q", 11, (34, 35, 36)))) == "DONE"
    assert table.ask("settle", b"m", 10, ((1, 5), (2, 5), (3, 5))) == "DONE"
    former = {first: one.former for first, one in table.partitions.items()}
    assert former == {b"": (1, 2, 3), b"m": (14, 15, 16), b"q": (1, 2, 3, 14, 15, 16)}


def test_ends_and_slots_that_are_empty_are_the_childrens_too():
    """Writes beyond the end of a forced assignment are lost for every child."""
    table = Map(RANGES, {b"": WHOLE})
    assert table.ask("unassign", b"", 7, 2, version=2) == "DONE"
    assert table.ask("end", b"", 7, ((2, 9),)) == "DONE"
    children = ((b"", 8, (4, 6)), (b"m", 9, (14, 16)))
    assert table.ask("divide", b"", 7, children) == "DONE"
    for first, id_, ids in children:
        nodes = zip(ids, (1, 3), strict=True)
        seats = tuple(Assignment(one, node(number), number - 1, A) for one, number in nodes)
        assert table.partitions[first] == Partition(id_, seats, (1, 2, 3), (ForcedEnd(2, 9),))


def right(id_=9, assignments=(14, 15, 16), first=b"m"):
    return TWO[0], (first, id_, assignments)


@pytest.mark.parametrize(
    ("words", "children"),
    [
        ("2 to 64", ()), ("2 to 64", None), ("2 to 64", TWO[:1]), ("a child must be", ((b"", 8), (b"m", 9))),
        ("2 to 64", tuple((b"%03d" % at, 100 + at, (at, at, at)) for at in range(MAX_CHILDREN + 1))),
        ("a child must be", right(assignments=(14, 15, -1))), ("a child must be", right(-9)),
        ("cover", ((b"a", 8, (4, 5, 6)), TWO[1])), ("cover", right(first=b"")), ("cover", right(first=b"x")),
        ("cover", right(first=b"y")), ("cover", (*TWO, (b"g", 10, (24, 25, 26)))),
        ("255 bytes", right(first=b"m" * 256)),
        ("a partition's id", right(8)), ("a partition's id", right(7)),
        ("a partition's id", ((b"", 7, (4, 5, 6)), TWO[1])),
        ("an assignment's id", right(assignments=(14, 15, 6))), ("an assignment's id", right(assignments=(4, 15, 16))),
        ("an assignment's id", right(assignments=(14, 15, 15))), ("an assignment's id", right(assignments=(14, 15, 3))),
        ("an assignment's id", right(assignments=(14, 15, 60))),
        ("for each of its parent's", right(assignments=(14, 15))),
        ("for each of its parent's", right(assignments=(14, 15, 16, 17))),
    ],
)  # fmt: skip
def test_children_that_are_none(words, children):
    """Wrong forms, first keys, ids and numbers of assignments are refused."""
    table = Map(RANGES, {b"": WHOLE, b"x": hosted(17, (11, 0, A))})
    for step in (("assign", 60, node(60), 2), ("advance", 60, 2), ("advance", 60, 3), ("unassign", 3)):
        assert table.ask(step[0], b"", 7, *step[1:]) == "DONE"
    assert table.ask("assign", b"", 7, 3, node(3), 2) == INVALID  # The id is former.
    before = table.partitions
    assert table.ask("divide", b"", 7, children) == INVALID
    assert words in table.words
    assert table.partitions == before


def test_the_longest_bound():
    assert Map(RANGES, {b"": WHOLE}).ask("divide", b"", 7, (TWO[0], (b"m" * 255, 9, (14, 15, 16)))) == "DONE"


@pytest.mark.parametrize("steps", range(1, 5))
def test_what_moves_is_not_divided(steps):
    """No state of a move allows a division; after the move it is possible."""
    table = Map(RANGES, {b"": WHOLE})
    move = (("assign", 40, node(40), 2), ("advance", 40, 2), ("advance", 40, 3), ("unassign", 3))
    for name, *rest in move[:steps]:
        assert table.ask(name, b"", 7, *rest) == "DONE"
    assert table.ask("divide", b"", 7, TWO) == ("DONE" if steps == len(move) else INVALID)
    assert ("under way" in table.words) == (steps < len(move))


def test_who_is_not_settled_holds_a_division_back():
    """A division stops at 64 former assignments; force still works, since otherwise nothing could settle."""
    table = Map(RANGES, {b"": hosted(1, (1, 0, A), (2, 1, A))})
    ids = count(3)

    def divide():
        parent = table.partitions[b""]
        children = tuple((first, next(ids), (next(ids), next(ids))) for first in (b"", b"%09d" % (1000 - next(ids))))
        return table.ask("divide", b"", parent.id, children)

    while len(table.partitions[b""].former) < MAX_FORMER:
        assert divide() == "DONE"
    assert divide() == INVALID
    assert "66 former assignments" in table.words
    assert "may be unsettled" in table.words
    left = table.partitions[b""]
    assert table.ask("unassign", b"", left.id, left.assignments[0].id, version=2) == "DONE"
    assert table.ask("settle", b"", left.id, tuple((one, 1) for one in left.former[:3])) == "DONE"
    parent = table.partitions[b""]
    assert len(parent.former) == MAX_FORMER - 2
    children = ((b"", next(ids), (next(ids),)), (b"\0", next(ids), (next(ids),)))
    assert table.ask("divide", b"", parent.id, children) == "DONE"


def test_shards_are_not_divided():
    """A key's shard is its hash modulo their number; another version of `divide` is not known."""
    table = Map(SHARDS, {shard_key(at): WHOLE._replace(id=at) for at in range(4)})
    children = ((shard_key(1), 8, (4, 5, 6)), (shard_key(1) + b"\0", 9, (14, 15, 16)))
    assert table.ask("divide", shard_key(1), 1, children) == INVALID
    assert "hash" in table.words
    assert Map(RANGES, {b"": WHOLE}).ask("divide", b"", 7, TWO, version=2) == UNSUPPORTED


POINTS = [bytes([one]) for one in range(0, 256, 17)]
WHICH = st.integers(0, 7)
ASKED = st.one_of(
    st.tuples(st.just("divide"), WHICH, st.lists(st.sampled_from(POINTS), min_size=1, max_size=3)),
    st.tuples(st.just("divide"), WHICH, st.sampled_from(POINTS).map(lambda point: [point])),
    st.tuples(st.sampled_from(["begin", "finish", "force"]), WHICH, st.integers(0, 2)),
    st.tuples(st.just("settle"), WHICH, st.integers(0, 8)),
)


class Both:
    """A map beside its oracle."""

    def __init__(self):
        self.map = Map(RANGES, {b"": hosted(1, (1, 0, A), (2, 1, A), (3, 2, A))})
        self.oracle = DividedMap([b"", *POINTS], 1, {slot: (node(slot + 1), slot + 1) for slot in range(3)})
        self.ids = count(4)

    def ask(self, name, which, what):
        """Apply one operation to a partition in both."""
        first = sorted(self.oracle.firsts)[which % len(self.oracle.firsts)]
        stands, id_ = self.oracle.at[self.oracle.within(first)[0]], self.oracle.firsts[first]
        moving = self.oracle.moving.get(id_)
        if name == "divide":
            ids = [(next(self.ids), tuple(next(self.ids) for _ in stands["slots"])) for _ in [first, *what]]
            children = tuple((key, *one) for key, one in zip([first, *what], ids, strict=True))
            expected = "DONE" if self.oracle.divide(first, children) else INVALID
            assert self.map.ask("divide", first, id_, children) == expected
        elif name == "begin" and moving is None:
            target = next(self.ids)
            if what in stands["slots"]:
                assert self.map.ask("assign", first, id_, target, node(target), what) == "DONE"
                self.oracle.begin(first, what, (node(target), target))
        elif name == "finish" and moving is not None:
            slot, (_, target) = moving
            for step in (("advance", target, 2), ("advance", target, 3), ("unassign", stands["slots"][slot][1])):
                assert self.map.ask(step[0], first, id_, *step[1:]) == "DONE"
            self.oracle.finish(first)
        elif name == "force" and moving is None and what in stands["slots"] and len(stands["slots"]) > 1:
            assert self.map.ask("unassign", first, id_, stands["slots"][what][1], version=2) == "DONE"
            self.oracle.force(first, what)
        elif name == "settle" and stands["former"]:
            counters = dict.fromkeys(sorted(stands["former"])[:what] or [999], which)
            assert self.map.ask("settle", first, id_, tuple(counters.items())) == "DONE"
            self.oracle.settle(first, counters)

    def check(self):
        """Check that each key is in the right partition with the right assignments."""
        partitions = self.map.partitions
        firsts = sorted(partitions)
        assert {first: one.id for first, one in partitions.items()} == self.oracle.firsts
        for point, expected in self.oracle.at.items():
            found = partitions[firsts[bisect_right(firsts, point) - 1]]
            moving = self.oracle.moving.get(found.id)
            standing = [one for one in found.assignments if moving is None or one.id != moving[1][1]]
            assert {one.slot: (one.node, one.id) for one in standing} == expected["slots"]
            assert (found.id, {*found.former}, dict(found.ends)) == (
                expected["id"],
                expected["former"],
                expected["ends"],
            )


@given(st.lists(ASKED, max_size=15))
def test_what_any_sequence_comes_to(asked):
    """Ranges tile, and an origin of a key's records stays named until it is settled there."""
    both = Both()
    for one in asked:
        both.ask(*one)
        both.check()
