"""This node's copy of one version, as the core is told of it, and the statement that it permits."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gossipkv.placement.partition_set import PartitionSet
from gossipkv.placement.statement import Statement

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gossipkv.placement.identity import VersionIdentity
    from gossipkv.placement.seals import Seals


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnCopy:
    """A version that is here, is being built, or is seen at the source."""

    version: str
    digest: str | None = None  # The digest of the files at the source is None if the source shows none.
    partitions: int | None = None  # The number of partitions, by the source or the manifest.
    # The identity of the copy or of its build; None until the function is recognised.
    identity: VersionIdentity | None = None
    source_ms: int = 0
    progress: int = 0
    share: PartitionSet | None = None  # The wanted partitions, by the manifest; None: not computed yet.
    # Partitions that are open, and whose build read every file it relied on to the end: only these may be published.
    ready: PartitionSet | None = None
    building: PartitionSet | None = None  # These partitions are being built, or wait only for their turn.
    going: PartitionSet | None = None  # The part of `ready` that will be dropped or rebuilt.
    seals: Seals = field(default_factory=dict)
    records: Mapping[int, int] = field(default_factory=dict)  # The number of records of each open partition.
    # Local partitions whose files differ from those that clients have; None: none.
    differing: PartitionSet | None = None
    asked_ms: int | None = None  # When an old version was last requested, in any way; None: the version is not old.

    def statement(self, uuid: bytes, expected: VersionIdentity | None) -> Statement | None:
        """Return the statement about the copy; None if there is none.

        `expected`: the identity that a waiting build should reach before it has recognised a function.
        """
        identity = self.identity or expected
        if identity is None:
            return None
        ready, building = self.serves(identity), self._of(self.building, identity)
        differing = self._of(self.differing, identity) or None
        if not ready and not building and not differing:
            return None
        return Statement(identity, self.source_ms, self.progress, ready, building, uuid, differing)

    def serves(self, identity: VersionIdentity) -> PartitionSet:
        """Return the partitions of an identity that stay here, and match the clients' files."""
        if identity != self.identity:
            return PartitionSet.empty(identity.partitions)
        return self._of(self.ready, identity) - self._of(self.going, identity) - self._of(self.differing, identity)

    def _of(self, partitions: PartitionSet | None, identity: VersionIdentity) -> PartitionSet:
        if partitions is None or partitions.partitions != identity.partitions:
            return PartitionSet.empty(identity.partitions)
        return partitions
