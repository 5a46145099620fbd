"""A survey of the statements about one database: by whom, and what they mean for each version; made anew in each step.

A survey counts the statements of each member's present epoch, and this node's own.  Members that have left, and refuted
identities, are ignored.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, final

from gossipkv.dataset.cluster.contents import KnownContents
from gossipkv.dataset.cluster.gate import Alive
from gossipkv.dataset.cluster.members import SILENT_EPOCH, MemberStanding
from gossipkv.dataset.cluster.retiring import Needs
from gossipkv.placement.holders import LIVE, Holders, HolderState
from gossipkv.placement.partition_set import PartitionSet, in_at_least
from gossipkv.placement.statement import Named

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gossipkv.dataset.cluster.members import Membership
    from gossipkv.dataset.cluster.others import MemberStatement, MemberStatements
    from gossipkv.dataset.cluster.refutations import Refutations
    from gossipkv.placement.identity import VersionIdentity
    from gossipkv.placement.statement import DatabaseStatement, Statement


class Availability(NamedTuple):
    """The owners of the identity that clients get, or will get, by a version's name."""

    identity: VersionIdentity
    holders: Holders  # The owners include this node.
    alive: tuple[Alive, ...]  # Other members that have partitions of it, or have it active.
    is_covered: bool  # Each partition has enough ALIVE owners, by their statements: asking them is worthwhile.


@final
class VersionSurvey:
    """One survey of all statements."""

    def __init__(
        self,
        membership: Membership,
        others: MemberStatements,
        refutations: Refutations,
        own: Mapping[str, Statement],
        least: int,
    ) -> None:
        """Create it; `own`: this node's statements by version; `least`: `min_replication`."""
        self._membership = membership
        self._others = others
        self._least = least
        self._states = {
            member.name: member.standing for member in membership.others if member.state is not MemberStanding.LEFT
        } | {membership.own.name: HolderState.ALIVE}  # This holds also while the node leaves.
        # The keys are version, identity and member.
        self.published: dict[str, dict[VersionIdentity, dict[str, Statement]]] = {}
        said_of = {name: said.versions for name, said in others if self._is_present(name, said)}
        for name, versions in [*said_of.items(), (membership.own.name, own)]:
            for version, said in versions.items():
                if said.identity.version == version and not refutations.refutes(said.identity):
                    self.published.setdefault(version, {}).setdefault(said.identity, {})[name] = said
        self._said: list[DatabaseStatement] = []
        self._active_at: dict[Named, set[str]] = {}  # The sets have other members only.
        for name, each in others:
            if each.database is not None and name in self._states:
                self._said.append(each.database)
                if each.database.active is not None:
                    self._active_at.setdefault(each.database.active, set()).add(name)
        self.active = self._active_at.keys()
        self._known = {version: self._look(published) for version, published in self.published.items()}

    def _is_present(self, name: str, said: MemberStatement) -> bool:
        member = self._membership.get(name)
        is_here = member is not None and name in self._states
        return is_here and member is not None and (member.uuid, member.epoch) == (said.uuid, said.epoch)

    def _look(self, published: Mapping[VersionIdentity, Mapping[str, Statement]]) -> tuple[KnownContents, ...]:
        own = self._membership.own.name
        found = []
        for identity, statements in published.items():
            is_active = Named(identity.version, identity.wire_id) in self.active
            found.append(KnownContents(identity, self._reaches(self._least, identity), own in statements, is_active))
        return tuple(found)

    def _reaches(self, least: int, identity: VersionIdentity) -> bool:
        """True if each partition has at least `least` ALIVE owners, by their statements."""
        statements = self.published[identity.version][identity]
        ready = [said.ready for name, said in statements.items() if self._states[name] is HolderState.ALIVE]
        return in_at_least(least, identity.partitions, ready) == PartitionSet.whole(identity.partitions)

    def has_all(self, identity: VersionIdentity) -> bool:
        """True if each partition has an owner that is ALIVE."""
        return self._reaches(1, identity)

    @property
    def differing(self) -> dict[VersionIdentity, dict[str, PartitionSet]]:
        """Return, by identity and member, the partitions that the member's clients get from other owners' files."""
        found: dict[VersionIdentity, dict[str, PartitionSet]] = {}
        for published in self.published.values():
            for identity, statements in published.items():
                for name, said in statements.items():
                    if said.differing:
                        found.setdefault(identity, {})[name] = said.differing
        return found

    def known(self, version: str) -> tuple[KnownContents, ...]:
        """Return the identities that share a version's name."""
        return self._known.get(version, ())

    @property
    def own(self) -> dict[str, Statement]:
        """Return this node's statements that count."""
        own = self._membership.own.name
        return {
            version: statements[own]
            for version, published in self.published.items()
            for statements in published.values()
            if own in statements
        }

    def availability(self, identity: VersionIdentity) -> Availability:
        """Return the owners of an identity."""
        statements = self.published.get(identity.version, {}).get(identity, {})
        active_at = self._active_at.get(Named(identity.version, identity.wire_id), set())
        nothing = PartitionSet.empty(identity.partitions)
        alive = []
        for member in self._membership.others:
            said, is_active = statements.get(member.name), member.name in active_at
            ready = nothing if said is None else said.ready
            if (ready or is_active) and member.standing is HolderState.ALIVE and member.epoch != SILENT_EPOCH:
                alive.append(Alive(member.name, member.uuid, member.epoch, ready, is_active))
        is_covered = any(each.is_covered for each in self.known(identity.version) if each.identity == identity)
        return Availability(identity, Holders(identity, statements, self._states), tuple(alive), is_covered)

    def source_ms(self, identity: VersionIdentity) -> int | None:
        """Return the smallest source time that live owners report, which is the same at every node."""
        statements = self.published.get(identity.version, {}).get(identity, {})
        owners = [said for name, said in statements.items() if said.ready and self._states[name] in LIVE]
        return min((said.source_ms for said in owners if said.source_ms > 0), default=None)

    @property
    def newest(self) -> str | None:
        """Return the newest version that another member knows."""
        others = {
            version
            for version, published in self.published.items()
            for statements in published.values()
            if statements.keys() - {self._membership.own.name}
        }
        others.update(said.newest for said in self._said if said.newest is not None)
        return max(others, default=None)

    @property
    def active_elsewhere(self) -> dict[str, bool]:
        """Return the versions active at ALIVE members, by present statements; True: only under a hold."""
        found: dict[str, bool] = {}
        for name in self._membership.staying - {self._membership.own.name}:
            needs = self.needs_of(name)
            if needs.active is not None:
                found[needs.active] = found.get(needs.active, True) and needs.hold == needs.active
        return found

    def needs(self, now_ms: int) -> list[Needs]:
        """Return the needs of each awaited member; members that take no part in the database are omitted."""
        awaited = [(each.name, self._others.of(each.name, each.epoch)) for each in self._membership.awaited]
        heard = {
            name: said is not None and (said.database is not None or bool(said.versions)) for name, said in awaited
        }
        given_up = self._membership.is_given_up
        return [self.needs_of(name) for name in heard if not given_up(name, now_ms, is_heard=heard[name])]

    def needs_of(self, name: str) -> Needs:
        """Return the versions that a member needs, by its present statements."""
        member = self._membership.get(name)
        said = None if member is None else self._others.of(name, member.epoch)
        if member is None or said is None or said.database is None:
            return Needs(name, None)
        database = said.database
        active, next_ = (None if named is None else named.version for named in (database.active, database.next))
        known = (*said.versions, next_, database.newest, said.asked)
        newest = max((version for version in known if version is not None), default=None)
        return Needs(name, active, next_, database.hold, None if member.state is MemberStanding.ALIVE else newest)
