"""The read-only view of one database in the cluster, for `status`, `decide` and the serving loop.

The view shows the state after the last step of the database's core, which is itself such a view and alone changes it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from gossipkv.dataset.cluster.contents import to_follow
from gossipkv.dataset.cluster.gates import Gates
from gossipkv.dataset.cluster.publication import COALESCED_MS, Publication
from gossipkv.dataset.cluster.refutations import Refutations
from gossipkv.dataset.cluster.retiring import Retiring, needed_by
from gossipkv.dataset.cluster.routes import DatasetRoutes
from gossipkv.dataset.cluster.shares import VersionShares
from gossipkv.dataset.cluster.statements import MemberStatements
from gossipkv.dataset.cluster.survey import VersionSurvey
from gossipkv.placement.orders import Orders

if TYPE_CHECKING:
    from gossipkv.dataset.cluster.convergence import Convergence
    from gossipkv.dataset.cluster.gate import Dispute
    from gossipkv.dataset.cluster.members import Membership
    from gossipkv.dataset.cluster.own_copy import OwnCopy
    from gossipkv.dataset.cluster.retiring import Needs
    from gossipkv.dataset.cluster.terms import Terms
    from gossipkv.placement.holders import Holders
    from gossipkv.placement.identity import VersionIdentity
    from gossipkv.placement.ownership import Ownership
    from gossipkv.placement.partition_set import PartitionSet
    from gossipkv.placement.seals import Sealed, Seals
    from gossipkv.placement.statement import Named

# Other nodes hear in this time that this node leaves, and this node hears their reaction.
PROBE_INTERVALS: Final = 2


class NameConflict(NamedTuple):
    """Several identities that share one version's name, and their owners."""

    version: str
    owners: dict[VersionIdentity, list[str]]


class DatabaseView:
    """One database in the cluster, read-only; it answers the questions of `lifecycle.decisions.VersionDecisions`."""

    def __init__(self, name: str, membership: Membership, convergence: Convergence, terms: Terms) -> None:
        self.name = name
        self.terms = terms
        self.membership = membership  # All databases of this node share it.
        self._convergence = convergence
        self._copies: dict[str, OwnCopy] = {}
        self._statements = MemberStatements()
        self._refutations = Refutations()
        self._shares = VersionShares(membership, convergence, terms)
        self._publication = Publication()
        self._retiring = Retiring(retire_after_ms=terms.retire_after_ms, grace_ms=terms.grace_ms)
        self._gates = Gates(membership, terms, self._copies, self._retiring)
        self._routes = DatasetRoutes(membership, self._statements, self._refutations, self._gates.right)
        self._survey = VersionSurvey(membership, self._statements, self._refutations, {}, terms.min_replication)
        self.orders = Orders()  # Orders to hold a version.
        self._now_ms = 0  # The time of the last step.

    # Versions for clients

    def identity(self, version: str) -> VersionIdentity | None:
        """Return the identity that clients get by a version's name; None: it is unknown or refuted."""
        passed = self._gates.passed.get(version)
        if passed is not None:
            return None if self._refutations.refutes(passed) else passed
        available = self._gates.available.get(version)
        return None if available is None else available.identity

    def has_published(self, version: str) -> bool:
        """True if a member has published a statement about the version."""
        return version in self._survey.published

    def heard(self) -> dict[str, VersionIdentity]:
        """Return the identities that clients get or will get of versions that other members have published."""
        own = self.membership.own.name
        versions = (
            version
            for version, published in self._survey.published.items()
            if any(statements.keys() - {own} for statements in published.values())
        )
        return {version: identity for version in versions if (identity := self.identity(version)) is not None}

    def offered(self, version: str) -> VersionIdentity | None:
        """Return the identity that clients may have by a name: passed here, or active at a member; None: none."""
        return self.identity(version) if self.passed(version) else self.active_elsewhere(version)

    def active_elsewhere(self, version: str) -> VersionIdentity | None:
        """Return the identity that a member has active, if each partition has an ALIVE owner.

        The news that it is active may arrive before the statements of its owners.
        """
        active = (contents.identity for contents in self._survey.known(version) if contents.is_active)
        fixed = (identity for identity in active if self._gates.is_fixed(identity))
        return next((identity for identity in fixed if self._survey.has_all(identity)), None)

    def owners(self, identity: VersionIdentity) -> tuple[Ownership, ...]:
        """Return the owners that may be asked for an identity, by the routes of the core's last step."""
        return self._routes.of(identity)

    def source_ms(self, identity: VersionIdentity) -> int | None:
        """Return when the identity's source files were last modified, as its owners report; None: unknown."""
        return self._survey.source_ms(identity)

    def contradicting(self, identity: VersionIdentity, seals: Seals) -> PartitionSet:
        """Return the partitions whose files, by these checksums, differ from the clients'; they answer no read."""
        return self._gates.contradicting(identity, seals)

    # The verdicts

    def sealed(self) -> tuple[Sealed, ...]:
        """Return the versions that clients may have, or had, each with its fixed checksums."""
        return self._gates.sealed

    def share(self, version: str) -> PartitionSet | None:
        """Return the partitions of a version wanted here; None: not known yet, or this node has no copy of it."""
        copy = self._copies.get(version)
        return None if copy is None else self._shares.of(copy)

    def passed(self, version: str) -> bool:
        """True if clients may have a version, also by its name: its gate has passed here."""
        return version in self._gates.passed

    def may_switch(self, version: str) -> bool:
        """True if the gate of a version holds, and this node may switch to it."""
        return self._gates.may_switch(version, now_ms=self._now_ms)

    def withheld(self, version: str) -> str | None:
        """Return why a version is not switched to by itself, even if its gate holds; None: it may be."""
        return self._gates.withheld(version)

    def records(self, identity: VersionIdentity) -> int | None:
        """Return the number of records of an identity; None: not all its owners have reported."""
        return self._gates.counted.get(identity)

    def is_short(self, version: str) -> bool:
        """True if wanted partitions of a version have fewer live owners than `replication`."""
        holders, share = self.holders(version), self.share(version)
        if holders is None or share is None or share.partitions != holders.identity.partitions:
            return False
        return bool(holders.under_replicated(self.terms.replication) & share)

    def may_retire(self, version: str) -> bool:
        """True if an old version may go: no member needs it, and its grace after withdrawal is over.

        A version without a local copy may always go.
        """
        return version not in self._copies or self._retiring.is_free(version, now_ms=self._now_ms)

    def is_missed(self, *, now_ms: int) -> bool:
        """True if this leaving node alone has active partitions, and a node that stays may still get them.

        A leaving node announces its departure and goes on answering.  The node counts in no gate, others ask it last,
        and staying nodes build its unique partitions at once (`shares`).  The node ends when each active partition has
        an owner that stays, or when no staying node builds the missing ones after the time for hearing the news.  The
        node ends at once if no other stays.  During that time, versions above the active one count too: a gate may have
        passed by this node's answer, and the news of the switch may be on its way.
        """
        survey, membership = self._survey, self.membership
        own, staying, since_ms = membership.own.name, membership.staying, membership.leaving_since_ms
        assert since_ms is not None, "it does not leave"
        active = {survey.needs_of(name).active for name in staying}
        may_be_news = now_ms < since_ms + COALESCED_MS + PROBE_INTERVALS * self.terms.probe_interval_ms
        for version, published in survey.published.items():
            is_newer = any(active_version is None or version > active_version for active_version in active)
            if version not in active and not (may_be_news and is_newer):
                continue
            for identity in published:
                holders = survey.availability(identity).holders
                here_alone = holders.at_least(1, {own}) - holders.at_least(1, staying)
                if here_alone and (may_be_news or here_alone & holders.building_at(staying)):
                    return True
        return False

    def refuted(self, digest: str) -> tuple[str, ...]:
        """Return the functions that no build of these files may rely on."""
        return self._refutations.of(digest)

    def to_follow(self, version: str) -> VersionIdentity | None:
        """Return the identity that a build of the source should reach; None: the build recognises it."""
        copy = self._copies.get(version)
        if copy is None or copy.digest is None:
            return None
        passed = self._gates.passed.get(version)
        if passed is not None and passed.digest == copy.digest and not self._refutations.refutes(passed):
            return passed
        return to_follow(self._survey.known(version), copy.digest)

    def is_withdrawn(self, version: str, partitions: PartitionSet) -> bool:
        """True if none of these partitions is published any more, so that they may be dropped."""
        shown = self._publication.shown(version)
        return shown is None or shown.ready.partitions != partitions.partitions or not shown.ready & partitions

    def all_refuted(self) -> dict[str, tuple[str, ...]]:
        """Return all refuted functions by digest, the latest last, as they are kept over a restart."""
        return self._refutations.all()

    # Reports

    @property
    def active(self) -> Named | None:
        return self._gates.active

    @property
    def is_known_elsewhere(self) -> bool:
        """True if another member has made a statement about this database."""
        return any(
            member.versions or member.former or (member.database is not None and member.database.names_any)
            for _, member in self._statements
        )

    @property
    def has_ring(self) -> bool:
        """True if shares can be computed: the list of members has been stable, and this node is heard."""
        return self._convergence.ids is not None

    @property
    def ring_awaited_s(self) -> int:
        return max(0, self._now_ms - self._convergence.waits_since_ms) // 1000

    @property
    def waits_to_be_heard(self) -> bool:
        return self.membership.waits_to_be_heard(self._now_ms)

    @property
    def left_out(self) -> list[str]:
        return self._publication.left_out

    @property
    def disputes(self) -> dict[str, list[Dispute]]:
        return self._gates.disputes

    @property
    def conflicts(self) -> list[NameConflict]:
        """Return the versions with more than one identity: other files, partition count or function."""
        return [
            NameConflict(version, {identity: sorted(statements) for identity, statements in published.items()})
            for version, published in sorted(self._survey.published.items())
            if len(published) > 1
        ]

    def holders(self, version: str) -> Holders | None:
        """Return the owners of a version's partitions; None if no statement exists."""
        available = self._gates.available.get(version)
        return None if available is None else available.holders

    def needs_of(self, name: str) -> Needs:
        return self._survey.needs_of(name)

    def needed_by(self, version: str, *, now_ms: int) -> list[str]:
        return needed_by(version, self._survey.needs(now_ms))
