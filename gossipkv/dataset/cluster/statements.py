"""The statements of the other members about one database, from their present and former incarnations.

The tree shows the statements of a member's present incarnation, and a newer epoch empties it.  An emptied tree is no
withdrawal: a restarted node still has its files, and has not reported them yet.  So the former statements stay for
routing until the new incarnation says that it has reported all copies.  Former statements count in no gate: gates count
answers given in the present epoch.

Owners remembered over a restart of this node (`ACTIVE`) are former statements too, even of unknown members.  A node
that hears no other thus still has owners to ask (promise P1).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from gossipkv.placement.identity import VersionIdentity
    from gossipkv.placement.ownership import Owner, Ownership
    from gossipkv.placement.partition_set import PartitionSet
    from gossipkv.placement.statement import DatabaseStatement, Statement


@final
@dataclass(slots=True)
class MemberStatement:
    """The statements of one member."""

    uuid: bytes
    epoch: int = 0
    versions: dict[str, Statement] = field(default_factory=dict)
    database: DatabaseStatement | None = None
    # Stated by an incarnation that may be over.
    former: dict[VersionIdentity, PartitionSet] = field(default_factory=dict)
    asked: str | None = None  # The newest version that the member asked about in order to switch to it.

    def holds(self) -> dict[VersionIdentity, PartitionSet]:
        """Return the partitions of each identity that the member has not withdrawn itself."""
        found = {statement.identity: statement.ready for statement in self.versions.values() if statement.ready}
        for identity, partitions in self.former.items():
            found[identity] = found[identity] | partitions if identity in found else partitions
        return found


@final
class MemberStatements:
    """The statements of all other members about one database."""

    def __init__(self) -> None:
        self._members: dict[str, MemberStatement] = {}
        self._remembered: dict[str, Owner] = {}

    def remember(self, identity: VersionIdentity, ownerships: Iterable[Ownership]) -> None:
        for owner, partitions in ownerships:
            self._remembered[owner.name] = owner
            member = self._members.setdefault(owner.name, MemberStatement(owner.uuid))
            member.former[identity] = partitions

    def hear(
        self, name: str, uuid: bytes, epoch: int, versions: Mapping[str, Statement], database: DatabaseStatement | None
    ) -> bool:
        """Note a member's present statements about the database; True if it has withdrawn something.

        `uuid` and `epoch` are those under which the tree shows the statements.  Older epochs are ignored; another uuid
        is another node with files of its own.
        """
        member = self._members.setdefault(name, MemberStatement(uuid))
        if member.uuid != uuid:
            member = self._members[name] = MemberStatement(uuid)
        if epoch < member.epoch:
            return False
        shrunk = False
        if epoch > member.epoch:
            member.former = member.holds()
            member.epoch = epoch
        else:
            shrunk = any(_shrunk(before, versions.get(version)) for version, before in member.versions.items())
        member.versions, member.database = dict(versions), database
        if database is not None and database.is_complete:
            member.former = {}
        return shrunk

    def note(self, name: str, version: str) -> None:
        """Note that a member asked about a version; this may be the only sign of its interest."""
        member = self._members.get(name)
        if member is not None:  # A member without statements counts as needing every version.
            member.asked = version if member.asked is None else max(member.asked, version)

    def forget(self, name: str) -> None:
        """Note that a member is no longer known, or that another node has its name."""
        self._members.pop(name, None)
        self._remembered.pop(name, None)

    def __iter__(self) -> Iterator[tuple[str, MemberStatement]]:
        return iter(self._members.items())

    def of(self, name: str, epoch: int) -> MemberStatement | None:
        """Return the statements of a member in its present epoch; None: none yet."""
        member = self._members.get(name)
        return member if member is not None and member.epoch == epoch else None

    def holds(self, owner: Owner) -> dict[VersionIdentity, PartitionSet]:
        """Return the partitions for which a member may be asked; none if another node had its name."""
        member = self._members.get(owner.name)
        return {} if member is None or member.uuid != owner.uuid else member.holds()

    def held_by(self, name: str) -> dict[VersionIdentity, PartitionSet]:
        """Return the partitions of the node that has this name now."""
        member = self._members.get(name)
        return {} if member is None else member.holds()

    def remembered(self, name: str) -> Owner | None:
        return self._remembered.get(name)


def _shrunk(before: Statement, now: Statement | None) -> bool:
    return now is None or now.identity != before.identity or bool(before.ready - now.ready)
