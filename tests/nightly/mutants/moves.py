"""Bugs planted in moves: who steps when, what a target has, what is dropped, and what a session is told on the way.

What stands elsewhere: that LEAVING is awaited for a level ("who leaves is to confirm") and a stale confirmation counted
("a confirmation of another config counts", `replication`), that two slots move (`placement`), that an unknown origin of
a newer config is satisfied ("a newer config's origin is ignored", `sessions`).
"""

from __future__ import annotations

from tests.nightly.mutants.mutant import Edit, Mutant, planted

UNIT = "tests/unit"
ASIDE = f"{UNIT}/table/test_aside.py"
COPY = f"{UNIT}/replication/test_copy.py"
JOINING = f"{UNIT}/replication/test_joining.py"
LEVELS = f"{UNIT}/replication/test_levels.py"
MOVER = f"{UNIT}/table/test_mover.py"
PARTITION = f"{UNIT}/placement/test_partition.py"
PARTITIONS = f"{UNIT}/register/metadata/test_partitions.py"
ON_THE_WAY = f"{UNIT}/table/test_ready_on_the_way.py"
REPLICAS = f"{UNIT}/replication/test_replicas.py"
TARGETS = f"{UNIT}/replication/test_targets.py"
STEPPING = f"{UNIT}/table/test_stepping.py"
STEPS = f"{UNIT}/replication/test_steps.py"

IN_COPY = "gossipkv.replication.copy:Copy"
IN_HOLDING = "gossipkv.table.holding:Holding"
IN_JOINING = "gossipkv.replication.joining:Joining"
IN_LEVELS = "gossipkv.replication.levels:Levels"
IN_PARTITIONS = "gossipkv.register.metadata.partitions"
IN_SHELL = "gossipkv.replication.shell:Replication"
IN_STEPPING = "gossipkv.table.stepping:Stepping"
IN_STEPS = "gossipkv.replication.steps"

DROPS = "if parts and is_absent and is_known and copy in self._replication.departed:"
ENOUGH = "return len(slots) >= min(slots_needed(MAJORITY, copy.rules.slots or len(available)), len(available)) > 0"
FOLLOWS = (
    'assert merged.joining is not None or self.covers(entry.before, merged), "what was skipped is missed for good"'
)
OF_OTHERS = "for host in others):"
HAVE_SAID = f"if others and all(_said(copy, known, host) {OF_OTHERS}"
HAVE_ALL = f"if others and all(_said(copy, known, host) and _covers(_clock(copy, known, host), final, copy) {OF_OTHERS}"
LEAVING_IN_PLACE = """counting = [
            one for one in self._copy.seated()
            if one[1].counts is all(seat.counts for seat in self._copy.seats if seat.slot == one[1].slot)
        ]"""

MUTANTS_OF_MOVES: tuple[Mutant, ...] = (
    # -- steps --
    planted(
        "who has not adopted a config counts as a reporter",
        f"{IN_STEPS}:_said",
        "is_of = report is not None and report.assignment == host.assignment and report.config >= copy.config",
        "is_of = report is not None and report.assignment == host.assignment",
        STEPS,
    ),
    planted(
        "a config is said to be adopted before that is synced",
        f"{IN_STEPS}:report_of",
        "return Report(copy.assignment, copy.synced_config, copy.told_clock, copy.synced_joining is None)",
        "return Report(copy.assignment, copy.config, copy.told_clock, copy.synced_joining is None)",
        STEPS,
    ),
    planted(
        "who is LEAVING is a reporter for its slot",
        f"{IN_STEPS}:_is_available",
        "return host.available and host.counts",
        "return host.available",
        STEPS,
    ),
    planted(
        "one reporter is enough",
        f"{IN_STEPS}:_are_enough",
        ENOUGH,
        "return len(slots) > 0",
        STEPS,
    ),
    planted(
        "a former assignment is settled by those that answer",
        f"{IN_STEPS}:_settled",
        "if len(clocks) < len(hosts):",
        "if not clocks:",
        STEPS,
    ),
    planted(
        "a former assignment is settled by the highest that one says",
        f"{IN_STEPS}:_settled",
        "rows = tuple((one, max(told)) for one, told in sorted(counters.items()) if len(told) == 1)",
        "rows = tuple((one, max(told)) for one, told in sorted(counters.items()))",
        STEPS,
    ),
    planted(
        "a former assignment is dropped from a clock by whoever finds that it is former",
        f"{IN_COPY}.hosts",
        "named = _named(in_order, self.rules.former)",
        "named = _named(in_order)",
        COPY,
    ),
    planted(
        "the other host of a target's slot is left out",
        f"{IN_STEPS}:_of_target",
        "is_covered = source is None or source in covered or (source not in adopted and known.waited)",
        "is_covered = True",
        STEPS,
    ),
    planted(
        "a target loads before anybody said that it adopted",
        f"{IN_STEPS}:_of_target",
        "return Advance(copy.assignment, INITIALIZING) if _are_enough(copy, hosts, adopted) else None",
        "return Advance(copy.assignment, INITIALIZING)",
        STEPS,
    ),
    planted(
        "a target loads by what hosts told at any time",
        f"{IN_STEPPING}._round",
        "told = {**reports.get(copy.partition, {}), replicas.me: report_of(copy)}",
        "told = {node: Report(*one[:1], one.config, one.clock, True) for node, one in replicas.hosts_told(copy)}",
        STEPPING,
    ),
    planted(
        "what was reported before a target was whole counts",
        f"{IN_STEPPING}._round",
        "if copy not in replicas.levels or was[copy] != (copy.synced_config, copy.synced_joining is None):",
        "if copy not in replicas.levels:",
        STEPPING,
    ),
    planted(
        "a target that is silent is waited for",
        f"{IN_STEPPING}._stalled",
        "if is_silent or (oldest is not None and now - oldest >= self._stall_s):",
        "if oldest is not None and now - oldest >= self._stall_s:",
        STEPPING,
    ),
    planted(
        "a target that confirms nothing is waited for while it answers",
        f"{IN_STEPPING}._stalled",
        "if is_silent or (oldest is not None and now - oldest >= self._stall_s):",
        "if is_silent:",
        STEPPING,
    ),
    planted(
        "a source was waited for long enough before its target was whole",
        f"{IN_STEPPING}._has_waited",
        "is_so = copy.joining is None and any(node not in told for node in sources)",
        "is_so = any(node not in told for node in sources)",
        STEPPING,
    ),
    planted(
        "a target is AVAILABLE while a span is open",
        f"{IN_STEPS}:_of_target",
        "if copy.synced_joining is not None:",
        "if False:",
        STEPS,
    ),
    planted(
        "a LEAVING assignment goes before all cover what it has",
        f"{IN_STEPS}:_of_leaving",
        HAVE_ALL,
        HAVE_SAID,
        STEPS,
    ),
    planted(
        "a forced end is the lowest that one says",
        f"{IN_STEPS}:_ended",
        "whole = reduce(clock.merge, (_clock(copy, known, host) for host in said))",
        "whole = reduce(clock.least, (_clock(copy, known, host) for host in said))",
        STEPS,
    ),
    planted(
        "a forced end stays what it was, wherever it was settled",
        f"{IN_PARTITIONS}:_settle",
        "ends = tuple(End(one, settled.get(one, end)) for one, end in found.ends)",
        "ends = found.ends",
        PARTITIONS,
    ),
    # -- what a target has --
    planted(
        "a gap in a span is joined",
        f"{IN_JOINING}.taken",
        "if span is not None and clock.covers(span.after, before):",
        "if span is not None:",
        JOINING,
    ),
    planted(
        "who is loaded is whole, whatever spans are open",
        f"{IN_JOINING}.closed",
        "return (self._replace(spans=spans) if left else WHOLE), reached",
        "return WHOLE, reached",
        JOINING,
    ),
    Mutant(
        "an AVAILABLE host confirms what it only merged",
        (
            Edit(
                f"{IN_COPY}.follows",
                "return self.joining is not None or self.covers(entry.before, merged)",
                "return True",
            ),
            Edit(
                f"{IN_COPY}.merge",
                FOLLOWS,
                "pass",
            ),
        ),
        (REPLICAS,),
        "property",
    ),
    planted(
        "a target is fed from the beginning of the log",
        "gossipkv.replication.tail:Beginnings.of",
        "return self._of.get(copy, {}).get(assignment, self._start)",
        "return 0",
        TARGETS,
    ),
    planted(
        "nobody notes where the feed of a target begins",
        "gossipkv.replication.tail:Beginnings.note",
        "if begun:",
        "if False:",
        TARGETS,
    ),
    planted(
        "a target feeds while it loads",
        "gossipkv.replication.replicas:Replicas._synced",
        "if fed := [entry for entry in here if entry.joining is None]:",
        "if fed := here:",
        TARGETS,
    ),
    planted(
        "a target's log feeds what came while it loaded",
        f"{IN_COPY}._finished",
        "before = entry.before if entry.joining is None else entry.after  # Nobody is fed by it: see `joining`.",
        "before = entry.before",
        TARGETS,
    ),
    planted(
        "what stays open is waited for without end",
        "gossipkv.replication.loading:Loading._look_at_joining",
        "if now >= self._open.setdefault(copy, now) + self._stall_s and copy not in self.loads:",
        "if False:",
        TARGETS,
    ),
    planted(
        "whoever is asked originates",
        "gossipkv.replication.replicas:Replicas.may_originate",
        "if copy.stands_still or copy.joining is not None or not copy.originates or self.refusal(copy) is not None:",
        "if copy.stands_still or copy.joining is not None or self.refusal(copy) is not None:",
        REPLICAS,
    ),
    planted(
        "who is LEAVING originates",
        f"{IN_COPY}.originates",
        "return seat is None or (seat.available and seat.counts)",
        "return seat is None or seat.available",
        COPY,
    ),
    # -- levels --
    planted(
        "a target is not needed by its slot",
        f"{IN_LEVELS}._counting",
        "counting = [one for one in self._copy.seated() if one[1].counts]",
        "counting = [one for one in self._copy.seated() if one[1].counts and one[1].available]",
        LEVELS,
    ),
    planted(
        "who is LEAVING confirms in the place of its target",
        f"{IN_LEVELS}._counting",
        "counting = [one for one in self._copy.seated() if one[1].counts]",
        LEAVING_IN_PLACE,
        LEVELS,
    ),
    planted(
        "a target confirms for a slot that has nobody else",
        f"{IN_LEVELS}._counting",
        "slots = {seat.slot for _, seat in counting if seat.available}",
        "slots = {seat.slot for _, seat in counting}",
        LEVELS,
    ),
    # -- sessions --
    planted(
        "an ended origin that is not known has a copy never be ready",
        "gossipkv.table.readiness:Readiness._unready",
        "if not clock.covers(copy.synced, clock.named(seen.clock, copy.named)):",
        "if not clock.covers(copy.synced, seen.clock):",
        ON_THE_WAY,
    ),
    planted(
        "a read waits for the register",
        "gossipkv.table.readiness:Readiness._unready",
        "if seen.config > replication.maps.get(copy.identity.table, 0):",
        "if seen.config >= replication.maps.get(copy.identity.table, 0):",
        ON_THE_WAY,
    ),
    planted(
        "what has changed keeps its version",
        "gossipkv.register.metadata.tree:Edit.get",
        "return None if record is None else Entry(key, self.config, record)",
        "return None if record is None else Entry(key, *(self._tree.get(key) or (key, self.config))[1:2], record)",
        MOVER,
    ),
    planted(
        "an end that is known has a copy be waited for",
        "gossipkv.table.readiness:_ends_are_known",
        "return all(end is not None for _, end in lacked)",
        "return not lacked",
        ON_THE_WAY,
    ),
    planted(
        "nobody is told that a write is lost",
        "gossipkv.table.readiness:_ends_are_known",
        "if end is not None and clock.counter(seen, assignment) > end:",
        "if False:",
        ON_THE_WAY,
    ),
    # -- who has departed --
    planted(
        "what has departed is dropped by the map that is known here",
        f"{IN_STEPPING}._drop_departed",
        "await self._metadata.quorum_read(table)",
        "pass",
        STEPPING,
    ),
    planted(
        "what has departed is dropped without a word of the others",
        f"{IN_STEPPING}._drop_some",
        DROPS,
        "if parts and is_absent and copy in self._replication.departed:",
        STEPPING,
    ),
    planted(
        "what has departed is dropped when the others answer, by whatever map they go",
        f"{IN_STEPPING}._drop_some",
        "return report is not None and report.config >= part.version",
        "return report is not None",
        STEPPING,
    ),
    planted(
        "what was AVAILABLE is dropped once it is not in the map",
        f"{IN_HOLDING}._departs",
        "if copy.was_available:",
        "if False:",
        ASIDE,
    ),
    planted(
        "what was taken by force is dropped if it was LEAVING",
        f"{IN_HOLDING}._departs",
        "elif has_end and copy not in self._replication.departed:",
        "elif False:",
        ASIDE,
    ),
    planted(
        "what was handed over is set aside when another one is taken by force",
        f"{IN_HOLDING}._departs",
        "elif has_end and copy not in self._replication.departed:",
        "elif has_end:",
        f"{UNIT}/table/test_divided_holding.py",
    ),
    planted(
        "what is set aside is served",
        f"{IN_SHELL}.let_go",
        "self.replicas.forget(copy, Batch())  # It loads nothing any more.",
        "_ = why or self.replicas.forget(copy, Batch())",
        ASIDE,
    ),
    planted(
        "what is set aside is served in the next life",
        "gossipkv.replication.spaces:_is_copy",
        "return IDENTITY in row and STATE in row and ASIDE not in row",
        "return IDENTITY in row and STATE in row",
        ASIDE,
    ),
    planted(
        "a later life does not know that a copy was LEAVING",
        "gossipkv.replication.spaces:_copy_of",
        "copy.was_available = MOVES not in row",
        "pass",
        ASIDE,
    ),
    # -- the mover --
    planted(
        "each metadata server moves at once",
        "gossipkv.table.moving:Moving._acts",
        "return self._metadata.me.node == self.mover_of(table)",
        "return True",
        MOVER,
    ),
    planted(
        "a target that was given up is begun without end",
        "gossipkv.table.moving:Moving._count_failures",
        "if self._failures[node] >= FAILURES:",
        "if False:",
        MOVER,
    ),
    planted(
        "an assignment's id goes by what is assigned",
        "gossipkv.table.moving:Moving._asked",
        'asked.append(("assign", (key, id_, draw_id(self._random), step.target, step.slot)))',
        'asked.append(("assign", (key, id_, sum(step.target) << 8 | step.slot, step.target, step.slot)))',
        MOVER,
    ),
    planted(
        "an id is given again while it is a former one's",
        "gossipkv.placement.partition:fault_of",
        '(not {*former}.isdisjoint(one.id for one in assignments), "a former assignment is there still"),',
        "",
        PARTITION,
    ),
    planted(
        "who is dead is to hold nothing",
        "gossipkv.table.moving:Moving.look",
        "nodes = placed(self._catalogue.nodes.named())",
        "nodes = [one for one in placed(self._catalogue.nodes.named()) if one.id in self._alive()]",
        MOVER,
    ),
)
