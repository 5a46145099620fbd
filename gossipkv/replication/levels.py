"""When a write has reached its level: how many slots of its partition have confirmed it.

    one         it is synced at its origin
    majority    more than half of the slots have confirmed
    all         every slot has

A slot has confirmed when it has a host that is not LEAVING, and every such host has, under the origin's config (the
rule of M3: a slot that moves counts when both ends have it).  A host confirms by its clock, which tells what it synced.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple, final

from gossipkv.replication import clock

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from gossipkv.replication.copy import Copy

ONE: Final = "one"
MAJORITY: Final = "majority"
ALL: Final = "all"
LEVELS: Final = (ONE, MAJORITY, ALL)


def slots_needed(level: str, slots: int) -> int:
    """How many of its slots a write at that level needs."""
    return {ONE: 1, MAJORITY: slots // 2 + 1, ALL: slots}[level]


class _Pending(NamedTuple):
    counter: int  # Of its last record.
    on_reached: Callable[[], object]


@final
class Levels:
    """The writes that one copy has originated, and that wait."""

    def __init__(self, copy: Copy) -> None:
        self._copy = copy
        self._confirmed: dict[int, tuple[int, bytes]] = {}  # By assignment: config id and clock.
        self._pending: dict[
            str, deque[_Pending]
        ] = {}  # Nothing for a level at which nobody waits: there are many copies.

    def connected(self, nodes: Collection[bytes]) -> int:
        """How many slots can confirm now: all whose hosts count are here, or among the `nodes` that are connected."""
        slots: dict[int, bool] = {}
        for host in self._copy.hosts:
            if host.counts:
                there = host.assignment == self._copy.assignment or host.node in nodes
                slots[host.slot] = slots.get(host.slot, True) and there
        return sum(slots.values())

    @property
    def slots(self) -> int:
        """How many slots the partition has."""
        return len({host.slot for host in self._copy.hosts})

    @property
    def heard(self) -> Collection[int]:
        """The assignments whose hosts have told their clocks in this life."""
        return self._confirmed.keys()

    def wait(self, level: str, counter: int, on_reached: Callable[[], object]) -> None:
        """Have `on_reached` called once the record of that counter, and all before, have reached the level."""
        pending = self._pending.setdefault(level, deque())
        assert not pending or pending[-1].counter <= counter
        pending.append(_Pending(counter, on_reached))

    def confirms(self, assignment: int, config: int, told: bytes) -> None:
        """A host has told its clock."""
        self._confirmed[assignment] = config, told
        self.look()

    def look(self) -> None:
        """Call those whose level is reached."""
        for level, pending in [*self._pending.items()]:
            reached = self.reached(level)
            while pending and pending[0].counter <= reached:
                pending.popleft().on_reached()
            if not pending:
                self._pending.pop(level, None)

    def reached(self, level: str) -> int:
        """Up to which counter what was written here has reached a level."""
        here = clock.counter(self._copy.synced, self._copy.assignment)
        if level == ONE:
            return here
        slots: dict[int, int] = {}
        for host in self._copy.hosts:
            if not host.counts:
                continue
            config, told = self._confirmed.get(host.assignment, (0, b""))
            if host.assignment == self._copy.assignment:
                counter = here
            else:
                counter = clock.counter(told, self._copy.assignment) if config == self._copy.config else 0
            slots[host.slot] = min(slots.get(host.slot, counter), counter)
        needed = slots_needed(level, self.slots)
        return sorted(slots.values(), reverse=True)[needed - 1] if len(slots) >= needed else 0
