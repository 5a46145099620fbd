"""Acknowledgements: a write reaches its level once enough slots of its partition have confirmed it.

    one         the origin has synced the write
    majority    more than half of the slots have confirmed
    all         every slot has confirmed

A slot confirms when its AVAILABLE host and its INITIALIZING target, if any, have confirmed under the origin's config:
a moving slot counts once both ends have the write. A slot with only a target confirms nothing: such a target is
incomplete, and a majority of it and one host would be lost with that host. A PROPOSED target is not awaited: it loads
these records later, and becomes AVAILABLE only when it covers the clocks of a majority. Hosts confirm by their clocks;
incomplete hosts by their spans (`replica.bootstrap`), and only records that came since their feed began.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from gossipkv.replication.replica import clock

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from gossipkv.replication.replica.replica import Replica
    from gossipkv.replication.replica.status import ReplicaStatus

    _PendingWrite = tuple[int, Callable[[], object]]  # The counter of its last record, and what to call then.

ONE: Final = "one"
MAJORITY: Final = "majority"
ALL: Final = "all"
LEVELS: Final = (ONE, MAJORITY, ALL)

ENDED: Final = 1 << 64  # Greater than each counter.


def slots_needed(level: str, slots: int) -> int:
    """Return the number of slots that a write at a level needs."""
    return {ONE: 1, MAJORITY: slots // 2 + 1, ALL: slots}[level]


def _is_older(status: ReplicaStatus, other: ReplicaStatus) -> bool:
    """Return True if a status is older than another: neither config nor clock of a host goes back."""
    if status.config != other.config:
        return status.config < other.config
    return status.clock != other.clock and clock.covers(other.clock, status.clock)


@final
@dataclass(slots=True, eq=False)
class _SplitWrite:
    """A write of a split replica: it reaches its level when all children confirm, wherever its keys are."""

    left: int
    on_reached: Callable[[], object]

    def child_reached(self) -> None:
        self.left -= 1
        if not self.left:
            self.on_reached()


@final
class AckTracker:
    """The waiting writes of one replica; few of a node's thousands of replicas have any."""

    __slots__ = ("_pending", "_replica", "_statuses")

    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        self._statuses: tuple[ReplicaStatus, ...] = ()  # Last status of each other host.
        # By level and the assignment of the write: the replica's, or a parent's from before a split.
        self._pending: dict[tuple[str, int], deque[_PendingWrite]] | None = None  # None: no write waits.

    def confirming(self, confirms: Callable[[bytes], bool]) -> int:
        """Return how many slots can confirm now: those whose counting hosts are local or pass `confirms`."""
        replica, there = self._replica, 0
        for places in replica.quorum.places:
            for place in places:
                if replica.assigned[place] != replica.assignment and not confirms(replica.roles[place].node):
                    break
            else:
                there += 1
        return there

    def has_heard(self, assignments: Collection[int]) -> bool:
        """Return True if all of these hosts but this one have reported a clock in this run."""
        heard = {self._replica.assignment}
        for status in self._statuses:
            heard.add(status.assignment)
        return heard.issuperset(assignments)

    def wait(self, level: str, counter: int, on_reached: Callable[[], object], *, origin: int | None = None) -> None:
        """Call `on_reached` once the record of a counter and all earlier ones have reached the level.

        `origin`: the assignment of the local write; None: the replica's.
        """
        by = level, self._replica.assignment if origin is None else origin
        if self._pending is None:
            self._pending = {}
        pending = self._pending.setdefault(by, deque())
        assert not pending or pending[-1][0] <= counter
        pending.append((counter, on_reached))

    def divided(self, children: Sequence[AckTracker]) -> None:
        """Hand waiting writes to the children after a split: all must confirm anew."""
        pending, self._pending = self._pending or {}, None
        for (level, origin), writes in pending.items():
            for counter, on_reached in writes:
                everywhere = _SplitWrite(len(children), on_reached)
                for child in children:
                    child.wait(level, counter, everywhere.child_reached, origin=origin)

    def confirms(self, status: ReplicaStatus) -> None:
        """Take a host's status; an older one from its other link is ignored."""
        others = []
        for other in self._statuses:
            if other.assignment != status.assignment:
                others.append(other)
            elif _is_older(status, other):
                status = other
        self._statuses = (*others, status)
        self.look()

    def look(self) -> None:
        """Complete the writes whose level is reached."""
        if self._pending is None:
            return
        for (level, origin), pending in [*self._pending.items()]:
            reached = self.reached(level, origin=origin)
            while pending and pending[0][0] <= reached:
                pending.popleft()[1]()
            if pending and (begins := self._begins(origin)):
                self._look_behind(level, origin, pending, begins)
            if not pending and self._pending is not None:
                self._pending.pop((level, origin), None)
                self._pending = self._pending or None

    def _begins(self, origin: int) -> int:
        """Return the counter behind which all incomplete hosts' spans begin; 0: all hosts are complete."""
        begins = 0
        for status in self._statuses:
            if status.span is not None:
                begins = max(begins, clock.counter(status.span.before, origin))
        return begins

    def _look_behind(self, level: str, origin: int, pending: deque[_PendingWrite], begins: int) -> None:
        """Complete writes from within all spans; earlier ones wait until the targets are complete."""
        reached = self.reached(level, begins, origin=origin)
        done = [write for write in pending if begins < write[0] <= reached]
        for write in done:
            pending.remove(write)
            write[1]()

    def reached(self, level: str, behind: int = 0, *, origin: int | None = None) -> int:
        """Return the last counter of local writes that reached a level; with `behind`, count only records behind that.

        `origin`: as in `wait`.
        """
        replica = self._replica
        origin = replica.assignment if origin is None else origin
        if origin not in replica.named:  # The origin is settled: all replicas have its records.
            return ENDED
        here = clock.counter(replica.synced, origin)
        if level == ONE:
            return here
        confirmed = {replica.assignment: here}
        for status in self._statuses:
            if status.config == replica.config and status.assignment != replica.assignment:
                counter, span = clock.counter(status.clock, origin), status.span
                if span is not None and clock.counter(span.before, origin) <= behind:
                    counter = max(counter, clock.counter(span.after, origin))
                confirmed[status.assignment] = counter
        reached = []
        for places in replica.quorum.places:
            counter = ENDED
            for place in places:
                counter = min(counter, confirmed.get(replica.assigned[place], 0))
            reached.append(counter)
        needed = slots_needed(level, replica.quorum.slots)
        return sorted(reached, reverse=True)[needed - 1] if len(reached) >= needed else 0
