"""When this node's tombstones may go: once every live member has seen what they took away.

Nothing hangs on it but size: who missed a tombstone that is gone gets the branch anew.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gossipkv.gossip.tree.branch import Branch


@final
class TombstoneGc:
    """Those who have not said yet that they have the branch of this node up to `_goal`."""

    __slots__ = ("_goal", "_waits_for")

    def __init__(self) -> None:
        self._goal = 0
        self._waits_for: set[bytes] = set()

    def acknowledged(self, id_: bytes, branch: Branch, live: Iterable[bytes]) -> None:
        """A member has all of the branch; `live`: those that are to have it."""
        if not branch.gone:
            return
        if not self._waits_for:
            self._goal = branch.version
            self._waits_for = set(live)  # Who comes later gets what there is then.
        self.without(id_, branch)

    def without(self, id_: bytes, branch: Branch) -> None:
        """A member is not waited for any more: it has the branch, or is gone."""
        if id_ in self._waits_for:
            self._waits_for.discard(id_)
            if not self._waits_for:
                assert self._goal <= branch.version, (self._goal, branch.version)
                branch.collect(self._goal)

    def forget(self) -> None:
        """The branch begins anew."""
        self._waits_for.clear()
