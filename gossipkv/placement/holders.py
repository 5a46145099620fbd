"""Who holds which partition of one identity: a map of what members have said and of how they are known.

Pure: it is made anew when either changes.  A statement about another identity is not in it, whatever its name; nor is
one of a member that has left, or that nobody knows, unless the caller says in which state it is to be taken.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, NamedTuple, final

from gossipkv.placement.partition_set import PartitionSet, in_at_least

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from gossipkv.placement.identity import Identity
    from gossipkv.placement.statement import Statement


class HolderState(enum.IntEnum):
    """How the member is known that holds something; whom to ask goes by this order."""

    ALIVE = 0
    SUSPECT = 1
    DEAD = 2


LIVE = frozenset({HolderState.ALIVE, HolderState.SUSPECT})


class Holder(NamedTuple):
    """One member, and what it has said of the version."""

    name: str
    state: HolderState
    ready: PartitionSet
    building: PartitionSet


@final
class Holders:
    """The holders of one identity; in the order of their states, then of their names."""

    def __init__(
        self, identity: Identity, statements: Mapping[str, Statement], states: Mapping[str, HolderState]
    ) -> None:
        """`statements` and `states` by the names of members."""
        self.identity = identity
        self.all = sorted(
            (
                Holder(name, states[name], said.ready, said.building)
                for name, said in statements.items()
                if name in states and said.identity == identity
            ),
            key=lambda holder: (holder.state, holder.name),
        )
        self._under_replicated: dict[int, PartitionSet] = {}  # Asked again and again, and the same each time.

    def at_least(self, count: int, who: Collection[str]) -> PartitionSet:
        """Return the partitions that at least so many of the members `who` have ready."""
        ready = (holder.ready for holder in self.all if holder.name in who)
        return in_at_least(count, self.identity.partitions, ready)

    def under_replicated(self, replication: int) -> PartitionSet:
        """Return the partitions that fewer members have ready that live; those that none has are among them."""
        found = self._under_replicated.get(replication)
        if found is None:
            ready = (holder.ready for holder in self.all if holder.state in LIVE)
            partitions = self.identity.partitions
            found = PartitionSet.whole(partitions) - in_at_least(replication, partitions, ready)
            self._under_replicated[replication] = found
        return found

    @property
    def missing(self) -> PartitionSet:
        """The partitions that nobody has ready who lives."""
        return self.under_replicated(1)

    @property
    def building(self) -> PartitionSet:
        """The partitions that somebody builds who lives."""
        return self.building_at({holder.name for holder in self.all if holder.state in LIVE})

    def building_at(self, who: Collection[str]) -> PartitionSet:
        """Return the partitions that at least one of the members `who` builds."""
        building = (holder.building for holder in self.all if holder.name in who)
        return in_at_least(1, self.identity.partitions, building)
