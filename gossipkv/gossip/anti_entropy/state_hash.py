"""Eight bytes that are equal where the same is known.

The exclusive or, over the members, of a hash of what is known of each: its uuid, epoch, incarnation, whether it is
dead or has left, and how far its branch is here.  A suspicion does not count: it is each node's own.  Of a dead member
no branch counts, and it does for a while only: what some have forgotten already and others not must not look like a
difference.  Kept up to date by what changes, so that a ping costs nothing.
"""

from __future__ import annotations

import heapq
import struct
from hashlib import blake2b
from typing import TYPE_CHECKING, Final, final

from gossipkv.gossip.member import GONE
from gossipkv.gossip.packets.messages import HASH_BYTES

if TYPE_CHECKING:
    from gossipkv.gossip.membership.members import Members
    from gossipkv.gossip.tree.tree import Tree

DEAD_COUNTS_MS: Final = 600_000  # Long after everybody has heard of it, and much shorter than it is remembered.

_KNOWN: Final = struct.Struct(">8s16sQIBQ")


@final
class StateHash:
    """The fold over what `members` and `tree` know."""

    __slots__ = ("_dirty", "_fades", "_fading", "_folded", "_hash", "_members", "_now_ms", "_of", "_tree")

    def __init__(self, members: Members, tree: Tree) -> None:
        self._members = members
        self._tree = tree
        self._of: dict[bytes, int] = {}
        self._dirty: set[bytes] = set()
        self._fades: list[tuple[int, bytes]] = []  # When to look whether a dead one counts no more,
        self._fading: dict[bytes, int] = {}  # and the next of these times, by member.
        self._now_ms = 0
        self._folded = 0
        self._hash = bytes(HASH_BYTES)

    @property
    def value(self) -> bytes:
        """The hash now."""
        if self._dirty or self._tree.moved:
            self._fold()
        return self._hash

    def touch(self, id_: bytes) -> None:
        """Take in that something is known of this member in another way; how far its branch is, the tree says."""
        self._dirty.add(id_)

    def pass_time(self, now_ms: int) -> None:
        """Let dead members count no more whose time is over."""
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
        assert self._of or not self._folded, self._folded  # Nothing known, nothing folded.
        self._hash = self._folded.to_bytes(HASH_BYTES, "big")

    def _hash_of(self, id_: bytes) -> int:
        member = self._members.get(id_)
        if member is None:
            return 0
        version, gone = 0, member.state in GONE
        if not gone:
            head = self._tree.head(id_)
            version = head.version if head.epoch == member.epoch else 0
        elif id_ in self._members.peers:
            fades_ms = self._members.peers[id_].since_ms + DEAD_COUNTS_MS
            if fades_ms <= self._now_ms:
                return 0
            if id_ not in self._fading or fades_ms < self._fading[id_]:  # Else it is looked at before: often enough.
                self._fading[id_] = fades_ms
                heapq.heappush(self._fades, (fades_ms, id_))
        known = _KNOWN.pack(id_, member.uuid, member.epoch, member.incarnation, member.state if gone else 0, version)
        return int.from_bytes(blake2b(known, digest_size=HASH_BYTES).digest(), "big")
