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
    from gossipkv.dataset.cluster.refutations import Refutations
    from gossipkv.dataset.cluster.statements import MemberStatement, MemberStatements
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
        statements: MemberStatements,
        refutations: Refutations,
        own: Mapping[str, Statement],
        least: int,
    ) -> None:
        """Create it; `own`: this node's statements by version; `least`: `min_replication`."""
        self._membership = membership
        self._statements = statements
        self._least = least
        self._states = {
            member.name: member.standing for member in membership.others if member.state is not MemberStanding.LEFT
        } | {membership.own.name: HolderState.ALIVE}  # This holds also while the node leaves.
        # The keys are version, identity and member.
        self.published: dict[str, dict[VersionIdentity, dict[str, Statement]]] = {}
        versions_of = {name: member.versions for name, member in statements if self._is_present(name, member)}
        for name, versions in [*versions_of.items(), (membership.own.name, own)]:
            for version, statement in versions.items():
                if statement.identity.version == version and not refutations.refutes(statement.identity):
                    self.published.setdefault(version, {}).setdefault(statement.identity, {})[name] = statement
        self._of_database: list[DatabaseStatement] = []
        self._active_at: dict[Named, set[str]] = {}  # The sets have other members only.
        for name, member in statements:
            if member.database is not None and name in self._states:
                self._of_database.append(member.database)
                if member.database.active is not None:
                    self._active_at.setdefault(member.database.active, set()).add(name)
        self.active = self._active_at.keys()
        self._known = {version: self._look(published) for version, published in self.published.items()}

    def _is_present(self, name: str, stated: MemberStatement) -> bool:
        if (member := self._membership.get(name)) is None or name not in self._states:
            return False
        return (member.uuid, member.epoch) == (stated.uuid, stated.epoch)

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
        ready = [statement.ready for name, statement in statements.items() if self._states[name] is HolderState.ALIVE]
        return in_at_least(least, identity.partitions, ready) == PartitionSet.whole(identity.partitions)

    def has_all(self, identity: VersionIdentity) -> bool:
        return self._reaches(1, identity)

    @property
    def differing(self) -> dict[VersionIdentity, dict[str, PartitionSet]]:
        """Return, by identity and member, the partitions that the member's clients get from other owners' files."""
        found: dict[VersionIdentity, dict[str, PartitionSet]] = {}
        for published in self.published.values():
            for identity, statements in published.items():
                for name, statement in statements.items():
                    if statement.differing:
                        found.setdefault(identity, {})[name] = statement.differing
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
        statements = self.published.get(identity.version, {}).get(identity, {})
        active_at = self._active_at.get(Named(identity.version, identity.wire_id), set())
        nothing = PartitionSet.empty(identity.partitions)
        alive = []
        for member in self._membership.others:
            statement, is_active = statements.get(member.name), member.name in active_at
            ready = nothing if statement is None else statement.ready
            if (ready or is_active) and member.standing is HolderState.ALIVE and member.epoch != SILENT_EPOCH:
                alive.append(Alive(member.name, member.uuid, member.epoch, ready, is_active))
        is_covered = identity in {content.identity for content in self.known(identity.version) if content.is_covered}
        return Availability(identity, Holders(identity, statements, self._states), tuple(alive), is_covered)

    def source_ms(self, identity: VersionIdentity) -> int | None:
        """Return the smallest source time that live owners report, which is the same at every node."""
        statements = self.published.get(identity.version, {}).get(identity, {})
        owners = [statement for name, statement in statements.items() if statement.ready and self._states[name] in LIVE]
        return min((statement.source_ms for statement in owners if statement.source_ms > 0), default=None)

    @property
    def newest(self) -> str | None:
        """Return the newest version that another member knows."""
        versions = {
            version
            for version, published in self.published.items()
            for statements in published.values()
            if statements.keys() - {self._membership.own.name}
        }
        versions.update(statement.newest for statement in self._of_database if statement.newest is not None)
        return max(versions, default=None)

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
        needs = []
        for member in self._membership.awaited:
            stated = self._statements.of(member.name, member.epoch)
            is_heard = stated is not None and (stated.database is not None or bool(stated.versions))
            if not self._membership.is_given_up(member.name, now_ms, is_heard=is_heard):
                needs.append(self.needs_of(member.name))
        return needs

    def needs_of(self, name: str) -> Needs:
        """Return the versions that a member needs, by its present statements."""
        member = self._membership.get(name)
        stated = None if member is None else self._statements.of(name, member.epoch)
        if member is None or stated is None or stated.database is None:
            return Needs(name, None)
        database = stated.database
        active, next_ = (None if named is None else named.version for named in (database.active, database.next))
        versions = (*stated.versions, next_, database.newest, stated.asked)
        newest = max((version for version in versions if version is not None), default=None)
        return Needs(name, active, next_, database.hold, None if member.state is MemberStanding.ALIVE else newest)
