"""Fresh changes, told as rumours: for each owner one part with all that is still to be told of its branch.

The part is a delta over the last few changes, so that who missed one packet takes the next without a gap.  When there
is more than a packet should carry, it is a HEAD: where the branch is, for others to ask.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from gossipkv.gossip.membership.rumours import Rumours
from gossipkv.gossip.packets import messages
from gossipkv.gossip.packets.messages import Delta, Head

if TYPE_CHECKING:
    from gossipkv.gossip.tree.branch import Branch

MOST_CHANGES = 16  # More are a burst: the first who asks gets them in fewer bytes than all get rumours.
MOST_VERSIONS = 64  # Beyond it nobody looks how many of them are still there.
MOST_BYTES = 600  # The tree's share of a packet, so that one owner's changes fit beside a full share of membership.


@final
class Hot:
    """The rumours of the tree."""

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
