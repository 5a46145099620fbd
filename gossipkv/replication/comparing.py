"""Comparing: copies of one clock have the same live records, and that is looked at, slowly.

    replica_digest   [uuid, table, partition, clock]    the digest of the live records at that clock, or nil

A node goes through its copies, a page at a time, and keeps of each the sum of its records' hashes and the clock at
which it was taken; one whose clock moved meanwhile is begun again another time.  Then it asks the others, who answer
from what they keep: so of two the later one finds out.  What differs is told, and nothing is repaired by itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from typing import TYPE_CHECKING, Final, NamedTuple, final

from gossipkv.replication import clock, record
from gossipkv.replication.copy import END_OF_RECORDS, RECORD

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gossipkv.replication.copy import Copy
    from gossipkv.replication.outside import Outside
    from gossipkv.replication.replicas import Replicas
    from gossipkv.wire.rpc import Value

MOST_RECORDS: Final = 256  # Of a page.
HASH_BYTES: Final = 8
MOST_DIGEST: Final = 1 << 8 * HASH_BYTES


class Digest(NamedTuple):
    """Of the live records of a copy."""

    clock: bytes
    sum: int


@final
@dataclass(slots=True, eq=False)
class _Begun:
    copy: Copy
    clock: bytes
    space: int
    start: bytes = RECORD
    sum: int = 0


@final
class Comparing:
    """The digests of a node's copies."""

    def __init__(self, replicas: Replicas, outside: Outside) -> None:
        self._replicas = replicas
        self._outside = outside
        self._round: list[Copy] = []
        self._begun: _Begun | None = None
        self._digests: dict[Copy, Digest] = {}
        self.differ: dict[Copy, set[bytes]] = {}  # The nodes whose live records were others at the same clock.

    def look(self) -> None:
        """Go on by a page."""
        begun = self._begun or self._next()
        if begun is None:
            return
        self._begun = None
        copy = begun.copy
        if copy not in self._replicas.levels or (copy.synced, copy.space) != (begun.clock, begun.space):
            return
        found, more = self._outside.scan(copy.space, begun.start, END_OF_RECORDS, reverse=False, limit=MOST_RECORDS)
        begun.sum = (begun.sum + _sum(found)) % MOST_DIGEST
        if more is not None:
            begun.start = more
            self._begun = begun
            return
        self._digests[copy] = Digest(begun.clock, begun.sum)
        table, partition, _ = copy.identity
        params: list[Value] = [self._replicas.me, table, partition, begun.clock]
        for node, _ in self._replicas.hosts_told(copy):
            self._outside.ask(node, "replica_digest", params, partial(self._answered, copy, begun.clock, node))

    def _next(self) -> _Begun | None:
        if not self._round:
            self._digests = {copy: kept for copy, kept in self._digests.items() if copy in self._replicas.levels}
            self._round = [*self._replicas.copies.values()]
        while self._round:
            copy = self._round.pop()
            if copy not in self._digests or self._digests[copy].clock != copy.synced:
                return _Begun(copy, copy.synced, copy.space)
        return None

    def digest(self, copy: Copy, at: bytes) -> Value:
        """What is kept of a copy at that clock; None: nothing is."""
        kept = self._digests.get(copy)
        return kept.sum if kept is not None and clock.compare(kept.clock, at) == clock.EQUAL else None

    def _answered(self, copy: Copy, at: bytes, node: bytes, theirs: Value) -> None:
        ours = self.digest(copy, at)
        if not isinstance(theirs, int) or ours is None or copy not in self._replicas.levels:
            return
        if theirs != ours:
            self.differ.setdefault(copy, set()).add(node)
            self._outside.differs(copy, node)
        elif copy in self.differ:
            self.differ[copy].discard(node)  # Somebody has mended it.


def _sum(rows: Iterable[tuple[bytes, bytes]]) -> int:
    total = 0
    for key, data in rows:
        if record.value(data) is not None:
            hashed = blake2b(key, digest_size=HASH_BYTES, salt=len(key).to_bytes(4, "big"))
            hashed.update(data)
            total += int.from_bytes(hashed.digest(), "big")
    return total
