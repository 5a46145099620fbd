"""One branch: what one owner published in one epoch, as far as it is known here.

The owner gives each change the next *version*; nobody else writes.  A withdrawn key is a *tombstone* until the *floor*
passes its version.  Deltas carry the changes after a version `since` up to `reach`, taken from the sender's state at
`target`; as a path appears only under its newest version, what lies between is no state that the owner ever had (k@5,
m@6, k@7, cut after 6: m without any k).  So what does not reach its target is *staged*, and a branch moves in one step
from one target to another.

Why nothing withdrawn comes back.  A delta lacks the tombstones up to its floor.  It may be laid over what is here only
if no key here can be one that such a tombstone took away, and none can:

- if `floor <= since`: what is here has been told of every version up to `since`, those tombstones among them;
- if `floor <= oldest`, the oldest state that any of what is here was taken from: a tombstone x <= floor stood in that
  state, so the key it took away was not in it.

Otherwise (a transfer of the whole branch went on from another sender, or after the owner collected) it starts over.
A transfer's targets never fall, so that the last one is the largest.  What is staged at versions that became visible
meanwhile is not looked at again: what is visible there is newer.

A branch too large for one reply goes on where the last one ended, a reset too.  Whoever answers does not know whether
the version that it is asked for is that of a state or the end of a part of a reset, and takes it for the latter; a
reader for whom it is not then asks for the branch from its beginning.

Invariants, after each step: the floor is not above the version; the version falls only when the branch is evicted;
`live` and `gone` have no path in common and stand in the order of versions, none of them above the branch's own;
`size_bytes` is the sum of what their items cost; what is staged goes to a later version.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Final, NamedTuple, final

from gossipkv.gossip.packets import messages
from gossipkv.gossip.packets.messages import Change, Delta
from gossipkv.gossip.tree.limits import ITEM_OVERHEAD_BYTES, item_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from gossipkv.gossip.tree.limits import TreeLimits

MOST_OLDER: Final = 3  # One may lag behind; when nobody has the state that a transfer goes to, there is none.
HEAD_BYTES: Final = 64  # No head of a DELTA is longer: a part's head, an id, flags, five numbers.
CHANGE_BYTES: Final = 15  # Nor is what a change has beside its path and value: a version, a kind, two lengths.


class DeltaOutcome(enum.Enum):
    """What became of a delta."""

    NOTHING = "nothing"  # Known already, or of a past life.
    STAGED = "staged"
    ADVANCED = "advanced"
    GAP = "gap"  # Something before it is missing: ask for it.
    REFUSED = "refused"  # Over a limit, or no path.


class Item(NamedTuple):
    """A key's value, and the version that set it."""

    version: int
    value: bytes


class Step(NamedTuple):
    """What a step forward changed for readers."""

    came: list[str]
    went: list[str]
    altered: list[str]


@final
class _Staged:
    """A transfer under way: what it brought, in the order of versions."""

    __slots__ = ("changes", "floor", "older", "oldest", "reach", "reset", "size_bytes", "target")

    def __init__(self, delta: Delta, visible: int) -> None:
        self.reset = delta.reset
        self.reach = delta.since
        self.oldest = delta.target if delta.reset else visible
        self.target = delta.target
        self.floor = delta.floor
        self.changes: dict[str, Change] = {}
        self.older = 0  # How often, asked to go on, others had an older state to go on to.
        self.size_bytes = 0

    def continues(self, delta: Delta) -> bool:
        """Whether this may be laid over what is staged: see the head of this module."""
        return (
            delta.since <= self.reach and delta.target >= self.target and delta.floor <= max(delta.since, self.oldest)
        )

    def add(self, delta: Delta) -> None:
        """Lay it over."""
        self.older = 0
        for change in delta.changes:
            before = self.changes.pop(change.path, None)
            if before is not None:
                self.size_bytes -= item_bytes(before.path, before.value)
            self.changes[change.path] = change
            self.size_bytes += item_bytes(change.path, change.value)
        self.reach = delta.reach
        self.target = delta.target
        self.floor = max(self.floor, delta.floor)


def _always(_more_bytes: int) -> bool:
    """Where nothing else takes room."""
    return True


@final
class Branch:
    """One owner's keys of one epoch."""

    __slots__ = ("_begins_anew", "_staged", "epoch", "floor", "gone", "live", "seen", "size_bytes", "version")

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.version = 0
        self.floor = 0  # Tombstones up to here are dropped.
        self.seen = 0  # The version that it was once at, before it was evicted.
        self.live: dict[str, Item] = {}  # In the order of versions.
        self.gone: dict[str, int] = {}  # Tombstones, likewise.
        self.size_bytes = 0
        self._staged: _Staged | None = None
        self._begins_anew = False  # What is here is of no use to go on from.

    @property
    def staged_bytes(self) -> int:
        """What a transfer under way costs."""
        return 0 if self._staged is None else self._staged.size_bytes

    @property
    def held_bytes(self) -> int:
        """What all of it costs, the transfer too."""
        return self.size_bytes + self.staged_bytes

    @property
    def wire_bytes(self) -> int:
        """What its paths and values take at least when they are told."""
        return self.size_bytes - ITEM_OVERHEAD_BYTES * (len(self.live) + len(self.gone))

    @property
    def reach(self) -> int:
        """Version that a transfer goes on from: up to there something is here, visible or staged."""
        staged = self._staged
        if staged is None:
            return 0 if self._begins_anew else self.version
        return staged.reach if staged.reset else max(self.version, staged.reach)

    # The owner's side

    def put(self, path: str, value: bytes) -> None:
        """Set a key under the next version."""
        self.version += 1
        self._put(path, Item(self.version, value))
        self._assert_sound()

    def withdraw(self, path: str) -> None:
        """Turn a key into a tombstone."""
        self.version += 1
        self._withdraw(path, self.version)
        self._assert_sound()

    # The readers' side

    def apply(
        self, delta: Delta, limits: TreeLimits, has_room: Callable[[int], bool] = _always
    ) -> tuple[DeltaOutcome, Step | None]:
        """Take changes of this epoch; a step if readers see another state now.

        `has_room` is asked, after all else was found well, whether the branch may cost so much more than now.
        """
        if delta.target <= self.version or delta.target < self.seen:
            return DeltaOutcome.NOTHING, None
        staged = self._transfer(delta)
        if isinstance(staged, DeltaOutcome):
            return staged, None
        cost = self.held_bytes
        staged.add(delta)
        cost_then = self._cost_with(staged, limits)
        if cost_then is None or not has_room(cost_then - cost):
            if staged is self._staged:
                self._staged = None
            return DeltaOutcome.REFUSED, None
        outcome, step = DeltaOutcome.STAGED, None
        if staged.reach < staged.target:
            self._staged = staged
        else:
            outcome, step = DeltaOutcome.ADVANCED, self._commit(staged)
        assert self.held_bytes == cost_then, (self.held_bytes, cost_then)  # As room was asked for.
        self._assert_sound()
        return outcome, step

    def evict(self) -> None:
        """Give the memory back; the branch is shown again only at what it was, or later."""
        self.seen = max(self.seen, self.version)
        self.version = self.floor = self.size_bytes = 0
        self.live, self.gone, self._staged = {}, {}, None

    # Both

    def changes(self, since: int) -> list[Change]:
        """What happened after a version that is not below the floor, or from the beginning after 0."""
        found: list[Change] = []
        for path in reversed(self.live):
            version, value = self.live[path]
            if version <= since:
                break
            found.append(Change(version, path, value))
        for path in reversed(self.gone):
            version = self.gone[path]
            if version <= since:
                break
            found.append(Change(version, path, None))
        found.sort()
        return found

    def collect(self, floor: int) -> None:
        """Drop the tombstones up to this version."""
        floor = min(floor, self.version)
        if floor <= self.floor:
            return
        self.floor = floor
        old = []
        for path, version in self.gone.items():
            if version > floor:
                break
            old.append(path)
        for path in old:
            del self.gone[path]
            self.size_bytes -= item_bytes(path, None)
        assert next(iter(self.gone.values()), floor + 1) > floor, floor

    def bound_tombstones(self, most: int) -> None:
        """Drop the older half of them if there are more than `most`."""
        if len(self.gone) > most:
            versions = list(self.gone.values())
            self.collect(versions[len(versions) - most // 2 - 1])

    def _transfer(self, delta: Delta) -> _Staged | DeltaOutcome:
        """The transfer that a delta belongs to, or why it belongs to none."""
        staged = self._staged
        if staged is not None and staged.continues(delta):
            known = delta.reach <= staged.reach and delta.reach < delta.target
            return DeltaOutcome.NOTHING if known else staged
        if delta.since > (0 if delta.reset else self.version):
            if delta.reset and (staged is None or (delta.since <= staged.reach and delta.target >= staged.target)):
                self._staged, self._begins_anew = None, True
            elif staged is not None and delta.since >= staged.reach and delta.target < staged.target:
                staged.older += 1
                if staged.older >= MOST_OLDER:
                    self._staged = None
            return DeltaOutcome.GAP
        if staged is not None and delta.target < staged.target and delta.reach < delta.target:
            return DeltaOutcome.NOTHING  # Part of an older state; a newer one is half here.
        return _Staged(delta, self.version)

    def _commit(self, staged: _Staged) -> Step:
        assert staged.reach == staged.target > self.version, (staged.reach, staged.target, self.version)
        changes = sorted(staged.changes.values())  # Parts that overlap may have come in another order.
        step = self._swap(changes) if staged.reset else self._overlay(changes)
        self.version = staged.target
        self._begins_anew = False
        self.collect(max(self.floor, staged.floor))
        if self._staged is not None and self._staged.target <= self.version:
            self._staged = None
        return step

    def _overlay(self, changes: Iterable[Change]) -> Step:
        step = Step([], [], [])
        for version, path, value in changes:
            if version <= self.version:
                continue
            here = path in self.live
            if value is not None:
                (step.altered if here else step.came).append(path)
                self._put(path, Item(version, value))
            else:
                if here:
                    step.went.append(path)
                self._withdraw(path, version)
        return step

    def _swap(self, changes: Iterable[Change]) -> Step:
        before = self.live
        self.live, self.gone, self.size_bytes = {}, {}, 0
        for version, path, value in changes:
            if value is not None:
                self._put(path, Item(version, value))
            else:
                self._withdraw(path, version)
        now = self.live
        came = [path for path in now if path not in before]
        went = [path for path in before if path not in now]
        altered = [path for path, item in now.items() if path in before and before[path] != item]
        return Step(came, went, altered)

    def _put(self, path: str, item: Item) -> None:
        before = self.live.pop(path, None)
        if before is not None:
            self.size_bytes -= item_bytes(path, before.value)
        elif self.gone.pop(path, None) is not None:
            self.size_bytes -= item_bytes(path, None)
        self.live[path] = item
        self.size_bytes += item_bytes(path, item.value)

    def _withdraw(self, path: str, version: int) -> None:
        before = self.live.pop(path, None)
        if before is not None:
            self.size_bytes -= item_bytes(path, before.value)
        elif self.gone.pop(path, None) is not None:
            self.size_bytes -= item_bytes(path, None)
        self.gone[path] = version
        self.size_bytes += item_bytes(path, None)

    def _cost_with(self, staged: _Staged, limits: TreeLimits) -> int | None:
        """What this branch costs once so much is staged, or is laid over it if that is all; None: over a limit."""
        if len(staged.changes) > limits.max_staged_changes or staged.size_bytes > limits.max_staged_bytes:
            return None
        if staged.reach < staged.target:  # A cut is no state of the owner: how much it has is not to be judged there.
            return self.size_bytes + staged.size_bytes
        keys, size_bytes = self._sizes_after(staged)
        if keys > limits.max_branch_keys or size_bytes > limits.max_branch_bytes:
            return None
        other = self._staged
        stays = other is not None and other is not staged and other.target > staged.target
        return size_bytes + self.staged_bytes if stays else size_bytes

    def _sizes_after(self, staged: _Staged) -> tuple[int, int]:
        """How many keys and bytes the branch has after `_commit`."""
        floor = staged.floor if staged.floor > self.floor else 0  # Else nothing is collected.
        changes: Iterable[Change] = staged.changes.values()
        keys, size_bytes = 0, 0
        if not staged.reset:
            changes = [change for change in changes if change.version > self.version]
            keys = len(self.live) - sum(change.path in self.live for change in changes)
            size_bytes = self.size_bytes - sum(self._bytes_at(change.path) for change in changes)
            told = {change.path for change in changes} if floor else ()
            for path, version in self.gone.items():
                if version > floor:
                    break
                if path not in told:
                    size_bytes -= item_bytes(path, None)
        for version, path, value in changes:
            keys += value is not None
            if value is not None or version > floor:
                size_bytes += item_bytes(path, value)
        return keys, size_bytes

    def _assert_sound(self) -> None:
        """Hold what can be told in a few steps of what the head of this module promises; tests count all of it."""
        assert self.floor <= self.version, (self.floor, self.version)
        newest = next(reversed(self.live.values()), None)
        assert newest is None or newest.version <= self.version, (newest, self.version)
        assert next(reversed(self.gone.values()), 0) <= self.version, self.version
        assert self.wire_bytes >= 0, self.size_bytes
        assert bool(self.size_bytes) == bool(self.live or self.gone), self.size_bytes
        assert self._staged is None or self._staged.target > self.version, self.version

    def _bytes_at(self, path: str) -> int:
        item = self.live.get(path)
        if item is not None:
            return item_bytes(path, item.value)
        return item_bytes(path, None) if path in self.gone else 0


def chunks(owner: bytes, branch: Branch, since: int, most_bytes: int, *, goes_on: bool = False) -> Iterator[bytes]:
    """What is after version `since`, as DELTA parts of at most `most_bytes`; a change that alone is larger has its own.

    `goes_on`: a reset begins at `since` too, where a former answer may have ended, or there would be no end.
    """
    version, floor = branch.version, branch.floor
    if since >= version:
        return
    reset = since < floor
    if reset and not goes_on:
        since = 0
    taken: list[Change] = []
    size = HEAD_BYTES
    for change in branch.changes(since):
        more = _bytes_of(change)
        if taken and size + more > most_bytes:
            reach = taken[-1].version
            yield messages.delta(Delta(owner, branch.epoch, floor, since, reach, version, reset, tuple(taken)))
            since, taken, size = reach, [], HEAD_BYTES
        taken.append(change)
        size += more
    yield messages.delta(Delta(owner, branch.epoch, floor, since, version, version, reset, tuple(taken)))


def least_bytes(branch: Branch, since: int) -> int:
    """How much goes at least over the wire, if that can be told without looking at each change."""
    return branch.wire_bytes if since < max(1, branch.floor) else 0


def _bytes_of(change: Change) -> int:
    path = change.path
    size = CHANGE_BYTES + (len(path) if path.isascii() else len(path.encode()))
    return size if change.value is None else size + len(change.value)
