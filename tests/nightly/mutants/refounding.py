"""Bugs planted in how a range begins anew whose hosts are all gone: who is asked, what is kept, and what is told."""

from __future__ import annotations

from tests.nightly.mutants.mutant import Mutant, planted_at

UNIT = "tests/unit"
REFOUNDING = f"{UNIT}/table/test_refounding.py"
HOLDING = f"{UNIT}/table/test_refounded_holding.py"
OPERATION = f"{UNIT}/register/metadata/test_refounding.py"
READY = f"{UNIT}/table/test_ready_on_the_way.py"

IN_OPERATION = "gossipkv.register.metadata.partitions:_refound"
IN_REFOUNDING = "gossipkv.table.refounding"
IN_KEEP = "gossipkv.replication.dividing:keep"
IN_HOLDING = "gossipkv.table.holding:Holding._keep"
IN_FORWARDING = "gossipkv.table.forwarding:Forwarding"

MUTANTS_OF_REFOUNDING: tuple[Mutant, ...] = (
    *planted_at(
        REFOUNDING,
        ("a range begins anew while a host of it lives", f"{IN_REFOUNDING}:Refounding._check_gone",
         "if living:",
         "if len(living) == len(hosts):"),
    ),
    *planted_at(
        HOLDING,
        ("the old copy is merged", IN_HOLDING,
         "if was is not None and dict(clock.entries(was.appended)).items() <= ends.items():",
         "if was is not None:"),
        ("a copy that was not whole is kept", "gossipkv.replication.shell:Replication.kept",
         "if state is None or self._store.get(one.space, JOINING + one.suffix) is not None:",
         "if state is None:"),
    ),
    *planted_at(
        OPERATION,
        ("what was assigned is former, too", IN_OPERATION,
         "after = Partition(new, (), (), ends[-MOST_ENDS:])",
         "after = Partition(new, (), found.named, ends[-MOST_ENDS:])"),
        ("what was kept most is let go of first", IN_OPERATION,
         "after = Partition(new, (), (), ends[-MOST_ENDS:])",
         "after = Partition(new, (), (), ends[:MOST_ENDS])"),
        ("an assignment has no end", IN_OPERATION,
         "if not counters.keys() >= {*found.named, *(end.assignment for end in found.ends)}:",
         "if not counters.keys() >= {*(end.assignment for end in found.ends)}:"),
    ),
    *planted_at(
        REFOUNDING,
        ("ends say that all was kept", f"{IN_REFOUNDING}:Refounding.force_join",
         "counters = dict.fromkeys((*partition.named, *(end.assignment for end in partition.ends)), 0)",
         "counters = dict.fromkeys((*partition.named, *(end.assignment for end in partition.ends)), 1 << 40)"),
    ),
    *planted_at(
        HOLDING,
        ("the rest of what is kept is forgotten", IN_KEEP,
         "if bounds.end is not None and bounds.end != identity.bounds.end:",
         "if False and bounds.end is not None and bounds.end != identity.bounds.end:"),
        ("what is kept begins without its time", "gossipkv.replication.dividing:_put",
         "state = encode_state(parent.time.last, heir.config, begins, begins)",
         "state = encode_state(0, heir.config, begins, begins)"),
        ("the rest has no clock", "gossipkv.replication.dividing:_put_aside",
         "for key, value in ((IDENTITY, part.identity.encode()), (STATE, state), (ASIDE, part.why.encode())):",
         "for key, value in ((IDENTITY, part.identity.encode()), (ASIDE, part.why.encode())):"),
    ),
    *planted_at(
        READY,
        ("that a write is lost counts as a host that does not answer", f"{IN_FORWARDING}._fail",
         "if lost is not None:  # Whatever others say.",
         "if lost is not None and False:"),
    ),
    *planted_at(
        f"{UNIT}/table/test_routing.py",
        ("what was forced is left out of long tokens", "gossipkv.table.route:_place_of",
         "origins = (*partition.named, *(one.assignment for one in partition.ends))",
         "origins = partition.named"),
    ),
)  # fmt: skip
