"""Bugs planted in how a range begins anew whose hosts are all gone: who is asked, what is kept, and what is told."""

from __future__ import annotations

from tests.nightly.mutants.mutant import Mutant, planted

UNIT = "tests/unit"
REFOUNDING = f"{UNIT}/table/test_refounding.py"
HOLDING = f"{UNIT}/table/test_refounded_holding.py"
OPERATION = f"{UNIT}/register/metadata/test_refounding.py"
WORLD = "tests/simulation/test_refounding.py"
READY = f"{UNIT}/table/test_ready_on_the_way.py"

IN_OPERATION = "gossipkv.register.metadata.partitions:_refound"
IN_REFOUNDING = "gossipkv.table.refounding"
IN_KEEP = "gossipkv.replication.dividing:keep"
IN_HOLDING = "gossipkv.table.holding:Holding._keep"
IN_FORWARDING = "gossipkv.table.forwarding:Forwarding"

MUTANTS_OF_REFOUNDING: tuple[Mutant, ...] = (
    planted(
        "a range begins anew while a host of it lives",
        f"{IN_REFOUNDING}:Refounding._check_gone",
        "if living:",
        "if len(living) == len(hosts):",
        REFOUNDING,
    ),
    planted(
        "the old copy is merged",
        IN_HOLDING,
        "is_it = (one.identity.table, one.identity.assignment) == (identity.table, kept)",
        "is_it = one.identity.table == identity.table",
        HOLDING,
    ),
    planted(
        "children forget with which copy their range began anew",
        "gossipkv.register.metadata.partitions:_divide",
        "after = Partition(child.partition, (), found.named, found.ends, found.kept)",
        "after = Partition(child.partition, (), found.named, found.ends)",
        OPERATION,
    ),
    planted(
        "where a forced assignment is settled is not its end, if that was later",
        "gossipkv.register.metadata.partitions:_settle",
        "ends = tuple(End(one, settled.get(one, end)) for one, end in found.ends)",
        "ends = tuple(End(one, max(end or 0, settled[one]) if one in settled else end) for one, end in found.ends)",
        f"{UNIT}/register/metadata/test_partitions.py",
    ),
    planted(
        "of who has ended what is set aside does not say what it has",
        "gossipkv.replication.copy:Copy.reach",
        "return clock.merge(self.appended, self.ended)",
        "return self.appended",
        HOLDING,
    ),
    planted(
        "where others ended is forgotten as a range goes on with a copy",
        "gossipkv.replication.dividing:_put",
        "if ended := heir.rules.ended(heir.named):",
        "if False and (ended := heir.rules.ended(heir.named)):",
        HOLDING,
    ),
    planted(
        "a copy that was not whole is kept",
        "gossipkv.replication.shell:Replication.kept",
        "if state is None or self._store.get(one.space, JOINING + one.suffix) is not None:",
        "if state is None:",
        HOLDING,
    ),
    planted(
        "what was assigned is former, too",
        IN_OPERATION,
        "after = Partition(new, (), (), ends[-MOST_ENDS:], kept)",
        "after = Partition(new, (), found.named, ends[-MOST_ENDS:], kept)",
        OPERATION,
    ),
    planted(
        "what was assigned is former, as worlds see it",
        IN_OPERATION,
        "after = Partition(new, (), (), ends[-MOST_ENDS:], kept)",
        "after = Partition(new, (), found.named, ends[-MOST_ENDS:], kept)",
        WORLD,
    ),
    planted(
        "ends say that all was kept, as worlds see it",
        f"{IN_REFOUNDING}:begins",
        "counters = dict.fromkeys((*partition.named, *(end.assignment for end in partition.ends)), 0)",
        "counters = dict.fromkeys((*partition.named, *(end.assignment for end in partition.ends)), 1 << 40)",
        WORLD,
    ),
    planted(
        "what was kept most is let go of first",
        IN_OPERATION,
        "after = Partition(new, (), (), ends[-MOST_ENDS:], kept)",
        "after = Partition(new, (), (), ends[:MOST_ENDS], kept)",
        OPERATION,
    ),
    planted(
        "an assignment has no end",
        IN_OPERATION,
        "if not counters.keys() >= {*found.named, *(end.assignment for end in found.ends)}:",
        "if not counters.keys() >= {*(end.assignment for end in found.ends)}:",
        OPERATION,
    ),
    planted(
        "ends say that all was kept",
        f"{IN_REFOUNDING}:begins",
        "counters = dict.fromkeys((*partition.named, *(end.assignment for end in partition.ends)), 0)",
        "counters = dict.fromkeys((*partition.named, *(end.assignment for end in partition.ends)), 1 << 40)",
        REFOUNDING,
    ),
    planted(
        "the rest of what is kept is forgotten",
        IN_KEEP,
        "if bounds.end is not None and bounds.end != identity.bounds.end:",
        "if False and bounds.end is not None and bounds.end != identity.bounds.end:",
        HOLDING,
    ),
    planted(
        "what is kept begins without its time",
        "gossipkv.replication.dividing:_put",
        "state = encode_state(parent.time.last, heir.config, begins, begins)",
        "state = encode_state(0, heir.config, begins, begins)",
        HOLDING,
    ),
    planted(
        "the rest has no clock",
        "gossipkv.replication.dividing:_put_aside",
        "for key, value in ((IDENTITY, part.identity.encode()), (STATE, state), *ended, (ASIDE, part.why.encode())):",
        "for key, value in ((IDENTITY, part.identity.encode()), *ended, (ASIDE, part.why.encode())):",
        HOLDING,
    ),
    planted(
        "that a write is lost counts as a host that does not answer",
        f"{IN_FORWARDING}._fail",
        "if lost is not None:  # Whatever others say.",
        "if lost is not None and False:",
        READY,
    ),
    planted(
        "what was forced is left out of long tokens",
        "gossipkv.table.route:_place_of",
        "origins = (*partition.named, *(one.assignment for one in partition.ends))",
        "origins = partition.named",
        f"{UNIT}/table/test_routing.py",
    ),
)
