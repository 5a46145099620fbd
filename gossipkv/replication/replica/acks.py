"""When a write has reached its level: how many slots of its partition have confirmed it.

    one         it is synced at its origin
    majority    more than half of the slots have confirmed
    all         every slot has

A slot has confirmed when it has an AVAILABLE host, and that and a target of it that is INITIALIZING have, under the
origin's config (the rule of M3: a slot that moves counts when both ends have it).  One that has only a target confirms
nothing: what that and one more had would be lost with the one.  A PROPOSED target is not awaited, for nothing from
before its feed is there until it has loaded: what a majority confirms under that config is what each majority has that
it asks before it is AVAILABLE.  A host confirms by its clock, which tells what it synced; one that is not whole yet
(`replica.bootstrap`) by its span: that has what came since its feed began, and nothing before.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, final

from gossipkv.replication.replica import clock

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from gossipkv.replication.replica.replica import Replica, Seat
    from gossipkv.replication.replica.status import ReplicaStatus

ONE: Final = "one"
MAJORITY: Final = "majority"
ALL: Final = "all"
LEVELS: Final = (ONE, MAJORITY, ALL)

ENDED: Final = 1 << 64  # Beyond each counter.


def slots_needed(level: str, slots: int) -> int:
    """How many of its slots a write at that level needs."""
    return {ONE: 1, MAJORITY: slots // 2 + 1, ALL: slots}[level]


class _PendingWrite(NamedTuple):
    counter: int  # Of its last record.
    on_reached: Callable[[], object]


def _is_older(told: ReplicaStatus, other: ReplicaStatus) -> bool:
    """Whether it was told before the other: neither config nor clock of a host goes back."""
    if told.config != other.config:
        return told.config < other.config
    return told.clock != other.clock and clock.covers(other.clock, told.clock)


@final
@dataclass(slots=True, eq=False)
class _SplitWrite:
    """What waits for a level has it once all heirs of its copy say so, wherever its keys are by now."""

    left: int
    on_reached: Callable[[], object]

    def one(self) -> None:
        self.left -= 1
        if not self.left:
            self.on_reached()


@final
class AckTracker:
    """The writes that one copy has originated, and that wait; of thousands of copies hardly any has some."""

    __slots__ = ("_copy", "_pending", "_told")

    def __init__(self, copy: Replica) -> None:
        self._copy = copy
        self._told: tuple[ReplicaStatus, ...] = ()  # What each other host has told last.
        # By level and the assignment under which it was written: its copy's, or one of before a division.
        self._pending: dict[tuple[str, int], deque[_PendingWrite]] | None = None  # None: nobody waits.

    def confirming(self, confirms: Callable[[bytes], bool]) -> int:
        """How many slots can confirm now: all whose hosts count are here, or nodes of which `confirms` says so."""
        slots: dict[int, bool] = {}
        for assignment, seat in self._counting():
            there = assignment == self._copy.assignment or confirms(seat.node)
            slots[seat.slot] = slots.get(seat.slot, True) and there
        return sum(slots.values())

    def _counting(self) -> Iterable[tuple[int, Seat]]:
        """The hosts with which slots confirm: those that are not LEAVING, of slots that have an AVAILABLE one."""
        counting = [one for one in self._copy.seated() if one[1].counts]
        slots = {seat.slot for _, seat in counting if seat.available}
        return (one for one in counting if one[1].slot in slots)

    @property
    def slots(self) -> int:
        """How many slots the partition is to have."""
        return self._copy.rules.slots or len({seat.slot for seat in self._copy.seats})

    @property
    def heard(self) -> Collection[int]:
        """The assignments whose hosts have told their clocks in this life."""
        return [one.assignment for one in self._told]

    def wait(self, level: str, counter: int, on_reached: Callable[[], object], *, origin: int | None = None) -> None:
        """Have `on_reached` called once the record of that counter, and all before, have reached the level.

        `origin`: the assignment under which it was written here; None: that of the copy.
        """
        self._pending = self._pending or {}
        by = level, self._copy.assignment if origin is None else origin
        pending = self._pending.setdefault(by, deque())
        assert not pending or pending[-1].counter <= counter
        pending.append(_PendingWrite(counter, on_reached))

    def divided(self, heirs: Sequence[AckTracker]) -> None:
        """Its copy is divided: what waits is counted anew, by what is confirmed of all of its keys."""
        pending, self._pending = self._pending or {}, None
        for (level, origin), all_ in pending.items():
            for one in all_:
                everywhere = _SplitWrite(len(heirs), one.on_reached)
                for heir in heirs:
                    heir.wait(level, one.counter, everywhere.one, origin=origin)

    def confirms(self, told: ReplicaStatus) -> None:
        """A host has told its clock; what it told before may come behind, by the other link, and takes nothing back."""
        before = next((one for one in self._told if one.assignment == told.assignment), None)
        if before is None or not _is_older(told, before):
            self._told = (*(one for one in self._told if one is not before), told)
        self.look()

    def look(self) -> None:
        """Call those whose level is reached."""
        for (level, origin), pending in [*(self._pending or {}).items()]:
            reached = self.reached(level, origin=origin)
            while pending and pending[0].counter <= reached:
                pending.popleft().on_reached()
            if pending and (begins := self._begins(origin)):
                self._look_behind(level, origin, pending, begins)
            if not pending and self._pending is not None:
                self._pending.pop((level, origin), None)
                self._pending = self._pending or None

    def _begins(self, origin: int) -> int:
        """Behind which counter a host has something that is not whole; 0: all are."""
        spans = (told.span for told in self._told if told.span is not None)
        return max((clock.counter(span.before, origin) for span in spans), default=0)

    def _look_behind(self, level: str, origin: int, pending: deque[_PendingWrite], begins: int) -> None:
        """Call those of behind where a feed began: what was written before waits until its target is whole."""
        reached = self.reached(level, begins, origin=origin)
        done = [one for one in pending if begins < one.counter <= reached]
        for one in done:
            pending.remove(one)
            one.on_reached()

    def reached(self, level: str, behind: int = 0, *, origin: int | None = None) -> int:
        """Up to which counter what was written here has reached a level; or, `behind` a counter, what came since.

        `origin`: as in `wait`.
        """
        origin = self._copy.assignment if origin is None else origin
        if origin not in self._copy.named:  # It is settled: all copies have what was written here before.
            return ENDED
        here = clock.counter(self._copy.synced, origin)
        if level == ONE:
            return here
        slots: dict[int, int] = {}
        for assignment, seat in self._counting():
            counter = here if assignment == self._copy.assignment else self._confirmed(assignment, origin, behind)
            slots[seat.slot] = min(slots.get(seat.slot, counter), counter)
        needed = slots_needed(level, self.slots)
        return sorted(slots.values(), reverse=True)[needed - 1] if len(slots) >= needed else 0

    def _confirmed(self, assignment: int, origin: int, behind: int) -> int:
        """Up to which counter a host has confirmed what an origin has written, or what came behind that counter."""
        for told in self._told:
            if told.assignment == assignment and told.config == self._copy.config:
                counter = clock.counter(told.clock, origin)
                if told.span is not None and clock.counter(told.span.before, origin) <= behind:
                    counter = max(counter, clock.counter(told.span.after, origin))
                return counter
        return 0
