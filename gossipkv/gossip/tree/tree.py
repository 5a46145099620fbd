"""All branches, and the readers' view of them.

A branch is visible while its owner is ALIVE in that very epoch. The branch disappears in one step when the owner is
suspected, dead, has left or has restarted, and reappears in one step when the owner refutes. Keys of an older epoch are
never shown again.

The total size is bounded by the number of remembered members and the limit of a branch (`limits.py`), so no owner's
keys take room from another's.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple, final

from gossipkv.errors import TooLarge
from gossipkv.gossip.member import GONE, MemberState
from gossipkv.gossip.membership.rumours import Rumours
from gossipkv.gossip.packets import messages
from gossipkv.gossip.packets.messages import BranchHead, Delta
from gossipkv.gossip.tree.branch import Branch, DeltaOutcome, TombstoneGc, chunks, least_bytes
from gossipkv.gossip.tree.limits import TreeLimits, check_path, item_bytes, wrong_path
from gossipkv.gossip.tree.watch import TreeWatch, Watches

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from gossipkv.gossip.member import Member
    from gossipkv.gossip.membership.members import MemberTable


# More changes are a burst, which the first nodes that ask get in fewer bytes than all get as rumours.
MAX_CHANGES = 16
MAX_VERSIONS = 64  # A longer step is told by a HEAD without counting its changes.
MAX_BYTES = 600  # The tree's share of a packet: one owner's changes fit beside a full share of membership.


@final
class Hot:
    """The rumours of the tree.

    A rumour is a delta over the last few changes, so a node that missed one packet takes the next without a gap. If the
    changes exceed the share of a packet, the rumour is a HEAD: the position of the branch, so that others ask.
    """

    __slots__ = ("_since", "rumours")

    def __init__(self) -> None:
        self.rumours = Rumours()
        self._since: dict[bytes, int] = {}

    def step(self, owner: bytes, branch: Branch, before: int) -> None:
        """Spread that a branch advanced from version `before`."""
        since = min(before, self._since[owner]) if owner in self.rumours else before
        self._since[owner] = since
        self.rumours.add(owner, _part(owner, branch, since))

    def head(self, owner: bytes, branch: Branch) -> None:
        """Spread only the position of a branch, unless changes are being spread."""
        if owner not in self.rumours:
            self._since[owner] = branch.version
            self.rumours.add(owner, messages.head(BranchHead(owner, branch.epoch, branch.version)))

    def forget(self, owner: bytes) -> None:
        """Stop spreading changes of an owner."""
        self.rumours.remove(owner)
        self._since.pop(owner, None)


def _part(owner: bytes, branch: Branch, since: int) -> bytes:
    version = branch.version
    if since >= branch.floor and version - since <= MAX_VERSIONS:
        changes = branch.changes(since)
        size = sum(len(change.path) + len(change.value or b"") for change in changes)
        # Checked before encoding, since a part has a bounded size.
        if len(changes) <= MAX_CHANGES and size <= MAX_BYTES:
            delta = Delta(
                owner, branch.epoch, branch.floor, since, version, version, reset=False, changes=tuple(changes)
            )
            part = messages.delta(delta)
            if len(part) <= MAX_BYTES:
                return part
    return messages.head(BranchHead(owner, branch.epoch, version))


BEHIND: Final = "0"  # The character after "/": paths below a name sort before it.


@final
class Index:
    """Paths and their owners.

    Each owner has a sorted list of its paths, which costs a word a key whatever the path. (In a tree of segments, a
    malicious key of sixteen segments costs fifteen times its counted size.) Paths below a path are adjacent. Bisection
    skips deeper levels, so a list of children takes a step for each name of each owner.
    """

    __slots__ = ("_paths",)

    def __init__(self) -> None:
        self._paths: dict[bytes, list[str]] = {}

    def add(self, owner: bytes, paths: Iterable[str]) -> None:
        """Add keys of an owner."""
        mine = self._paths.setdefault(owner, [])
        for path in paths:
            insort(mine, path)

    def remove(self, owner: bytes, paths: Iterable[str]) -> None:
        """Remove keys of an owner."""
        mine = self._paths.get(owner, [])
        for path in paths:
            place = bisect_left(mine, path)
            assert mine[place : place + 1] == [path], (mine[place : place + 1], path)
            del mine[place]
        if not mine:
            self._paths.pop(owner, None)

    def names(self, path: str) -> set[str]:
        """Return the names directly below a path."""
        return {name for name, _, _ in self._below(path)}

    def leaves(self, path: str) -> list[tuple[str, bytes]]:
        """Return the names of the keys directly below a path, with their owners."""
        return [(name, owner) for name, owner, is_key in self._below(path) if is_key]

    def _below(self, path: str) -> Iterator[tuple[str, bytes, bool]]:
        """Yield each name directly below, its owner, and True for a key; a key with keys below it comes twice."""
        prefix = f"{path}/" if path else ""
        begin = len(prefix)
        for owner, mine in self._paths.items():
            place = bisect_left(mine, prefix)
            end = bisect_left(mine, path + BEHIND, place) if path else len(mine)
            while place < end:
                name, slash, _ = mine[place][begin:].partition("/")
                yield name, owner, not slash
                place = bisect_left(mine, prefix + name + BEHIND, place, end) if slash else place + 1


class TreeEntry(NamedTuple):
    """One key under a path, of one owner."""

    name: str
    owner: str
    value: bytes
    version: int
    age_ms: int  # Time since the owner was last heard: the age of this knowledge.
    state: MemberState


@final
class GossipTree:
    """The keys that this node and all others published."""

    def __init__(self, members: MemberTable, limits: TreeLimits | None = None) -> None:
        """`members`: its own member is this node, and it knows when an owner was last heard."""
        self.own = own = members.own.id
        self.limits = limits or TreeLimits()
        self.counters: Counter[str] = Counter()
        self.moved: set[bytes] = set()  # Owners of branches that advanced since `take_moved`.
        self._table = members
        self._branches: dict[bytes, Branch] = {own: Branch(members.own.epoch)}
        self._members: dict[bytes, Member] = {}
        self._shown = {own}
        self._index = Index()
        self._watches = Watches()
        self._hot = Hot()
        self._tombstone_gc = TombstoneGc()

    @property
    def size_bytes(self) -> int:
        """Cost of all branches."""
        return sum(branch.size_bytes for branch in self._branches.values())

    @property
    def own_name(self) -> str:
        """Name of this node."""
        return self._name(self.own)

    # Methods for the node

    def publish(self, path: str, value: bytes = b"") -> None:
        """Publish a key under this node's name; the same value again changes nothing.

        Raises:
            BadRequest: the path is invalid.
            TooLarge: a limit of this node is exceeded; nothing has changed.
        """
        check_path(path)
        self._within("max_entry", len(path.encode()) + len(value), self.limits.max_entry_bytes)
        self._put(path, value, self.limits.max_branch_bytes)

    def mark(self, path: str) -> None:
        """Publish a key of gossip itself, without a value; it may exceed this node's own limit of a branch.

        Raises:
            TooLarge: the protocol's limit is exceeded; nothing has changed.
        """
        self._put(path, b"", self.limits.protocol_branch_bytes)

    def _put(self, path: str, value: bytes, most_bytes: int) -> None:
        branch = self._branches[self.own]
        before = branch.live.get(path)
        if before is not None and before.value == value:
            return
        more_bytes = item_bytes(path, value) - (0 if before is None else item_bytes(path, before.value))
        self._within("max_branch", branch.live_bytes + more_bytes, most_bytes)
        branch.put(path, value)
        branch.fit(self.limits.protocol_branch_bytes)
        if before is None and self.own in self._shown:
            self._index.add(self.own, (path,))
        self._own_step(branch, path)

    def withdraw(self, path: str) -> bool:
        """Withdraw a key; return False if there was none."""
        branch = self._branches[self.own]
        if path not in branch.live:
            return False
        branch.withdraw(path)
        if self.own in self._shown:
            self._index.remove(self.own, (path,))
        self._own_step(branch, path)
        return True

    def published(self) -> dict[str, bytes]:
        """Return the keys that this node publishes."""
        return {path: item.value for path, item in self._branches[self.own].live.items()}

    def children(self, path: str, *, all: bool = False) -> list[str]:  # noqa: A002  # The name in the interface.
        """Return the sorted names directly below a path that live owners publish; with `all`, of any owner."""
        names = self._index.names(check_path(path, root=True))
        if not all:
            return sorted(names)
        return sorted({*names, *(below.partition("/")[0] for below, _ in self._hidden_below(path))})

    def entries(self, path: str, *, now_ms: int, all: bool = False) -> list[TreeEntry]:  # noqa: A002  # See `children`.
        """Return the keys directly below a path with their owners; `all` includes suspect, dead and left owners."""
        found = (self.entry(path, name, owner, now_ms=now_ms) for name, owner in self.keys(path, everything=all))
        return [entry for entry in found if entry is not None]

    def keys(self, path: str, *, everything: bool = False) -> list[tuple[str, bytes]]:
        """Return the keys directly below a path, each with one owner, in order, as arguments for `entry`."""
        check_path(path, root=True)
        found = self._index.leaves(path)
        if everything:
            found += [(below, owner) for below, owner in self._hidden_below(path) if "/" not in below]
        names = {owner: self._name(owner) for _, owner in found}
        return sorted(found, key=lambda key: (key[0], names[key[1]]))

    def entry(self, path: str, name: str, owner: bytes, *, now_ms: int) -> TreeEntry | None:
        """Return an owner's key below a path; None if it is gone."""
        branch, member = self._branches.get(owner), self._members.get(owner)
        item = None if branch is None else branch.live.get(f"{path}/{name}" if path else name)
        if item is None:
            return None
        peer = self._table.peers.get(owner)
        age_ms = 0 if peer is None else max(0, now_ms - peer.heard_ms)
        state = MemberState.ALIVE if member is None else member.state
        return TreeEntry(name, self._name(owner), item.value, item.version, age_ms, state)

    def watch(self, path: str, wake: Callable[[], None] | None = None) -> TreeWatch:
        """Return a watcher of all changes at and below a path."""
        watch = TreeWatch(check_path(path, root=True), wake)
        self._watches.add(watch)
        return watch

    # Calls by membership

    def on_member(self, member: Member) -> None:
        """Process a new or changed record of a member, or of this node."""
        id_ = member.id
        before = self._members.get(id_)
        self._members[id_] = member
        branch = self._branches.get(id_)
        if branch is None:
            self._branches[id_] = Branch(member.epoch)
        elif branch.epoch < member.epoch:
            if id_ == self.own:
                self._renew(member.epoch)
            else:
                self._replace(id_, member.epoch)
        if member.state in GONE:
            self._tombstone_gc.without(id_, self._branches[self.own])
            self._hot.forget(id_)
        moved = self._show(id_)
        if moved or before is None or before.state is not member.state:
            self._watches.step(self._branches[id_].live)

    def forget(self, id_: bytes) -> None:
        """Drop the branch of a forgotten member."""
        branch = self._branches.get(id_)
        if branch is None or id_ == self.own:
            return
        live = branch.live
        self._hide(id_)
        del self._branches[id_]
        self._members.pop(id_, None)
        self._tombstone_gc.without(id_, self._branches[self.own])
        self._hot.forget(id_)
        self._watches.step(live)

    # Exchange with peers

    def take_moved(self) -> set[bytes]:
        """Return the owners of branches that advanced since the last call."""
        moved, self.moved = self.moved, set()
        return moved

    @property
    def rumours(self) -> Rumours:
        """Rumours about branches."""
        return self._hot.rumours

    def head(self, owner: bytes) -> BranchHead:
        """Return the local position of a branch."""
        branch = self._branches.get(owner)
        return BranchHead(owner, 0, 0) if branch is None else BranchHead(owner, branch.epoch, branch.version)

    def deltas(self, owner: bytes, epoch: int, version: int, *, part_bytes: int) -> Iterator[bytes]:
        """Return the changes after this position, as parts of one message."""
        branch = self._branches.get(owner)
        if branch is None or branch.epoch < epoch:
            return iter(())
        return chunks(owner, branch, version if epoch == branch.epoch else 0, part_bytes)

    def is_large(self, owner: bytes, epoch: int, version: int, most_bytes: int) -> bool:
        """Return True if the changes after this position are known to take more than `most_bytes`."""
        branch = self._branches[owner]
        return least_bytes(branch, version if epoch == branch.epoch else 0) > most_bytes

    def apply(self, delta: Delta, *, fresh: bool = True) -> DeltaOutcome:
        """Apply changes of a branch from another node; spread them as they are if they are news (`fresh`)."""
        outcome, before = self._apply(delta)
        owner = delta.owner
        if outcome is DeltaOutcome.ADVANCED:
            if fresh and not self._is_gone(owner):
                self._hot.step(owner, self._branches[owner], before)
            # A branch that starts here is no news: either this node is new, or the new owner spreads it itself.
            elif before:
                self.tell_head(owner)
            self.moved.add(owner)
        elif outcome is DeltaOutcome.REFUSED:
            self.counters["branch_refused"] += 1
        return outcome

    def tell_head(self, owner: bytes) -> None:
        """Spread the position of a branch, so that members ask for missing changes."""
        branch = self._branches.get(owner)
        if branch is not None and not self._is_gone(owner):
            self._hot.head(owner, branch)

    # Tombstones of this node

    @property
    def has_tombstones(self) -> bool:
        """True if this node's branch has tombstones; then a peer with an equal state hash acknowledges them."""
        return bool(self._branches[self.own].gone)

    def acknowledged(self, id_: bytes) -> None:
        """Note that a member has all of this node's branch."""
        live = (other for other in self._members if not self._is_gone(other) and other != self.own)
        self._tombstone_gc.acknowledged(id_, self._branches[self.own], live)

    # Inside

    def _apply(self, delta: Delta) -> tuple[DeltaOutcome, int]:
        owner, member = delta.owner, self._members.get(delta.owner)
        if owner == self.own:
            return DeltaOutcome.NOTHING, 0  # This node alone writes its branch.
        if member is None or member.epoch < delta.epoch:
            return DeltaOutcome.GAP, 0  # The owner's record is on its way or was lost; it alone starts an epoch.
        branch = self._branches[owner]
        if delta.epoch < branch.epoch:
            return DeltaOutcome.NOTHING, 0
        if any(wrong_path(path) is not None for _, path, _ in delta.changes):
            return DeltaOutcome.REFUSED, 0
        before = branch.version
        outcome, step = branch.apply(delta, self.limits.protocol_branch_bytes)
        if step is not None:
            if owner in self._shown:
                self._index.remove(owner, step.removed)
                self._index.add(owner, step.added)
            self._watches.step(step.removed + step.added + step.altered)
        assert branch.version >= before, (branch.version, before)
        assert branch.size_bytes <= self.limits.protocol_branch_bytes, branch.size_bytes
        assert len(self.rumours) <= len(self._branches), len(self.rumours)  # Each branch has at most one rumour.
        return outcome, before

    def _own_step(self, branch: Branch, path: str) -> None:
        self._hot.step(self.own, branch, branch.version - 1)
        self._watches.step((path,))
        self.moved.add(self.own)

    def _replace(self, owner: bytes, epoch: int) -> None:
        """Replace a branch by one of a newer epoch: older keys disappear at once."""
        self._hide(owner)
        before = self._branches[owner]
        self._hot.forget(owner)
        self._branches[owner] = Branch(epoch)
        self._watches.step(before.live)

    def _renew(self, epoch: int) -> None:
        """Move this node's keys to a new epoch."""
        before = self._branches[self.own]
        branch = self._branches[self.own] = Branch(epoch)
        for path, item in before.live.items():
            branch.put(path, item.value)
        self._tombstone_gc.forget()
        self._hot.forget(self.own)
        self._hot.step(self.own, branch, 0)
        self.moved.add(self.own)

    def _show(self, owner: bytes) -> bool:
        """Show or hide a branch by its owner's state; return True if that changed anything."""
        member, branch = self._members[owner], self._branches[owner]
        alive = member.state is MemberState.ALIVE
        if owner == self.own:
            alive = member.state is not MemberState.LEFT
        if alive == (owner in self._shown):
            return False
        if alive:
            self._shown.add(owner)
            self._index.add(owner, branch.live)
        else:
            self._hide(owner)
        return True

    def _hide(self, owner: bytes) -> None:
        if owner in self._shown:
            self._shown.remove(owner)
            self._index.remove(owner, self._branches[owner].live)

    def _is_gone(self, owner: bytes) -> bool:
        return owner in self._members and self._members[owner].state in GONE

    def _within(self, limit: str, size: int, most: int) -> None:
        if size > most:
            raise TooLarge(f"the tree has no room: {size} bytes, {limit} is {most}", {limit: most, "size": size})

    def _hidden_below(self, path: str) -> Iterable[tuple[str, bytes]]:
        """Yield the path relative to `path` of each hidden key below, and its owner."""
        prefix = f"{path}/" if path else ""
        for owner, branch in self._branches.items():
            member = self._members.get(owner)
            if owner in self._shown or member is None:
                continue
            for key in branch.live:
                if key.startswith(prefix):
                    yield key[len(prefix) :], owner

    def _name(self, owner: bytes) -> str:
        member = self._members.get(owner)
        return "" if member is None else member.name
