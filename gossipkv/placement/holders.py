"""Holders of the partitions of one identity, from members' statements and states.

The map is made anew when either changes. Statements about another identity are left out, whatever its name. So are
those of a member that left or is unknown, unless the caller provides a state for it.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, NamedTuple, final

from gossipkv.placement.partition_set import PartitionSet, in_at_least

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from gossipkv.placement.identity import VersionIdentity
    from gossipkv.placement.statement import Statement


class HolderState(enum.IntEnum):
    """State of a member that holds partitions, in the order in which members are asked."""

    ALIVE = 0
    SUSPECT = 1
    DEAD = 2


LIVE = frozenset({HolderState.ALIVE, HolderState.SUSPECT})


class VersionHolder(NamedTuple):
    """One member, and its statement about the version."""

    name: str
    state: HolderState
    ready: PartitionSet
    building: PartitionSet


@final
class Holders:
    """The holders of one identity, ordered by state, then by name."""

    def __init__(
        self, identity: VersionIdentity, statements: Mapping[str, Statement], states: Mapping[str, HolderState]
    ) -> None:
        """`statements` and `states` are by names of members."""
        self.identity = identity
        self.all = sorted(
            (
                VersionHolder(name, states[name], statement.ready, statement.building)
                for name, statement in statements.items()
                if name in states and statement.identity == identity
            ),
            key=lambda holder: (holder.state, holder.name),
        )
        self._under_replicated: dict[int, PartitionSet] = {}  # A cache, since the same question is repeated.

    def at_least(self, count: int, who: Collection[str]) -> PartitionSet:
        """Return the partitions that at least `count` of the members `who` have ready."""
        ready = (holder.ready for holder in self.all if holder.name in who)
        return in_at_least(count, self.identity.partitions, ready)

    def under_replicated(self, replication: int) -> PartitionSet:
        """Return the partitions that fewer than `replication` live members, or none, have ready."""
        found = self._under_replicated.get(replication)
        if found is None:
            ready = (holder.ready for holder in self.all if holder.state in LIVE)
            partitions = self.identity.partitions
            found = PartitionSet.whole(partitions) - in_at_least(replication, partitions, ready)
            self._under_replicated[replication] = found
        return found

    @property
    def missing(self) -> PartitionSet:
        """Partitions that no live member has ready."""
        return self.under_replicated(1)

    @property
    def building(self) -> PartitionSet:
        """Partitions that a live member builds."""
        return self.building_at({holder.name for holder in self.all if holder.state in LIVE})

    def building_at(self, who: Collection[str]) -> PartitionSet:
        """Return the partitions that at least one of the members `who` builds."""
        building = (holder.building for holder in self.all if holder.name in who)
        return in_at_least(1, self.identity.partitions, building)
