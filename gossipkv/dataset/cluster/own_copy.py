"""This node's copy of one version, as the core is told of it, and what may be said of that."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gossipkv.placement.partition_set import PartitionSet
from gossipkv.placement.statement import Statement

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gossipkv.placement.identity import Identity
    from gossipkv.placement.seals import Seals


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnCopy:
    """A version that is here, is being built, or is seen at the source."""

    version: str
    digest: str | None = None  # Of the files that the source shows; None: it shows none.
    partitions: int | None = None  # N, as the source or the manifest has it.
    identity: Identity | None = None  # Of what is here or being built; None until the function is recognised.
    source_ms: int = 0
    progress: int = 0
    share: PartitionSet | None = None  # What is wanted here, as the manifest has it; None: nothing was computed yet.
    # Partitions that are open, and for which every file relied on was read to its end: only these may be told.
    ready: PartitionSet | None = None
    building: PartitionSet | None = None  # Being built, or waiting for their turn and nothing else.
    going: PartitionSet | None = None  # Those of `ready` that are about to be dropped, or built anew.
    seals: Seals = field(default_factory=dict)
    records: Mapping[int, int] = field(default_factory=dict)  # By partition, of what is open.
    differing: PartitionSet | None = None  # Of what is here, what clients have from other files; None: nothing.
    asked_ms: int | None = None  # When an old version was last asked for, in any way; None: it is not old.

    def statement(self, uuid: bytes, expected: Identity | None) -> Statement | None:
        """Return what may be said of it; None: nothing.

        `expected`: what the build is to come to that waits for its turn, and has not recognised a function yet.
        """
        identity = self.identity or expected
        if identity is None:
            return None
        ready, building = self.serves(identity), self._of(self.building, identity)
        differing = self._of(self.differing, identity) or None
        if not ready and not building and not differing:
            return None
        return Statement(identity, self.source_ms, self.progress, ready, building, uuid, differing)

    def serves(self, identity: Identity) -> PartitionSet:
        """Return the partitions of an identity that are here to stay, and what clients have."""
        if identity != self.identity:
            return PartitionSet.empty(identity.partitions)
        return self._of(self.ready, identity) - self._of(self.going, identity) - self._of(self.differing, identity)

    def _of(self, some: PartitionSet | None, identity: Identity) -> PartitionSet:
        is_of_it = some is not None and some.partitions == identity.partitions
        return some if some is not None and is_of_it else PartitionSet.empty(identity.partitions)
