"""The statements of the other members about one database, of their present lives and of former ones.

The tree shows what a member's present life has published, and a newer epoch empties it.  That is no withdrawal: a node
that starts again still has its files, and has not come to say so.  So what the former life had said stays, as somebody
to be asked, until the new one says that it has told all its copies.  It counts in no gate: gates count what a member
has answered in its present epoch.

What was remembered over a restart of this node (`ACTIVE`: who held what) is a former statement too, also of members
that nobody has heard of yet: a node that hears nobody knows whom to ask (promise P1).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from gossipkv.placement.identity import Identity
    from gossipkv.placement.ownership import Owner, Ownership
    from gossipkv.placement.partition_set import PartitionSet
    from gossipkv.placement.statement import DatabaseStatement, Statement


@final
@dataclass(slots=True)
class Said:
    """The statements of one member."""

    uuid: bytes
    epoch: int = 0
    versions: dict[str, Statement] = field(default_factory=dict)
    database: DatabaseStatement | None = None
    former: dict[Identity, PartitionSet] = field(default_factory=dict)  # Said by a life that may be over.
    asked: str | None = None  # The newest version that it asked about, to switch to it.

    def holds(self) -> dict[Identity, PartitionSet]:
        """Return what it holds of which identity, as far as it has not withdrawn that itself."""
        found = {said.identity: said.ready for said in self.versions.values() if said.ready}
        for identity, partitions in self.former.items():
            found[identity] = found[identity] | partitions if identity in found else partitions
        return found


@final
class Others:
    """The statements of all other members about one database."""

    def __init__(self) -> None:
        self._said: dict[str, Said] = {}
        self._remembered: dict[str, Owner] = {}

    def remember(self, identity: Identity, ownerships: Iterable[Ownership]) -> None:
        """Take in who owned what when this node ran last."""
        for owner, partitions in ownerships:
            self._remembered[owner.name] = owner
            said = self._said.setdefault(owner.name, Said(owner.uuid))
            said.former[identity] = partitions

    def hear(
        self,
        name: str,
        uuid: bytes,
        epoch: int,
        versions: Mapping[str, Statement],
        database: DatabaseStatement | None,
    ) -> bool:
        """Take in all that a member says of the database now; true: it took something back.

        `uuid`, `epoch`: the member's, under which the tree shows it.  One of an older life is passed over; another uuid
        is another node, whose files are not those of the one that had the name.
        """
        said = self._said.setdefault(name, Said(uuid))
        if said.uuid != uuid:
            said = self._said[name] = Said(uuid)
        if epoch < said.epoch:
            return False
        shrunk = False
        if epoch > said.epoch:
            said.former = said.holds()
            said.epoch = epoch
        else:
            shrunk = any(_shrunk(before, versions.get(version)) for version, before in said.versions.items())
        said.versions, said.database = dict(versions), database
        if database is not None and database.told:
            said.former = {}
        return shrunk

    def note(self, name: str, version: str) -> None:
        """Take in that a member asked what is served of a version, of which nothing else may come to be heard."""
        said = self._said.get(name)
        if said is not None:  # Of who has said nothing, everything may be needed.
            said.asked = version if said.asked is None else max(said.asked, version)

    def forget(self, name: str) -> None:
        """Take in that a member is known no longer, or is another node by the same name."""
        self._said.pop(name, None)
        self._remembered.pop(name, None)

    def __iter__(self) -> Iterator[tuple[str, Said]]:
        return iter(self._said.items())

    def of(self, name: str, epoch: int) -> Said | None:
        """Return what a member says in the epoch in which it is; None: nothing yet."""
        said = self._said.get(name)
        return said if said is not None and said.epoch == epoch else None

    def holds(self, owner: Owner) -> dict[Identity, PartitionSet]:
        """Return what a member may be asked for; nothing, if it was another node that had its name."""
        said = self._said.get(owner.name)
        return {} if said is None or said.uuid != owner.uuid else said.holds()

    def held_by(self, name: str) -> dict[Identity, PartitionSet]:
        """Return what the node has that goes by this name now."""
        said = self._said.get(name)
        return {} if said is None else said.holds()

    def remembered(self, name: str) -> Owner | None:
        """Return a node that was remembered over the restart."""
        return self._remembered.get(name)


def _shrunk(before: Statement, now: Statement | None) -> bool:
    return now is None or now.identity != before.identity or bool(before.ready - now.ready)
