"""Bugs planted in the map that a table is to have, and in the way there."""

from __future__ import annotations

from tests.nightly.mutants.mutant import Mutant, planted

SPREAD = "gossipkv.placement.spread"
MOVES = "gossipkv.placement.moves"
WANTED = "tests/unit/placement/test_spread.py"
WAY = "tests/unit/placement/test_moves.py"

MUTANTS_OF_PLACEMENT: tuple[Mutant, ...] = (
    planted(
        "a seat is passed to any isolation group",
        f"{SPREAD}:_Seating._is_within",
        "return self._shape.isolation[giver] == self._shape.isolation[taker]",
        "return True",
        WANTED,
    ),
    planted(
        "what is far apart is not as far as can be",
        f"{SPREAD}:_shape",
        "most = [min(size, least + 1) if spare else least for size, least in zip(sizes, low, strict=True)]",
        "most = [min(size, least + 2) if spare else least for size, least in zip(sizes, low, strict=True)]",
        WANTED,
    ),
    planted(
        "a move that is taken back saves nothing",
        f"{SPREAD}:_Seating._pass",
        "return -1, found",
        "return 0, found",
        WANTED,
    ),
    planted(
        "a load is two from its ideal",
        f"{SPREAD}:_Seating.__init__",
        "self._bounds = [(floor(ideal * len(was)), ceil(ideal * len(was))) for ideal in shape.ideal]",
        "self._bounds = [(floor(ideal * len(was)) - 1, ceil(ideal * len(was)) + 1) for ideal in shape.ideal]",
        WANTED,
    ),
    planted(
        "weights are as good as one",
        f"{SPREAD}:_shapes",
        "chosen = sorted(node for node in nodes if node.id in group)",
        "chosen = sorted(node._replace(weight=1) for node in nodes if node.id in group)",
        WANTED,
    ),
    planted(
        "who has the next seat is always in the same company",
        f"{SPREAD}:_mixed",
        "return (mixed ^ mixed >> 30) * 0x94D049BB133111EB % 2**64 >> 32",
        "return mixed & 0",
        WANTED,
    ),
    planted(
        "who comes takes an empty slot before that of one who goes",
        f"{SPREAD}:_in_slots",
        "empty.sort(key=lambda at: (at >= len(now) or now[at] is None, at))  # First where one goes: it is replaced.",
        "empty.sort()",
        WANTED,
    ),
    planted(
        "a round is cut, and the dear half turned",
        f"{SPREAD}:_Seating._cut",
        "return inner if cost < 0 else outer",
        "return outer",
        WANTED,
    ),
    planted(
        "partitions lie on any group of nodes",
        f"{SPREAD}:_shapes",
        "yield _shape(chosen, replication), range(number, partitions, len(groups) or 1)",
        "yield _shape(sorted(nodes), replication), range(number, partitions, len(groups) or 1)",
        WANTED,
    ),
    planted(
        "a replacement goes to the smallest group",
        f"{SPREAD}:regroup",
        "at = min(range(count), key=lambda at: (-lost[at], len(kept[at]), alike(node, at), at))",
        "at = min(range(count), key=lambda at: (len(kept[at]), -lost[at], alike(node, at), at))",
        WANTED,
    ),
    planted(
        "groups are formed of what fails together",
        f"{SPREAD}:regroup",
        "dealt = sorted(isolation, key=lambda one: (-sizes[isolation[one]], repr(isolation[one]), one))",
        "dealt = sorted(isolation)",
        WANTED,
    ),
    planted(
        "who is on its way out stands where it was",
        f"{MOVES}:standing",
        "if one.state != State.LEAVING:",
        "if one.state != State.AVAILABLE or slots[one.slot] is None:",
        WAY,
    ),
    planted(
        "a source may have any number of moves",
        f"{MOVES}:_ends",
        "return [target, *sources]",
        "return [target]",
        WAY,
    ),
    planted(
        "what is under way does not count",
        f"{MOVES}:next_moves",
        "moves.update(_ends(partition, one.slot, one.node))",
        "pass",
        WAY,
    ),
    planted(
        "two slots of a partition move",
        f"{MOVES}:_may_move",
        "return not partition.moves and len(partition.former) < MOST_TO_MOVE",
        "return all(one.state >= State.AVAILABLE for one in partition.assignments)",
        WAY,
    ),
    planted(
        "a target is assigned twice in a partition",
        f"{MOVES}:next_moves",
        "if target is None or not able(target) or any(one.node == target for one in now[number].assignments):",
        "if target is None or not able(target):",
        WAY,
    ),
    planted(
        "a move that is not wanted goes on",
        f"{MOVES}:next_moves",
        "if slots[one.slot : one.slot + 1] != (one.node,):",
        "if one.node not in slots and not slots:",
        WAY,
    ),
    planted(
        "an empty slot waits for its turn",
        f"{MOVES}:next_moves",
        "resting += [(min(changed)[0], number, sorted(changed))] if changed else []",
        "resting += [(False, number, sorted(changed))] if changed else []",
        WAY,
    ),
)
