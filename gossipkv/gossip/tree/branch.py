"""One branch: the keys that one owner published in one epoch, as far as this node has them.

The owner alone writes, and gives each change the next *version*. A withdrawn key is a *tombstone* until the owner
raises the *floor* to its version. A delta leads from any state between a version `since` and its target to the state at
its target, in one step; a *reset* carries all keys. Half a delta leads to no state of the owner (k@5, m@6, k@7, cut
after 6: m without any k), so a delta is one part, or pieces in one message (`joined`), and a branch always fits one.

Withdrawn keys never return: a delta lacks the tombstones up to its floor, and is applied only if `floor <= since`. So
the state here has been told of every version up to `since`.

Every node enforces the same size limit of a branch, its keys and tombstones as `item_bytes` counts them. The owner
drops its oldest tombstones first; a delta beyond the limit is refused as a whole.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Final, NamedTuple, final

from gossipkv.gossip.packets import messages
from gossipkv.gossip.packets.messages import BranchChange, Delta
from gossipkv.gossip.tree.limits import ITEM_OVERHEAD_BYTES, item_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

HEAD_BYTES: Final = 64  # Bounds the head of a DELTA: a part's head, an id, flags, five numbers.
CHANGE_BYTES: Final = 15  # Bounds a change without its path and value: a version, a kind, two lengths.


class DeltaOutcome(enum.Enum):
    """Outcome of applying a delta."""

    NOTHING = "nothing"  # The delta is known already, or of a past epoch.
    ADVANCED = "advanced"
    GAP = "gap"  # Earlier changes, or the rest of the delta, are missing: ask for them.
    REFUSED = "refused"  # A path is invalid, or the branch would exceed its limit.


class BranchItem(NamedTuple):
    """A key's value, and the version that set it."""

    version: int
    value: bytes


class BranchStep(NamedTuple):
    """Changes of a step forward that readers see."""

    added: list[str]
    removed: list[str]
    altered: list[str]


@final
class Branch:
    """One owner's keys of one epoch.

    Invariants after each step: the floor is not above the version, which never falls; `live` and `gone` share no path
    and are ordered by version, at most the branch's own; `live_bytes` and `gone_bytes` are the costs of their items.
    """

    __slots__ = ("epoch", "floor", "gone", "gone_bytes", "live", "live_bytes", "version")

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.version = 0
        self.floor = 0  # Tombstones up to this version are dropped.
        self.live: dict[str, BranchItem] = {}  # The keys are ordered by version.
        self.gone: dict[str, int] = {}  # Versions of the tombstones, in their order.
        self.live_bytes = self.gone_bytes = 0

    @property
    def size_bytes(self) -> int:
        """Cost of all keys and tombstones."""
        return self.live_bytes + self.gone_bytes

    # Methods of the owner

    def put(self, path: str, value: bytes) -> None:
        """Set a key under the next version."""
        self.version += 1
        self._put(path, BranchItem(self.version, value))
        self._assert_sound()

    def withdraw(self, path: str) -> None:
        """Turn a key into a tombstone, which costs no more."""
        self.version += 1
        self._withdraw(path, self.version)
        self._assert_sound()

    def fit(self, most_bytes: int) -> None:
        """Drop the oldest tombstones until the whole costs no more than `most_bytes`."""
        floor, size_bytes = 0, self.size_bytes
        for path, version in self.gone.items():
            if size_bytes <= most_bytes:
                break
            floor = version
            size_bytes -= item_bytes(path, None)
        self.collect(floor)
        assert self.size_bytes == size_bytes <= most_bytes, (self.size_bytes, size_bytes, most_bytes)

    # Methods of readers

    def apply(self, delta: Delta, most_bytes: int) -> tuple[DeltaOutcome, BranchStep | None]:
        """Apply changes of this epoch; return a step if readers see another state now.

        `most_bytes`: the limit of a branch, the same for every reader.
        """
        if delta.target <= self.version:
            return DeltaOutcome.NOTHING, None
        if delta.reach < delta.target or delta.since > (0 if delta.reset else self.version):
            return DeltaOutcome.GAP, None
        if not delta.reset:
            assert delta.floor <= delta.since, delta
            self.collect(delta.floor)  # The owner has dropped these, whatever the outcome.
        changes = self._new_in(delta)
        size_bytes = sum(item_bytes(path, value) for _, path, value in changes)
        if not delta.reset:
            size_bytes += self.size_bytes - sum(self._bytes_at(change.path) for change in changes)
        if size_bytes > most_bytes:
            return DeltaOutcome.REFUSED, None
        step = self._swap(changes) if delta.reset else self._overlay(changes)
        self.version = delta.target
        self.collect(delta.floor)
        assert self.size_bytes == size_bytes, (self.size_bytes, size_bytes)  # The size was checked before applying.
        self._assert_sound()
        return DeltaOutcome.ADVANCED, step

    # Methods of both

    def changes(self, since: int) -> list[BranchChange]:
        """Return the changes after a version that is not below the floor, or all of them after 0."""
        found: list[BranchChange] = []
        for path in reversed(self.live):
            version, value = self.live[path]
            if version <= since:
                break
            found.append(BranchChange(version, path, value))
        for path in reversed(self.gone):
            version = self.gone[path]
            if version <= since:
                break
            found.append(BranchChange(version, path, None))
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
            self._drop(path)
        assert next(iter(self.gone.values()), floor + 1) > floor, floor

    def _overlay(self, changes: Iterable[BranchChange]) -> BranchStep:
        step = BranchStep([], [], [])
        for version, path, value in changes:
            here = path in self.live
            if value is not None:
                (step.altered if here else step.added).append(path)
                self._put(path, BranchItem(version, value))
            else:
                if here:
                    step.removed.append(path)
                self._withdraw(path, version)
        return step

    def _swap(self, changes: Iterable[BranchChange]) -> BranchStep:
        before = self.live
        self.live, self.gone = {}, {}
        self.live_bytes = self.gone_bytes = 0
        for version, path, value in changes:
            if value is not None:
                self._put(path, BranchItem(version, value))
            else:
                self._withdraw(path, version)
        now = self.live
        added = [path for path in now if path not in before]
        removed = [path for path in before if path not in now]
        altered = [path for path, item in now.items() if path in before and before[path] != item]
        return BranchStep(added, removed, altered)

    def _put(self, path: str, item: BranchItem) -> None:
        self._drop(path)
        self.live[path] = item
        self.live_bytes += item_bytes(path, item.value)

    def _withdraw(self, path: str, version: int) -> None:
        self._drop(path)
        self.gone[path] = version
        self.gone_bytes += item_bytes(path, None)

    def _drop(self, path: str) -> None:
        before = self.live.pop(path, None)
        if before is not None:
            self.live_bytes -= item_bytes(path, before.value)
        elif self.gone.pop(path, None) is not None:
            self.gone_bytes -= item_bytes(path, None)

    def _new_in(self, delta: Delta) -> list[BranchChange]:
        """Return the last new change of each path in a delta, without tombstones that are not kept."""
        since, floor = 0 if delta.reset else self.version, max(self.floor, delta.floor)
        newest = {change.path: change for change in delta.changes if change.version > since}
        return sorted(change for change in newest.values() if change.value is not None or change.version > floor)

    def _assert_sound(self) -> None:
        """Check the invariants that take few steps; tests check all of them."""
        assert self.floor <= self.version, (self.floor, self.version)
        newest = next(reversed(self.live.values()), None)
        assert newest is None or newest.version <= self.version, (newest, self.version)
        assert next(reversed(self.gone.values()), 0) <= self.version, self.version
        assert self.live_bytes >= ITEM_OVERHEAD_BYTES * len(self.live), (self.live_bytes, len(self.live))
        assert self.gone_bytes >= ITEM_OVERHEAD_BYTES * len(self.gone), (self.gone_bytes, len(self.gone))
        assert bool(self.size_bytes) == bool(self.live or self.gone), self.size_bytes

    def _bytes_at(self, path: str) -> int:
        item = self.live.get(path)
        if item is not None:
            return item_bytes(path, item.value)
        return item_bytes(path, None) if path in self.gone else 0


def chunks(owner: bytes, branch: Branch, since: int, most_bytes: int) -> Iterator[bytes]:
    """Yield the changes after version `since`, as DELTA parts of at most `most_bytes`.

    A larger change has a part of its own. The parts belong into one message, in order.
    """
    version, floor = branch.version, branch.floor
    if since >= version:
        return
    reset = since < floor
    if reset:
        since = 0
    pending: list[BranchChange] = []
    size = HEAD_BYTES
    for change in branch.changes(since):
        more = _bytes_of(change)
        if pending and size + more > most_bytes:
            reach = pending[-1].version
            yield messages.delta(Delta(owner, branch.epoch, floor, since, reach, version, reset, tuple(pending)))
            since, pending, size = reach, [], HEAD_BYTES
        pending.append(change)
        size += more
    yield messages.delta(Delta(owner, branch.epoch, floor, since, version, version, reset, tuple(pending)))


def joined(deltas: Iterable[Delta]) -> Iterator[Delta]:
    """Yield the deltas of one message, with consecutive pieces of a delta joined."""
    pieces: list[Delta] = []
    for delta in deltas:
        if pieces and not _goes_on(pieces[-1], delta):
            yield _whole(pieces)
            pieces = []
        pieces.append(delta)
    if pieces:
        yield _whole(pieces)


def least_bytes(branch: Branch, since: int) -> int:
    """Return a lower bound of the bytes on the wire, without looking at each change; 0 if there is none."""
    if since >= max(1, branch.floor):
        return 0
    return branch.size_bytes - ITEM_OVERHEAD_BYTES * (len(branch.live) + len(branch.gone))


def _goes_on(piece: Delta, delta: Delta) -> bool:
    next_ = piece._replace(since=piece.reach, reach=delta.reach, changes=delta.changes)
    return piece.reach < piece.target and delta == next_


def _whole(pieces: list[Delta]) -> Delta:
    changes = tuple(change for piece in pieces for change in piece.changes)
    return pieces[0]._replace(reach=pieces[-1].reach, changes=changes)


def _bytes_of(change: BranchChange) -> int:
    path = change.path
    size = CHANGE_BYTES + (len(path) if path.isascii() else len(path.encode()))
    return size if change.value is None else size + len(change.value)


@final
class TombstoneGc:
    """Garbage collection of tombstones, by acknowledgements of members that have the branch up to `_goal`.

    Only the size of the branch depends on it: a member that missed a dropped tombstone gets the whole branch.
    """

    __slots__ = ("_goal", "_waits_for")

    def __init__(self) -> None:
        self._goal = 0
        self._waits_for: set[bytes] = set()

    def acknowledged(self, id_: bytes, branch: Branch, live: Iterable[bytes]) -> None:
        """Note that a member has the whole branch; `live`: the members that should get it."""
        if not branch.gone:
            return
        if not self._waits_for:
            self._goal = branch.version
            self._waits_for = set(live)  # Later members get the branch as it is then.
        self.without(id_, branch)

    def without(self, id_: bytes, branch: Branch) -> None:
        """Stop waiting for a member, which has the branch or is gone."""
        if id_ in self._waits_for:
            self._waits_for.discard(id_)
            if not self._waits_for:
                assert self._goal <= branch.version, (self._goal, branch.version)
                branch.collect(self._goal)

    def forget(self) -> None:
        """Stop waiting, since the branch starts anew."""
        self._waits_for.clear()
