"""What divisions, moves and settling come to, key by key: an oracle that knows nothing of the package.

Of each of some keys it is kept who holds it, and who has held it and is not settled there.
"""

from __future__ import annotations

MOST_CHILDREN = 64
MOST_FORMER = 64


class DividedMap:
    """The points of a range table; each has a partition id, an assignment for each slot, former ones and ends."""

    def __init__(self, points, id_, assigned):
        """`points`: the keys that are looked at; `assigned`: of each slot its node and assignment."""
        self.firsts = {b"": id_}
        self.at = {point: {"id": id_, "slots": dict(assigned), "former": set(), "ends": {}} for point in points}
        self.moving = {}  # By partition: slot, node and assignment of a target.

    def within(self, first):
        """The points of the partition that begins there."""
        after = min((key for key in self.firsts if key > first), default=None)
        return [point for point in self.at if point >= first and (after is None or point < after)]

    def divide(self, first, children):
        """`children`: first key, id, and the assignments in the order of slots; whether it may be."""
        points, firsts = self.within(first), [child[0] for child in children]
        after = min((key for key in self.firsts if key > first), default=b"\xff" * 300)
        stands = self.at[points[0]]
        if (
            self.firsts[first] in self.moving
            or len(stands["former"]) + len(stands["slots"]) > MOST_FORMER
            or not 2 <= len(children) <= MOST_CHILDREN
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
        """A move of a slot begins; `target`: node and assignment."""
        self.moving[self.firsts[first]] = slot, target

    def finish(self, first):
        """It comes to its end: who had the slot is former."""
        slot, target = self.moving.pop(self.firsts[first])
        for point in self.within(first):
            state = self.at[point]
            state["former"] = state["former"] | {state["slots"][slot][1]}
            state["slots"][slot] = target

    def force(self, first, slot):
        """Who has a slot goes by force: it has an end, and each former one, too."""
        for point in self.within(first):
            state = self.at[point]
            state["former"] = state["former"] | {state["slots"].pop(slot)[1]}
            state["ends"] = {one: state["ends"].get(one) for one in (*state["ends"], *state["former"])}

    def settle(self, first, counters):
        """Former ones are settled, at those counters."""
        for point in self.within(first):
            state = self.at[point]
            for one in state["former"] & counters.keys():
                if one in state["ends"]:
                    state["ends"][one] = max(state["ends"][one] or 0, counters[one])
            state["former"] = state["former"] - counters.keys()
