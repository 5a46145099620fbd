"""How much may be published."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from gossipkv.gossip.packets.messages import MAX_PATH_BYTES

ITEM_OVERHEAD_BYTES = 256  # What a key costs beside its path and value: objects of the branch and of the index.


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class TreeLimits:
    """Bounds; a publisher is refused beyond them, a peer's branch stays at the last state within them."""

    max_branch_keys: int = 10_000  # Sequins' largest clusters publish a few thousand partitions a node.
    max_entry_bytes: int = 4096  # Path and value: an entry names a thing, it does not carry it.
    max_tree_bytes: int = 64 << 20  # All branches, what is staged and remembered of the dead included.
    max_tombstones: int = 1000  # Of one branch; beyond it the older half goes, and who missed it gets the branch anew.

    @property
    def max_branch_bytes(self) -> int:
        """No branch alone may take more than half of the whole."""
        return self.max_tree_bytes // 2

    @property
    def max_staged_changes(self) -> int:
        """What a transfer of a branch within its limits has at most: all keys and all tombstones."""
        return self.max_branch_keys + self.max_tombstones

    @property
    def max_staged_bytes(self) -> int:
        """What they cost at most: what a transfer replaces is still told as tombstones."""
        return self.max_branch_bytes + self.max_tombstones * (ITEM_OVERHEAD_BYTES + MAX_PATH_BYTES)


def item_bytes(path: str, value: bytes | None) -> int:
    """What one key costs."""
    return ITEM_OVERHEAD_BYTES + len(path) + (0 if value is None else len(value))
