"""Digest exchange: replicas of equal clocks must have the same live records; a slow check verifies that.

    replica_digest   [uuid, table, partition, clock, at_ms]    the digest of the live records at that clock, or nil

A node sums the record hashes of all its replicas once, page by page, and then of replicas whose clocks moved
(`DirtyReplicas`). It keeps the sum with its clock; if the clock moves meanwhile, the pass is discarded and repeated
later. A finished pass asks the other hosts, which answer from their kept sums. So the later of two hosts finds a
difference. Differences are reported, not repaired.

Replicas drop expired records at different times. So a pass leaves out all records that expire within its hour, and must
end within it: until then, no replica drops any other record.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from typing import TYPE_CHECKING, Final, final

from gossipkv.replication.replica import clock, record
from gossipkv.replication.replica.replica import ReplicaDigest

if TYPE_CHECKING:
    from gossipkv.errors import GossipKVError
    from gossipkv.replication.ports import ReplicationPorts
    from gossipkv.replication.replica.replica import Replica
    from gossipkv.replication.replica_set import ReplicaSet
    from gossipkv.wire.rpc import Value

MAX_RECORDS: Final = 256  # Records in a page.
HASH_BYTES: Final = 8
HOUR_MS: Final = 3_600_000
MAX_DIGEST: Final = 1 << 8 * HASH_BYTES


@final
@dataclass(slots=True, eq=False)
class DigestPass:
    """A pass through a replica's live records at one clock."""

    replica: Replica
    clock: bytes
    space: int
    start: bytes | None  # Start of the next page; None: the pass is at the end.
    at_ms: int  # Records that expire up to this time are left out.
    sum: int = 0
    records: int = 0
    expires: bool = False  # True if a record has an expiry.

    @classmethod
    def of(cls, replica: Replica, at_ms: int) -> DigestPass:
        """Begin a pass."""
        return cls(replica, replica.synced, replica.space, replica.bounds.records[0], at_ms)

    def is_unchanged(self, replicas: ReplicaSet) -> bool:
        """Return True if the replica is unchanged since the pass began; otherwise the sum belongs to no clock."""
        replica = self.replica
        return replica in replicas.acks and (replica.synced, replica.space) == (self.clock, self.space)

    def read(self, outside: ReplicationPorts) -> ReplicaDigest | None:
        """Add a page of the unchanged replica; return the digest at the end, None before."""
        assert self.start is not None, self.replica.identity
        end = self.replica.bounds.records[1]
        found, self.start = outside.scan(self.space, self.start, end, reverse=False, limit=MAX_RECORDS)
        for key, data in found:
            self.expires = self.expires or record.expires_ms(data) > 0
            if record.value(data, self.at_ms) is not None:
                hashed = blake2b(key, digest_size=HASH_BYTES, salt=len(key).to_bytes(4, "big"))
                hashed.update(data)
                self.sum = (self.sum + int.from_bytes(hashed.digest(), "big")) % MAX_DIGEST
                self.records += 1
        if self.start is not None:
            return None
        return ReplicaDigest(self.clock, self.sum, self.records, self.at_ms if self.expires else 0)


@final
class DigestExchange:
    """The digests of a node's replicas."""

    def __init__(self, replicas: ReplicaSet, outside: ReplicationPorts) -> None:
        self._replicas = replicas
        self._outside = outside
        self._round: list[Replica] = []
        self._begun: DigestPass | None = None
        self.differ: dict[Replica, set[bytes]] = {}  # Nodes whose live records differed at the same clock.

    @property
    def is_amid(self) -> bool:
        """True if a pass is unfinished."""
        return self._begun is not None

    def look(self) -> None:
        """Process one page."""
        begun = self._begun or self._next()
        if begun is None:
            return
        self._begun = None
        if not begun.is_unchanged(self._replicas):
            return
        if begun.at_ms <= self._replicas.skew.expiry_ms():
            self._replicas.dirty.undigested[begun.replica] = None
            return
        digest = begun.read(self._outside)
        if digest is None:
            self._begun = begun
            return
        replica = begun.replica
        replica.digest = digest
        table, partition = replica.partition
        params: list[Value] = [self._replicas.me, table, partition, begun.clock, begun.at_ms]
        for node, _ in self._replicas.host_statuses(replica):
            self._outside.ask(node, "replica_digest", params, partial(self._answered, begun, node))

    def _next(self) -> DigestPass | None:
        undigested = self._replicas.dirty.undigested
        self._round = self._round or [*undigested]
        while self._round:
            replica = self._round.pop()
            undigested.pop(replica, None)  # A later change is noted anew.
            is_taken = replica.digest is not None and replica.digest.clock == replica.synced
            if not is_taken and replica.joining is None:  # An incomplete replica has records ahead of its clock.
                return DigestPass.of(replica, (self._replicas.skew.expiry_ms() // HOUR_MS + 1) * HOUR_MS)
        return None

    def digest(self, replica: Replica, at: bytes, at_ms: int) -> Value:
        """Return the kept sum of a replica at a clock and time; None: there is none. An older one is made anew."""
        kept = replica.digest
        if kept is None or clock.compare(kept.clock, at) != clock.EQUAL:
            return None
        if 0 < kept.at_ms < at_ms:
            replica.digest = None
            self._replicas.dirty.undigested[replica] = None
        return kept.sum if kept.at_ms in {0, at_ms} else None

    def _answered(self, begun: DigestPass, node: bytes, theirs: Value | GossipKVError) -> None:
        replica = begun.replica
        ours = self.digest(replica, begun.clock, begun.at_ms)
        if not isinstance(theirs, int) or ours is None or replica not in self._replicas.acks:
            return
        if theirs != ours:
            self.differ.setdefault(replica, set()).add(node)
            self._outside.differs(replica, node)
        elif replica in self.differ:
            self.differ[replica].discard(node)  # The difference is gone.
