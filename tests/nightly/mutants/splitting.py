"""Bugs planted in how ranges are divided: what children name, what is refused, and which host has it done when."""

from __future__ import annotations

from tests.nightly.mutants.mutant import Mutant, planted, planted_at

UNIT = "tests/unit"
BY_PEOPLE = f"{UNIT}/table/test_splits_by_people.py"
DIVIDING = f"{UNIT}/register/metadata/test_dividing.py"
SPLITTING = f"{UNIT}/table/test_splitting.py"

IN_ASKING = "gossipkv.table.asking:Asking"
IN_FAULTS = "gossipkv.register.metadata.partitions:_fault_of_children"
IN_DIVIDE = "gossipkv.register.metadata.partitions:_divide"
IN_SPLITTING = "gossipkv.table.splitting"

CHILD = "after = Partition(child.partition, (), found.named, found.ends, found.kept)"
TILES = "tiles = firsts[0] == key and all(one < other for one, other in pairwise(bounds))"

MUTANTS_OF_SPLITTING: tuple[Mutant, ...] = (
    # -- the operation --
    *planted_at(
        DIVIDING,
        ("a child lacks what was former in its parent", IN_DIVIDE,
         CHILD,
         "after = Partition(child.partition, (), tuple(sorted(one.id for one in found.assignments)), found.ends)"),
        ("a child lacks its parent's assignments", IN_DIVIDE,
         CHILD,
         "after = Partition(child.partition, (), found.former, found.ends, found.kept)"),
        ("a child lacks its parent's forced ends", IN_DIVIDE,
         CHILD,
         "after = Partition(child.partition, (), found.named, (), found.kept)"),
        ("what moves is divided", IN_FAULTS,
         '(parent.moves, "it is moving"),',
         '(False, "it is moving"),'),
        ("a child begins where another does", IN_FAULTS,
         TILES,
         "tiles = firsts[0] == key and all(one <= other for one, other in pairwise(bounds))"),
        ("a child begins beyond its parent's end", IN_FAULTS,
         "bounds = firsts if after is None else [*firsts, after]",
         "bounds = firsts"),
        ("any number of former assignments is named", IN_FAULTS,
         "(parent.has_too_many_former, many),",
         "(False, many),"),
        ("who has 64 former assignments to be settled cannot be freed of who is gone",
         "gossipkv.placement.partition:fault_of",
         '(len(former) > MOST_FORMER + replication, "it has too many former assignments"),',
         '(len(former) > MOST_FORMER, "it has too many former assignments"),'),
        ("a child takes an id that is former", IN_FAULTS,
         "known = {*parent.named, *(end.assignment for end in parent.ends)}",
         "known = {one.id for one in parent.assignments}"),
    ),
    planted(
        "a child that has its parent's id is taken for done",
        IN_DIVIDE,
        "if entry is not None and decode_partition(entry.record).id == first.partition != partition"
        " and first.first == key:",
        "if entry is not None and decode_partition(entry.record).id == first.partition and first.first == key:",
        DIVIDING,
    ),
    # -- who asks for it --
    *planted_at(
        BY_PEOPLE,
        ("people divide while a node knows of no divisions", f"{IN_ASKING}.check_speaks",
         "if self._cluster.speaks() < form:",
         "if self._cluster.speaks() < min(form, SPEAKS_OF_MOVES):"),
    ),
    *planted_at(
        SPLITTING,
        ("nodes divide while one of them knows of no divisions", f"{IN_SPLITTING}:Splitting.look",
         "self._check()",
         "pass"),
        ("all hosts of a range have it divided at once", f"{IN_SPLITTING}:turn_of",
         "return sum(seat.node in alive for seat in before)",
         "return 0"),
        ("a host waits for one that is dead", f"{IN_SPLITTING}:turn_of",
         "return sum(seat.node in alive for seat in before)",
         "return len([*before])"),
        ("who has not adopted a division divides a child by what the parent has",
         f"{IN_SPLITTING}:Splitting._operation",
         "if partition.id != id_ or partition.moves:",
         "if partition.moves:"),
        ("a range of one key is asked about for ever", f"{IN_SPLITTING}:Splitting._say",
         "if self._said.get(copy) == why:",
         "if why and self._said.get(copy) == why:"),
        ("a range is divided at its limit", "gossipkv.placement.measures:Limits.are_exceeded",
         "return 0 < self.size_bytes < size_bytes or 0 < self.rows < rows",
         "return 0 < self.size_bytes <= size_bytes or 0 < self.rows <= rows"),
    ),
)  # fmt: skip
