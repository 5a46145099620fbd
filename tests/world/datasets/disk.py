"""What a machine keeps of its datasets over a restart: copies, the ACTIVE document, what was refuted."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, final

from gossipkv.placement.partition_set import PartitionSet

if TYPE_CHECKING:
    from gossipkv.placement.identity import Identity
    from gossipkv.placement.ownership import Ownership
    from gossipkv.placement.seals import Seals


@final
@dataclass(slots=True)
class Stored:
    """One version on the disk: its manifest, and which of its partitions are there."""

    identity: Identity
    share: PartitionSet
    ready: PartitionSet

    def add(self, part: int) -> None:
        """Have a partition enter."""
        self.ready |= PartitionSet.of(self.identity.partitions, [part])


@final
@dataclass(slots=True)
class DatasetDisk:
    """The data directory of one machine."""

    versions: dict[str, Stored] = field(default_factory=dict)
    active: Identity | None = None
    owners: tuple[Ownership, ...] = ()
    seals: Seals = field(default_factory=dict)  # On which clients have the active version.
    refuted: dict[str, tuple[str, ...]] = field(default_factory=dict)
