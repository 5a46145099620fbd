"""Bugs planted in who holds a range by people's word, and in how a range of keys is deleted."""

from __future__ import annotations

from tests.nightly.mutants.mutant import Mutant, planted

UNIT = "tests/unit"
PICKING = f"{UNIT}/placement/test_picking.py"
BY_PEOPLE = f"{UNIT}/table/test_joins_by_people.py"
CLEARING = f"{UNIT}/client/test_deletion.py"

IN_PICKING = "gossipkv.placement.picking:Picking"
IN_RANGES = "gossipkv.table.ranges"
IN_CLEARING = "gossipkv.client.deletion:RangeDeletion"

MUTANTS_OF_HOSTING: tuple[Mutant, ...] = (
    # -- who is picked --
    planted(
        "a newcomer's own isolation group does not count",
        f"{IN_PICKING}.slot_to_take",
        "return self._alike([*stay, comer]), hosts[slot] not in self.alive, -self._load(hosts[slot]), slot",
        "return self._alike(stay), hosts[slot] not in self.alive, -self._load(hosts[slot]), slot",
        PICKING,
    ),
    planted(
        "a newcomer takes the slot of a node that is down",
        f"{IN_PICKING}.slot_to_take",
        "return self._alike([*stay, comer]), hosts[slot] not in self.alive, -self._load(hosts[slot]), slot",
        "return self._alike([*stay, comer]), hosts[slot] in self.alive, -self._load(hosts[slot]), slot",
        PICKING,
    ),
    planted(
        "a newcomer replaces a host while a slot is empty",
        f"{IN_PICKING}.slot_to_take",
        "if empty:",
        "if False:",
        PICKING,
    ),
    planted(
        "a node that is down takes a slot",
        f"{IN_PICKING}.successor",
        "able = [node for node in self.nodes if node in self.alive and node not in hosts]",
        "able = [node for node in self.nodes if node not in hosts]",
        PICKING,
    ),
    planted(
        "the weight of a node does not count",
        f"{IN_PICKING}._load",
        "return self.held.get(node, 0) / self.nodes[node].weight if node in self.nodes else inf",
        "return self.held.get(node, 0) if node in self.nodes else inf",
        PICKING,
    ),
    # -- what is done --
    planted(
        "leave takes a range below its replicas",
        f"{IN_RANGES}:RangeMethods._left",
        "if target is None:",
        "if target is None and (target := partition.assignments[0].node) is None:",
        BY_PEOPLE,
    ),
    planted(
        "who is about to be replaced is taken for a host that stays",
        f"{IN_RANGES}:RangeMethods._joined",
        "if seat is not None and seat.state is not State.LEAVING and not _is_replaced(partition, seat):",
        "if seat is not None and seat.state is not State.LEAVING:",
        BY_PEOPLE,
    ),
    planted(
        "a second leave moves the slot on",
        f"{IN_RANGES}:RangeMethods._left",
        "if seat.state is State.LEAVING or _is_replaced(partition, seat):",
        "if False:",
        BY_PEOPLE,
    ),
    planted(
        "who is taken out may join",
        f"{IN_RANGES}:RangeMethods._joined",
        "if node not in picking.nodes:",
        "if False:",
        BY_PEOPLE,
    ),
    planted(
        "who is on its way stays when it is told to leave",
        f"{IN_RANGES}:RangeMethods._left",
        "if seat.state in COMING:",
        "if False:",
        BY_PEOPLE,
    ),
    # -- what is deleted --
    planted(
        "a deletion goes on behind a key that was not deleted",
        f"{IN_CLEARING}._pass",
        "start = self._start if self.last is None else self.last",
        'start = self._start if self.last is None else self.last + b"\\xff"',
        CLEARING,
    ),
    planted(
        "a deletion begins anew with its bounds forgotten",
        f"{IN_CLEARING}._pass",
        "pages = Pages(self._table, start, self._end, self._prefix, reverse=False, limit=None)",
        "pages = Pages(self._table, start, None, self._prefix, reverse=False, limit=None)",
        CLEARING,
    ),
    planted(
        "a deletion without bounds is let through",
        f"{IN_CLEARING}.__init__",
        "if not (start or prefix) and end is None:",
        "if False:",
        CLEARING,
    ),
    planted(
        "a deletion has patience again after each failure",
        f"{IN_CLEARING}.run",
        "since = now if since is None or self.deleted > before else since",
        "since = now",
        CLEARING,
    ),
)
