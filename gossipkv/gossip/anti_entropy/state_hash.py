"""The state hash: eight bytes that are equal on nodes with equal knowledge.

The hash is the exclusive or, over the members, of a hash of the knowledge about each: uuid, epoch, incarnation, DEAD or
LEFT, and the local version of its branch. A suspicion does not count, since it is local to a node. A dead member counts
without its branch, and only for a while: members that only some nodes have forgotten must not look like a difference.
The hash is updated by changes, so a ping costs nothing.
"""

from __future__ import annotations

import heapq
import struct
from hashlib import blake2b
from typing import TYPE_CHECKING, Final, final

from gossipkv.gossip.member import GONE
from gossipkv.gossip.packets.messages import HASH_BYTES

if TYPE_CHECKING:
    from gossipkv.gossip.membership.members import MemberTable
    from gossipkv.gossip.tree.tree import GossipTree

# Long after every node has heard of a death, and much shorter than a dead member is remembered.
DEAD_COUNTS_MS: Final = 600_000

_KNOWN: Final = struct.Struct(">8s16sQIBQ")


@final
class StateHash:
    """The hash over the knowledge in `members` and `tree`."""

    __slots__ = ("_dirty", "_fades", "_fading", "_folded", "_hash", "_members", "_now_ms", "_of", "_tree")

    def __init__(self, members: MemberTable, tree: GossipTree) -> None:
        self._members = members
        self._tree = tree
        self._of: dict[bytes, int] = {}
        self._dirty: set[bytes] = set()
        self._fades: list[tuple[int, bytes]] = []  # When to check whether a dead member stops counting,
        self._fading: dict[bytes, int] = {}  # and the next of these times, by member.
        self._now_ms = 0
        self._folded = 0
        self._hash = bytes(HASH_BYTES)

    @property
    def value(self) -> bytes:
        """The current hash."""
        if self._dirty or self._tree.moved:
            self._fold()
        return self._hash

    def touch(self, id_: bytes) -> None:
        """Note a change of a member; changes of its branch come from the tree."""
        self._dirty.add(id_)

    def pass_time(self, now_ms: int) -> None:
        """Stop counting dead members after their time."""
        self._now_ms = max(now_ms, self._now_ms)
        while self._fades and self._fades[0][0] <= now_ms:
            at_ms, id_ = heapq.heappop(self._fades)
            if self._fading.get(id_) == at_ms:
                del self._fading[id_]
                self._dirty.add(id_)

    def _fold(self) -> None:
        for id_ in self._dirty | self._tree.take_moved():
            hash_ = self._hash_of(id_)
            self._folded ^= self._of.pop(id_, 0) ^ hash_
            if hash_:
                self._of[id_] = hash_
        self._dirty.clear()
        assert self._of or not self._folded, self._folded  # An empty table has an empty hash.
        self._hash = self._folded.to_bytes(HASH_BYTES, "big")

    def _hash_of(self, id_: bytes) -> int:
        member = self._members.get(id_)
        if member is None:
            return 0
        version, is_gone = 0, member.state in GONE
        if not is_gone:
            head = self._tree.head(id_)
            version = head.version if head.epoch == member.epoch else 0
        elif id_ in self._members.peers:
            fades_ms = self._members.peers[id_].since_ms + DEAD_COUNTS_MS
            if fades_ms <= self._now_ms:
                return 0
            # An earlier check is scheduled otherwise, which is often enough.
            if id_ not in self._fading or fades_ms < self._fading[id_]:
                self._fading[id_] = fades_ms
                heapq.heappush(self._fades, (fades_ms, id_))
        state = member.state if is_gone else 0
        packed = _KNOWN.pack(id_, member.uuid, member.epoch, member.incarnation, state, version)
        return int.from_bytes(blake2b(packed, digest_size=HASH_BYTES).digest(), "big")
