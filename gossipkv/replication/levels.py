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
    from gossipkv.replication.feed import Told

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
    """The writes that one copy has originated, and that wait; of thousands of copies hardly any has some."""

    __slots__ = ("_copy", "_pending", "_told")

    def __init__(self, copy: Copy) -> None:
        self._copy = copy
        self._told: tuple[Told, ...] = ()  # What each other host has told last.
        self._pending: dict[str, deque[_Pending]] | None = None  # By level; None: nobody waits.

    def connected(self, nodes: Collection[bytes]) -> int:
        """How many slots can confirm now: all whose hosts count are here, or among the `nodes` that are connected."""
        slots: dict[int, bool] = {}
        for assignment, seat in self._copy.seated():
            if seat.counts:
                there = assignment == self._copy.assignment or seat.node in nodes
                slots[seat.slot] = slots.get(seat.slot, True) and there
        return sum(slots.values())

    @property
    def slots(self) -> int:
        """How many slots the partition has."""
        return len({seat.slot for seat in self._copy.seats})

    @property
    def heard(self) -> Collection[int]:
        """The assignments whose hosts have told their clocks in this life."""
        return [one.assignment for one in self._told]

    def wait(self, level: str, counter: int, on_reached: Callable[[], object]) -> None:
        """Have `on_reached` called once the record of that counter, and all before, have reached the level."""
        self._pending = self._pending or {}
        pending = self._pending.setdefault(level, deque())
        assert not pending or pending[-1].counter <= counter
        pending.append(_Pending(counter, on_reached))

    def confirms(self, told: Told) -> None:
        """A host has told its clock."""
        self._told = (*(one for one in self._told if one.assignment != told.assignment), told)
        self.look()

    def look(self) -> None:
        """Call those whose level is reached."""
        for level, pending in [*(self._pending or {}).items()]:
            reached = self.reached(level)
            while pending and pending[0].counter <= reached:
                pending.popleft().on_reached()
            if not pending and self._pending is not None:
                self._pending.pop(level, None)
                self._pending = self._pending or None

    def reached(self, level: str) -> int:
        """Up to which counter what was written here has reached a level."""
        here = clock.counter(self._copy.synced, self._copy.assignment)
        if level == ONE:
            return here
        slots: dict[int, int] = {}
        for assignment, seat in self._copy.seated():
            if not seat.counts:
                continue
            counter = here if assignment == self._copy.assignment else self._confirmed(assignment)
            slots[seat.slot] = min(slots.get(seat.slot, counter), counter)
        needed = slots_needed(level, self.slots)
        return sorted(slots.values(), reverse=True)[needed - 1] if len(slots) >= needed else 0

    def _confirmed(self, assignment: int) -> int:
        """Up to which counter a host has confirmed what was written here."""
        for told in self._told:
            if told.assignment == assignment and told.config == self._copy.config:
                return clock.counter(told.clock, self._copy.assignment)
        return 0
