"""The verdicts that a node cannot reach from its own copies: its share of a version, and what clients may have.

The statements of members decide it (`cluster/`), those of the node itself where it is alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from gossipkv.placement.identity import Identity
    from gossipkv.placement.ownership import Ownership
    from gossipkv.placement.partition_set import PartitionSet
    from gossipkv.placement.seals import Sealed


class Verdicts(Protocol):
    """The verdicts on a database's versions, by name; they change without notice but for a wake."""

    def share(self, version: str) -> PartitionSet | None:
        """Partitions of it that are to be here, beside what is kept as its share already; None: not known yet."""
        ...

    def passed(self, version: str) -> bool:
        """Whether clients may have it, also by its name."""
        ...

    def may_switch(self, version: str) -> bool:
        """Whether it may become the active one: its gate holds now."""
        ...

    def owners(self, identity: Identity) -> tuple[Ownership, ...]:
        """Others that may be asked for an identity now."""
        ...

    def sealed(self) -> tuple[Sealed, ...]:
        """What clients may have, each with the seals of the files that it is answered from."""
        ...

    def is_short(self, version: str) -> bool:
        """Whether partitions of it have fewer owners that live than `replication`, and are to be here."""
        ...

    def may_retire(self, version: str) -> bool:
        """Whether nobody else needs it any more."""
        ...

    def refuted(self, digest: str) -> tuple[str, ...]:
        """Functions of which a stray has shown that they did not make the files of this digest."""
        ...
