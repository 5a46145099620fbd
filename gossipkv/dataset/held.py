"""A version that a node holds and answers, as its other parts see it: its local files and its audience."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gossipkv.placement.identity import VersionIdentity
    from gossipkv.placement.partition_set import PartitionSet
    from gossipkv.storage.sorted_file import SortedFile


@final
@dataclass(frozen=True, slots=True)
class Held:
    """A version that this node answers, at one moment; its identity is known."""

    identity: VersionIdentity
    files: Sequence[SortedFile | None]  # The index is the partition; None if the file is not here.
    here: PartitionSet  # The partitions that are here.
    building: PartitionSet  # The partitions that are being built.
    passed: bool  # Clients may get the version, also by its name; peers may get any local file.
    active_elsewhere: bool  # A member has the version active; clients that ask for one at least as new may get it.
    source_ms: int  # When the source was last modified, in milliseconds since 1970; 0: unknown.
    active: bool  # Requests that name no version get this one.

    @property
    def database(self) -> str:
        return self.identity.database

    @property
    def name(self) -> str:
        return self.identity.version

    @property
    def function(self) -> str:
        return self.identity.function

    @property
    def wire_id(self) -> bytes:
        return self.identity.wire_id
