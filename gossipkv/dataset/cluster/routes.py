"""Routes: the members that the serving loop may ask for each partition of an identity.

A member that ever claimed a partition and has not withdrawn it may be asked, whatever its state.  A member wrongly
taken for dead may be the last owner, and one that has left may still be there for a moment.  The loop learns states
separately, so that a member's change of state costs nothing here.  Refuted identities are never routed.  Once clients
have an identity, only owners whose files have the fixed checksums are asked for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from gossipkv.dataset.cluster.effects import OpenRoute
from gossipkv.dataset.cluster.members import MemberStanding
from gossipkv.placement.ownership import Owner, Ownership
from gossipkv.placement.partition_set import PartitionSet

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from gossipkv.dataset.cluster.members import Membership
    from gossipkv.dataset.cluster.refutations import Refutations
    from gossipkv.dataset.cluster.statements import MemberStatements
    from gossipkv.placement.identity import VersionIdentity


@final
class DatasetRoutes:
    """The routes of one database."""

    def __init__(
        self,
        membership: Membership,
        statements: MemberStatements,
        refutations: Refutations,
        right: Callable[[VersionIdentity, Owner, PartitionSet], PartitionSet],
    ) -> None:
        """Create them; `right` returns the part of an owner's partitions for which it may be asked."""
        self._membership = membership
        self._statements = statements
        self._refutations = refutations
        self._right = right
        self._opened: dict[str, tuple[Owner, dict[VersionIdentity, PartitionSet]]] = {}
        self._changed: set[str] = set()
        self._revision = -1

    def changed(self, names: Iterable[str]) -> None:
        self._changed.update(names)

    def refuted(self) -> None:
        self._changed.update(self._opened)

    def step(self) -> list[OpenRoute]:
        if self._revision != self._membership.revision:
            self._revision = self._membership.revision
            self._changed.update(name for name, (owner, _) in self._opened.items() if self._owner(name) != owner)
            self._changed.update(name for name, _ in self._statements if name not in self._opened)
        effects: list[OpenRoute] = []
        for name in sorted(self._changed):
            effects += self._step_of(name)
        self._changed.clear()
        return effects

    def of(self, identity: VersionIdentity) -> tuple[Ownership, ...]:
        """Return the owners that may be asked for an identity, by name; they are kept over a restart."""
        routes = (self._opened[name] for name in sorted(self._opened))
        return tuple(Ownership(owner, partitions[identity]) for owner, partitions in routes if identity in partitions)

    def has(self, identity: VersionIdentity) -> bool:
        """True if an owner that has not left may be asked for an identity."""
        gone = {member.name for member in self._membership.others if member.state is MemberStanding.LEFT}
        return any(identity in partitions for owner, partitions in self._opened.values() if owner.name not in gone)

    def _step_of(self, name: str) -> list[OpenRoute]:
        owner = self._owner(name)
        routes: dict[VersionIdentity, PartitionSet] = {}
        if owner is not None:
            for identity, held in self._statements.holds(owner).items():
                if not self._refutations.refutes(identity) and (partitions := self._right(identity, owner, held)):
                    routes[identity] = partitions
        before_owner, before = self._opened.get(name, (owner, {}))
        effects = []
        if before_owner is not None:
            effects += [
                OpenRoute(identity, before_owner, PartitionSet.empty(identity.partitions))
                for identity in before
                if before_owner != owner or identity not in routes
            ]
        if owner is None or not routes:
            self._opened.pop(name, None)
            return effects
        self._opened[name] = owner, routes
        effects += [
            OpenRoute(identity, owner, partitions)
            for identity, partitions in routes.items()
            if before_owner != owner or before.get(identity) != partitions
        ]
        return effects

    def _owner(self, name: str) -> Owner | None:
        member = self._membership.get(name)
        if member is None:
            return self._statements.remembered(name)
        return Owner(member.name, member.uuid, member.address)
