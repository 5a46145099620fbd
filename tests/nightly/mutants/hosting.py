"""Bugs planted in who holds a range by people's word, and in how a range of keys is deleted."""

from __future__ import annotations

from tests.nightly.mutants.mutant import Mutant, planted_at

UNIT = "tests/unit"
PICKING = f"{UNIT}/placement/test_ranges.py"
BY_PEOPLE = f"{UNIT}/table/test_joins_by_people.py"
CLEARING = f"{UNIT}/client/test_deletion.py"

PLANNER = "gossipkv.placement.ranges:_Planner"
IN_RANGES = "gossipkv.table.ranges"
IN_CLEARING = "gossipkv.client.deletion:RangeDeletion"

MUTANTS_OF_HOSTING: tuple[Mutant, ...] = (
    # -- who is picked --
    *planted_at(
        PICKING,
        ("a newcomer's own isolation group does not count", f"{PLANNER}._nearer",
         "return others.count(groups[self._nodes[target].id]) - others.count(groups.get(slots[slot], slots[slot]))",
         "return -others.count(groups.get(slots[slot], slots[slot]))"),
        ("a newcomer takes the slot of a node that is down", f"{PLANNER}.slot_to_take",
         "return self._nearer(here, slot, target), here[slot] not in self._now.alive, -load, slot",
         "return self._nearer(here, slot, target), here[slot] in self._now.alive, -load, slot"),
        ("a newcomer replaces a host while a slot is empty", f"{PLANNER}.slot_to_take",
         "if len(hosts) < self._now.replication:",
         "if False:"),
        ("a node that is down takes a slot", f"{PLANNER}.farthest",
         "for at in self._able:",
         "for at in range(len(self._nodes)):"),
        ("the weight of a node does not count", f"{PLANNER}._carry",
         "weight = self._nodes[node].weight",
         "weight = 1"),
    ),
    # -- what is done --
    *planted_at(
        BY_PEOPLE,
        ("leave takes a range below its replicas", f"{IN_RANGES}:RangeMethods._leave",
         "if target is None:",
         "if target is None and (target := partition.assignments[0].node) is None:"),
        ("who is about to be replaced is taken for a host that stays", f"{IN_RANGES}:RangeMethods._join",
         "if seat is not None and seat.state is not State.LEAVING and not _is_replaced(partition, seat):",
         "if seat is not None and seat.state is not State.LEAVING:"),
        ("a second leave moves the slot on", f"{IN_RANGES}:RangeMethods._leave",
         "if seat.state is State.LEAVING or _is_replaced(partition, seat):",
         "if False:"),
        ("who is taken out may join", f"{IN_RANGES}:RangeMethods._join",
         "if node not in {one.id for one in nodes}:",
         "if node not in {one.id for one in nodes} and (node := nodes[0].id) is None:"),
        ("who is on its way stays when it is told to leave", f"{IN_RANGES}:RangeMethods._leave",
         "if seat.state in COMING:",
         "if False:"),
    ),
    # -- what is deleted --
    *planted_at(
        CLEARING,
        ("a deletion goes on behind a key that was not deleted", f"{IN_CLEARING}._pass",
         "start = self._start if self.last is None else self.last",
         'start = self._start if self.last is None else self.last + b"\\xff"'),
        ("a deletion begins anew with its bounds forgotten", f"{IN_CLEARING}._pass",
         "pages = Pages(self._table, start, self._end, self._prefix, reverse=False, limit=None)",
         "pages = Pages(self._table, start, None, self._prefix, reverse=False, limit=None)"),
        ("a deletion without bounds is let through", f"{IN_CLEARING}.__init__",
         "if not (start or prefix) and end is None:",
         "if False:"),
        ("a deletion has patience again after each failure", f"{IN_CLEARING}.run",
         "since = now if since is None or self.deleted > before else since",
         "since = now"),
    ),
)  # fmt: skip
