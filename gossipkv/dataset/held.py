"""A version that a node holds and answers, as its other parts see it: what is here, and who gets it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gossipkv.placement.identity import Identity
    from gossipkv.placement.partition_set import PartitionSet
    from gossipkv.storage.sorted_file import SortedFile


@final
@dataclass(frozen=True, slots=True)
class Held:
    """A version that is answered, as it stands at one moment; its identity is known."""

    identity: Identity
    files: Sequence[SortedFile | None]  # By partition; None where it is not here.
    here: PartitionSet  # Where it is.
    building: PartitionSet  # What is being built.
    passed: bool  # Clients may have it, also by its name; peers may whatever is here.
    active_elsewhere: bool  # Clients may have it that ask for one at least as new: a member has it active.
    source_ms: int  # When it was last modified at its source, since 1970; 0: nobody tells.
    active: bool  # Requests that name no version get it.

    @property
    def database(self) -> str:
        """The name of its database."""
        return self.identity.database

    @property
    def name(self) -> str:
        """The name of the version."""
        return self.identity.version

    @property
    def function(self) -> str:
        """The name of its partition function."""
        return self.identity.function

    @property
    def wire_id(self) -> bytes:
        """What other nodes call it."""
        return self.identity.wire_id
