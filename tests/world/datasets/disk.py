"""The dataset state that a machine keeps over a restart: copies, the ACTIVE document, and refutations."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, final

from gossipkv.placement.partition_set import PartitionSet

if TYPE_CHECKING:
    from gossipkv.placement.identity import VersionIdentity
    from gossipkv.placement.ownership import Ownership
    from gossipkv.placement.seals import Sealed, Seals
    from tests.world.datasets.contents import Content


@final
@dataclass(slots=True)
class Stored:
    """One version on the disk: its manifest and its local partitions."""

    identity: VersionIdentity
    share: PartitionSet
    files: dict[int, Content] = field(default_factory=dict)  # By partition: the content that it was built from.
    ready: PartitionSet = field(init=False)
    seals: Seals = field(init=False)

    def __post_init__(self) -> None:
        self.ready = PartitionSet.of(self.identity.partitions, self.files)
        self.seals = {"1/none": {part: content.seal(part) for part, content in self.files.items()}}

    def add(self, part: int, content: Content) -> None:
        self.files[part] = content
        self.__post_init__()

    def drop(self, partitions: PartitionSet) -> None:
        self.files = {part: content for part, content in self.files.items() if part not in partitions}
        self.__post_init__()


@final
@dataclass(slots=True)
class DatasetDisk:
    """The data directory of one machine."""

    versions: dict[str, Stored] = field(default_factory=dict)
    active: VersionIdentity | None = None
    owners: tuple[Ownership, ...] = ()
    sealed: tuple[Sealed, ...] = ()  # The checksums of the files that served clients.
    refuted: dict[str, tuple[str, ...]] = field(default_factory=dict)
    ring: dict[str, str] = field(default_factory=dict)
