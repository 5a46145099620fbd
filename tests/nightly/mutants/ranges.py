"""Bugs planted in the planner of range tables: what it undoes, moves for nothing, or forgets."""

from __future__ import annotations

from tests.nightly.mutants.mutant import Mutant, planted_at

RANGES = "gossipkv.placement.ranges"
PLANNER = f"{RANGES}:_Planner"
LATELY = "gossipkv.placement.lately:Lately"
PLANS = "tests/unit/placement/test_ranges.py"
MOVER = "tests/unit/table/test_planning.py"
HOSTS = "tests/unit/table/test_measuring.py"

MUTANTS_OF_RANGES: tuple[Mutant, ...] = (
    *planted_at(
        PLANS,
        ("the planner has no hysteresis", f"{PLANNER}._find",
         "if gap < CLEAR or left <= 0:",
         "if gap <= 0 or left <= 0:"),
        ("a range goes where the load is as large then", f"{PLANNER}._find",
         "most, weight = had - LEFT * gap, self._nodes[target].weight",
         "most, weight = had, self._nodes[target].weight"),
        ("a range goes to a node that is dead", f"{PLANNER}.__init__",
         "able = {*situation.alive}.difference(situation.shunned)",
         "able = {node.id for node in self._nodes}"),
        ("a dead node gives", f"{PLANNER}.__init__",
         "self._living = [at for at, node in enumerate(self._nodes) if node.id in situation.alive]",
         "self._living = [*range(len(self._nodes))]"),
        ("an empty slot of a range stays empty", f"{PLANNER}.fill",
         "for slot in [*removed, *empty][: max(0, self._slots - stand)]:",
         "for slot in removed[: max(0, self._slots - stand)]:"),
        ("a range stays on a node that was removed", f"{PLANNER}.fill",
         "for slot in [*removed, *empty][: max(0, self._slots - stand)]:",
         "for slot in empty[: max(0, self._slots - stand)]:"),
        ("a plan undoes one of the last ten minutes", f"{PLANNER}._has_come",
         "return (source, target) in self._passed or self._is_recent(at, LATELY_S)",
         "return (source, target) in self._passed"),
        ("what was moved is moved on", f"{PLANNER}.level",
         "self._fixed.update((at, slot) for slot in moved)",
         "del moved"),
        ("the children of what was moved are moved on", f"{LATELY}.read",
         "self.moved[partition.id, slot] = self.moved[parent.id, slot]",
         "pass"),
        ("a range comes to lie less far apart", f"{PLANNER}._fits",
         "return self._is_apart(slots, slot, target)",
         "return True"),
        ("a plan goes by sizes that nobody has said", f"{PLANNER}._measured",
         "self.knows_enough = len(known) >= KNOWN * len(found)",
         "self.knows_enough = True"),
        ("the planner plans though it is off", f"{RANGES}:plan",
         "if situation.is_on and planner.knows_enough:",
         "if planner.knows_enough:"),
        ("a division is asked for that its hosts begin", f"{PLANNER}.splits",
         "if since is None or now >= since + LARGE_S:",
         "if since is None or now >= since:"),
        ("one key is to be divided for ever", f"{PLANNER}.splits",
         "if not why or now >= lately.asked.get(partition.id, (inf, inf))[0] + LATELY_S:  # It seems to be one key.",
         "if not why:"),
    ),
    *planted_at(
        MOVER,
        ("what people have changed has to rest", "gossipkv.table.planning:Planning.steps",
         "self.lately.rests()",
         "pass"),
        ("one host alone is asked to divide", "gossipkv.table.planning:Planning.divide",
         "nursery.start_soon(_divide, ask, table, hosts[int(now / AGAIN_S) % len(hosts)], partition.id)",
         "nursery.start_soon(_divide, ask, table, hosts[0], partition.id)"),
    ),
    *planted_at(
        HOSTS,
        ("a range that was divided is idle", "gossipkv.table.measuring:Measuring.count",
         "rate = before.pop(copy) / len(copy.heirs)",
         "rate = 0.0 * before.pop(copy)"),
    ),
)  # fmt: skip
