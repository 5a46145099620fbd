"""All branches, and what readers see of them.

A branch is shown while its owner is ALIVE in that very epoch; it goes in one step when the owner is suspected, found
dead, left, or was started anew, and comes back in one step when the owner refutes.  What an owner published under an
older epoch is never shown again.

How much all of it may take follows from how many members are remembered and what a branch may take (`limits.py`): no
owner's keys ever stand in the way of another's.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple, final

from gossipkv.errors import TooLarge
from gossipkv.gossip.member import GONE, State
from gossipkv.gossip.membership.rumours import Rumours
from gossipkv.gossip.packets import messages
from gossipkv.gossip.packets.messages import Delta, Head
from gossipkv.gossip.tree.branch import Branch, DeltaOutcome, TombstoneGc, chunks, least_bytes
from gossipkv.gossip.tree.limits import TreeLimits, check_path, item_bytes, wrong_path
from gossipkv.gossip.tree.watch import Watch, Watches

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from gossipkv.gossip.member import Member
    from gossipkv.gossip.membership.members import Members


MOST_CHANGES = 16  # More are a burst: the first who asks gets them in fewer bytes than all get rumours.
MOST_VERSIONS = 64  # Beyond it nobody looks how many of them are still there.
MOST_BYTES = 600  # The tree's share of a packet, so that one owner's changes fit beside a full share of membership.


@final
class Hot:
    """The rumours of the tree.

    The part is a delta over the last few changes, so that who missed one packet takes the next without a gap.  When
    there is more than a packet should carry, it is a HEAD: where the branch is, for others to ask.
    """

    __slots__ = ("_since", "rumours")

    def __init__(self) -> None:
        self.rumours = Rumours()
        self._since: dict[bytes, int] = {}

    def step(self, owner: bytes, branch: Branch, before: int) -> None:
        """Tell that a branch went on from version `before`."""
        since = min(before, self._since[owner]) if owner in self.rumours else before
        self._since[owner] = since
        self.rumours.add(owner, _part(owner, branch, since))

    def head(self, owner: bytes, branch: Branch) -> None:
        """Tell only where a branch is, unless more is being told."""
        if owner not in self.rumours:
            self._since[owner] = branch.version
            self.rumours.add(owner, messages.head(Head(owner, branch.epoch, branch.version)))

    def forget(self, owner: bytes) -> None:
        """Tell no more of an owner's."""
        self.rumours.remove(owner)
        self._since.pop(owner, None)


def _part(owner: bytes, branch: Branch, since: int) -> bytes:
    version = branch.version
    if since >= branch.floor and version - since <= MOST_VERSIONS:
        changes = branch.changes(since)
        size = sum(len(change.path) + len(change.value or b"") for change in changes)
        if len(changes) <= MOST_CHANGES and size <= MOST_BYTES:  # Before it is made: a part has not room for any size.
            delta = Delta(
                owner, branch.epoch, branch.floor, since, version, version, reset=False, changes=tuple(changes)
            )
            part = messages.delta(delta)
            if len(part) <= MOST_BYTES:
                return part
    return messages.head(Head(owner, branch.epoch, version))


BEHIND: Final = "0"  # The character after "/": what is below a name stands before that.


@final
class Index:
    """Paths and their owners.

    For each owner its paths in order: a word a key, whatever a path looks like.  (A tree of segments costs a liar's key
    of sixteen of them fifteen times of what it is counted with.)  What stands below a path stands together, and what is
    deeper than its children is stepped over by bisection: a list of children costs a step for each name at each owner.
    """

    __slots__ = ("_paths",)

    def __init__(self) -> None:
        self._paths: dict[bytes, list[str]] = {}

    def add(self, owner: bytes, paths: Iterable[str]) -> None:
        """An owner has these keys now."""
        mine = self._paths.setdefault(owner, [])
        for path in paths:
            insort(mine, path)

    def remove(self, owner: bytes, paths: Iterable[str]) -> None:
        """An owner has these keys no more."""
        mine = self._paths.get(owner, [])
        for path in paths:
            place = bisect_left(mine, path)
            assert mine[place : place + 1] == [path], (mine[place : place + 1], path)
            del mine[place]
        if not mine:
            self._paths.pop(owner, None)

    def names(self, path: str) -> set[str]:
        """The names directly below."""
        return {name for name, _, _ in self._below(path)}

    def leaves(self, path: str) -> list[tuple[str, bytes]]:
        """The names of the keys directly below and who has them."""
        return [(name, owner) for name, owner, is_key in self._below(path) if is_key]

    def _below(self, path: str) -> Iterator[tuple[str, bytes, bool]]:
        """Each name directly below, whose it is, and whether it is a key; a key with keys below it comes twice."""
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
    age_ms: int  # Since the owner was last heard: how old this knowledge is.
    state: State


@final
class Tree:
    """What this node and all others published."""

    def __init__(self, members: Members, limits: TreeLimits | None = None) -> None:
        """`members`: whose own member is this node, and who knows when an owner was last heard."""
        self.own = own = members.own.id
        self.limits = limits or TreeLimits()
        self.counters: Counter[str] = Counter()
        self.moved: set[bytes] = set()  # Owners of branches that moved since `take_moved`.
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
        """What all branches cost."""
        return sum(branch.size_bytes for branch in self._branches.values())

    @property
    def own_name(self) -> str:
        """This node's."""
        return self._name(self.own)

    # For the node

    def publish(self, path: str, value: bytes = b"") -> None:
        """Show a key under this node's name; the same value again changes nothing.

        Raises:
            BadRequest: no path.
            TooLarge: over a limit of this node; nothing has changed.
        """
        check_path(path)
        self._within("max_entry", len(path.encode()) + len(value), self.limits.max_entry_bytes)
        self._put(path, value, self.limits.max_branch_bytes)

    def mark(self, path: str) -> None:
        """Show a key of gossip's own, without a value: also beside a branch that is as full as this node lets it be.

        Raises:
            TooLarge: no branch may take more; nothing has changed.
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
        """Take a key back; false: there was none."""
        branch = self._branches[self.own]
        if path not in branch.live:
            return False
        branch.withdraw(path)
        if self.own in self._shown:
            self._index.remove(self.own, (path,))
        self._own_step(branch, path)
        return True

    def published(self) -> dict[str, bytes]:
        """What this node shows."""
        return {path: item.value for path, item in self._branches[self.own].live.items()}

    def children(self, path: str, *, all: bool = False) -> list[str]:  # noqa: A002  The interface's word.
        """The names directly below a path that live owners publish, sorted, each once; `all`: that anybody does."""
        names = self._index.names(check_path(path, root=True))
        if not all:
            return sorted(names)
        return sorted({*names, *(below.partition("/")[0] for below, _ in self._hidden_below(path))})

    def entries(self, path: str, *, now_ms: int, all: bool = False) -> list[TreeEntry]:  # noqa: A002  As above.
        """The keys directly below a path with their owners; `all`: of suspects, the dead and the left too."""
        found = (self.entry(path, name, owner, now_ms=now_ms) for name, owner in self.keys(path, everything=all))
        return [entry for entry in found if entry is not None]

    def keys(self, path: str, *, everything: bool = False) -> list[tuple[str, bytes]]:
        """The keys directly below a path, each with one owner, in order: what `entry` may be asked for in turn."""
        check_path(path, root=True)
        found = self._index.leaves(path)
        if everything:
            found += [(below, owner) for below, owner in self._hidden_below(path) if "/" not in below]
        names = {owner: self._name(owner) for _, owner in found}
        return sorted(found, key=lambda key: (key[0], names[key[1]]))

    def entry(self, path: str, name: str, owner: bytes, *, now_ms: int) -> TreeEntry | None:
        """What an owner has there, if it still has it."""
        branch, member = self._branches.get(owner), self._members.get(owner)
        item = None if branch is None else branch.live.get(f"{path}/{name}" if path else name)
        if item is None:
            return None
        peer = self._table.peers.get(owner)
        age_ms = 0 if peer is None else max(0, now_ms - peer.heard_ms)
        state = State.ALIVE if member is None else member.state
        return TreeEntry(name, self._name(owner), item.value, item.version, age_ms, state)

    def watch(self, path: str, wake: Callable[[], None] | None = None) -> Watch:
        """A watcher of all that happens at and below a path."""
        watch = Watch(check_path(path, root=True), wake)
        self._watches.add(watch)
        return watch

    # Towards membership

    def on_member(self, member: Member) -> None:
        """A member is known in another way, this node itself among them."""
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
        """A dead member is remembered no more."""
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

    # Towards peers

    def take_moved(self) -> set[bytes]:
        """Owners of the branches that moved since the last call."""
        moved, self.moved = self.moved, set()
        return moved

    @property
    def rumours(self) -> Rumours:
        """What is to be told of branches."""
        return self._hot.rumours

    def head(self, owner: bytes) -> Head:
        """Where a branch is here."""
        branch = self._branches.get(owner)
        return Head(owner, 0, 0) if branch is None else Head(owner, branch.epoch, branch.version)

    def deltas(self, owner: bytes, epoch: int, version: int, *, part_bytes: int) -> Iterator[bytes]:
        """What is newer here than that, as parts of one message."""
        branch = self._branches.get(owner)
        if branch is None or branch.epoch < epoch:
            return iter(())
        return chunks(owner, branch, version if epoch == branch.epoch else 0, part_bytes)

    def is_large(self, owner: bytes, epoch: int, version: int, most_bytes: int) -> bool:
        """Whether what is newer here than that is known to take more."""
        branch = self._branches[owner]
        return least_bytes(branch, version if epoch == branch.epoch else 0) > most_bytes

    def apply(self, delta: Delta, *, fresh: bool = True) -> DeltaOutcome:
        """Take what another node knows of a branch; `fresh`: it is news, to be told on as it is."""
        outcome, before = self._apply(delta)
        owner = delta.owner
        if outcome is DeltaOutcome.ADVANCED:
            if fresh and not self._is_gone(owner):
                self._hot.step(owner, self._branches[owner], before)
            elif before:  # A branch that begins here is no news: this node is new, or its owner is, who tells it.
                self.tell_head(owner)
            self.moved.add(owner)
        elif outcome is DeltaOutcome.REFUSED:
            self.counters["branch_refused"] += 1
        return outcome

    def tell_head(self, owner: bytes) -> None:
        """Tell others where a branch is, that they ask for what they miss."""
        branch = self._branches.get(owner)
        if branch is not None and not self._is_gone(owner):
            self._hot.head(owner, branch)

    # Tombstones of this node

    @property
    def has_tombstones(self) -> bool:
        """Whether this node's branch has any: then it is of use to say who has all of it, whose state hash is equal."""
        return bool(self._branches[self.own].gone)

    def acknowledged(self, id_: bytes) -> None:
        """A member has all of this node's branch."""
        live = (other for other in self._members if not self._is_gone(other) and other != self.own)
        self._tombstone_gc.acknowledged(id_, self._branches[self.own], live)

    # Inside

    def _apply(self, delta: Delta) -> tuple[DeltaOutcome, int]:
        owner, member = delta.owner, self._members.get(delta.owner)
        if owner == self.own:
            return DeltaOutcome.NOTHING, 0  # Nobody knows that better.
        if member is None or member.epoch < delta.epoch:
            return DeltaOutcome.GAP, 0  # Its record is on the way, or was lost; only the owner's record ends an epoch.
        branch = self._branches[owner]
        if delta.epoch < branch.epoch:
            return DeltaOutcome.NOTHING, 0
        if any(wrong_path(path) is not None for _, path, _ in delta.changes):
            return DeltaOutcome.REFUSED, 0
        before = branch.version
        outcome, step = branch.apply(delta, self.limits.protocol_branch_bytes)
        if step is not None:
            if owner in self._shown:
                self._index.remove(owner, step.went)
                self._index.add(owner, step.came)
            self._watches.step(step.went + step.came + step.altered)
        assert branch.version >= before, (branch.version, before)
        assert branch.size_bytes <= self.limits.protocol_branch_bytes, branch.size_bytes
        assert len(self.rumours) <= len(self._branches), len(self.rumours)  # One of each, and of what is here.
        return outcome, before

    def _own_step(self, branch: Branch, path: str) -> None:
        self._hot.step(self.own, branch, branch.version - 1)
        self._watches.step((path,))
        self.moved.add(self.own)

    def _replace(self, owner: bytes, epoch: int) -> None:
        """A newer epoch: what was published before is gone at once."""
        self._hide(owner)
        before = self._branches[owner]
        self._hot.forget(owner)
        self._branches[owner] = Branch(epoch)
        self._watches.step(before.live)

    def _renew(self, epoch: int) -> None:
        """This node goes on under another epoch, with what it publishes."""
        before = self._branches[self.own]
        branch = self._branches[self.own] = Branch(epoch)
        for path, item in before.live.items():
            branch.put(path, item.value)
        self._tombstone_gc.forget()
        self._hot.forget(self.own)
        self._hot.step(self.own, branch, 0)
        self.moved.add(self.own)

    def _show(self, owner: bytes) -> bool:
        """Show or hide a branch as its owner's state asks; true: that changed something."""
        member, branch = self._members[owner], self._branches[owner]
        alive = member.state is State.ALIVE
        if owner == self.own:
            alive = member.state is not State.LEFT
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
        """Whether nothing is told of its branch: it is dead, or has left."""
        return owner in self._members and self._members[owner].state in GONE

    def _within(self, limit: str, size: int, most: int) -> None:
        if size > most:
            raise TooLarge(f"the tree takes no more: {limit} is {most}, asked were {size}", {limit: most, "size": size})

    def _hidden_below(self, path: str) -> Iterable[tuple[str, bytes]]:
        """What is hidden anywhere below a path, from there on, and whose it is."""
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
